"""git, by its command line, in one repository: the few operations that a registry needs, each with its sentence.

The command line and not a library, because `push --atomic` and `fetch --prune` with a refspec are what makes a
promotion all or nothing, and because a relative remote is then relative to the workspace and moves with it.

Not covered: tags that mean something (GTO's, in `store/registry.py`), conflicts (they are refused, never merged).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flywheel.errors import RegistryError

BRANCH = "main"
IDENTITY = {"user.name": "Flywheel", "user.email": "flywheel@localhost"}
LOCK_FILES = ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", f"refs/heads/{BRANCH}.lock")
LOCK_WAIT_S = 5.0
# Set by a git hook or an outer tool, these would point our git at another repository.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX")


@dataclass(frozen=True, slots=True)
class Git:
    """The repository whose working tree is `root`."""

    root: Path

    def run(self, *arguments: str) -> str:
        """Standard output of `git <arguments>`. Errors: RegistryError with git's last words."""
        done = self._call(arguments)
        if done.returncode:
            raise RegistryError(f"`git {' '.join(arguments)}` failed in {self.root}: {_last_words(done.stderr)}")
        return done.stdout.strip()

    def says(self, *arguments: str) -> bool:
        """Whether `git <arguments>` exits 0: for questions whose answer is the exit code."""
        return self._call(arguments).returncode == 0

    def read(self, revision: str, path: str) -> str | None:
        """The text of a tracked file at a revision; None if it isn't there."""
        done = self._call(("show", f"{revision}:{path}"))
        return None if done.returncode else done.stdout

    def init(self) -> None:
        """Make the repository with its own identity; a repository that is there keeps what it has."""
        self.run("init", "--quiet", f"--initial-branch={BRANCH}")
        for key, value in IDENTITY.items():
            if not self.says("config", "--local", key):
                self.run("config", "--local", key, value)
        # A person's global signing set-up would ask for a passphrase in the middle of a promotion.
        for key in ("commit.gpgsign", "tag.gpgsign"):
            self.run("config", "--local", key, "false")

    def set_remote(self, url: str) -> None:
        """Name the remote `origin`. Errors: RegistryError if origin is already somewhere else."""
        known = self.run("remote").split()
        if "origin" not in known:
            self.run("remote", "add", "origin", url)
        elif (there := self.run("config", "remote.origin.url")) != url:
            raise RegistryError(f"origin of {self.root} is {there}, not {url}: `git remote set-url origin {url}` first")

    def head(self) -> str | None:
        """The commit checked out; None in a repository without commits."""
        return self.run("rev-parse", "HEAD") if self.says("rev-parse", "--verify", "--quiet", "HEAD^{commit}") else None

    def has(self, revision: str) -> bool:
        """Whether the revision is a commit that is here."""
        return self.says("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `newer` contains `older`."""
        return self.says("merge-base", "--is-ancestor", older, newer)

    def fetch(self, tag_patterns: Sequence[str]) -> None:
        """Make the remote's branch known here, and the local tags of these patterns equal the remote's.

        Pruning is limited to the patterns: a person's own local tags are theirs.
        """
        tags = [f"+refs/tags/{pattern}:refs/tags/{pattern}" for pattern in tag_patterns]
        branches = "+refs/heads/*:refs/remotes/origin/*"
        self.run("fetch", "--quiet", "--prune", "--no-tags", "origin", branches, *tags)

    def commit(self, paths: Sequence[str], message: str) -> bool:
        """Commit these paths if they differ from HEAD; whether there was anything to commit."""
        self.run("add", "--all", "--", *paths)
        if self.head() is not None and self.says("diff", "--cached", "--quiet", "HEAD", "--", *paths):
            return False
        self.run("commit", "--quiet", "--no-verify", "--only", "--message", message, "--", *paths)
        return True

    def push(self, tags: Sequence[str] = ()) -> None:
        """Push HEAD as the branch together with the tags: all of them arrive, or none."""
        refs = [f"refs/tags/{tag}" for tag in tags]
        self.run("push", "--quiet", "--atomic", "origin", f"HEAD:refs/heads/{BRANCH}", *refs)

    def clear_stale_locks(self) -> None:
        """Remove lock files that a killed git left behind. Call only while holding the registry's own lock.

        A git at work takes its lock away itself, well within LOCK_WAIT_S: it is waited for that long.
        """
        deadline = time.monotonic() + LOCK_WAIT_S
        for name in LOCK_FILES:
            path = self.root / ".git" / name
            while path.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            path.unlink(missing_ok=True)

    def _call(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if key not in FOREIGN}
        env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        try:
            return subprocess.run(
                ["git", *arguments], cwd=self.root, env=env, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise RegistryError(f"git is needed and could not be started in {self.root}: {error}") from error


def make_bare(folder: Path) -> None:
    """A bare repository in that folder; one that is there stays, one that was half made is completed."""
    folder.mkdir(parents=True, exist_ok=True)
    Git(folder).run("init", "--quiet", "--bare", f"--initial-branch={BRANCH}")


def _last_words(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or "it said nothing"
