"""The registry: which policy versions there are, which one is in a stage, and how a new one becomes it.

Versions are git tags `policy@v0.2.0`, stages are tags `policy#production#3` (GTO's grammar), the bytes are DVC's; what
is in production is computed from these events. One promotion, under one lock:

    fetch and prune -> place -> dvc commit -> git commit -> dvc push -> read back -> tag -> push, all or nothing

The remote is the judge: commit, version and stage arrive in one atomic push, which fails if somebody else was there
first. Whatever fails before it leaves the old stage, and a killed promotion is undone by the next one.
This is the only module that imports gto, and `store/registry_bytes.py` the only one that imports dvc; both are slow to
import, so inside the functions.

Not covered: what is worth promoting (the gate), what lies where in a champion (`store/champion.py`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from flywheel.errors import RegistryError
from flywheel.records import canonical_json
from flywheel.store.git import Git
from flywheel.store.registry_bytes import Bytes, folder_sha256, refused
from flywheel.store.versions import FIRST_VERSION, Entry, Version, bump, semver, utc, version_of
from flywheel.workspace import Workspace

ARTIFACT = "policy"
PRODUCTION = "production"
TAGS = (f"{ARTIFACT}@*", f"{ARTIFACT}#*")
CHAMPION = ("dvc.lock", "data/champion")  # what git tracks of a champion
TRAILER = "Flywheel-Release: "
LOCK_TIMEOUT_S = 600.0


class Registry:
    """The policy versions of one workspace."""

    def __init__(self, workspace: Workspace, lock_timeout: float = LOCK_TIMEOUT_S) -> None:
        from filelock import FileLock

        self.workspace = workspace
        self.git = Git(workspace.root)
        self.bytes = Bytes(workspace.root)
        self._lock = FileLock(workspace.root / ".flywheel" / "registry.lock", timeout=lock_timeout)

    # --- Reading ------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """Every registered version, oldest first, with the stages as this repository knows them."""
        import gto.api
        from gto.exceptions import ArtifactNotFound

        with refused("GTO", "read the versions"):
            try:
                shown = gto.api.show(str(self.workspace.root), ARTIFACT, registered_only=True)
            except ArtifactNotFound:  # a workspace in the making: nothing is committed or tagged yet
                return []
        found = [version_of(row) for row in shown]
        return sorted(found, key=lambda v: semver(v.version))

    def current(self, stage: str = PRODUCTION) -> Version | None:
        """The version assigned to the stage, which needn't be the newest; None if nothing is."""
        return next((v for v in self.versions() if stage in v.stages), None)

    def moves(self) -> list[tuple[datetime, str, str]]:
        """(when, stage, version) of each assignment, oldest first."""
        import gto.api

        with refused("GTO", "read the history"):
            events = gto.api.history(str(self.workspace.root), ARTIFACT, ascending=True)
        return [(utc(e["timestamp"]), e["stage"], e["version"]) for e in events if e["event"] == "assignment"]

    def find(self, name: str) -> Version:
        """The version of that name (`v0.2.0`) or in that stage (`production`). Errors: RegistryError naming both."""
        versions = self.versions()
        for version in versions:
            if name == version.version or name in version.stages:
                return version
        known = ", ".join(f"{v.version}{''.join(f' #{s}' for s in v.stages)}" for v in versions) or "none"
        raise RegistryError(f"no version or stage {name!r} of {ARTIFACT} in {self.workspace.root}; known: {known}")

    def fetch(self, name: str, out: Path) -> Version:
        """Write the policy of that version or stage into `out` (replaced if it is there), from cache or remote."""
        version = self.find(name)
        part = out.with_name(f".{out.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        self.bytes.download(ARTIFACT, version.version, part)
        shutil.rmtree(out, ignore_errors=True)
        part.replace(out)
        return version

    def checked_out(self, name: str = PRODUCTION) -> Path:
        """A folder that holds exactly the policy of that version or stage.

        models/policy where its bytes are that version's; after an experiment there (`dvc repro`, a promotion that was
        killed), a copy in models/versions/. Read it, never write into it.
        """
        version = self.find(name)
        copy = self.workspace.models / "versions" / version.version
        for folder in (self.workspace.policy, copy):
            if folder.is_dir() and folder_sha256(folder) == version.entry.content_sha256:
                return folder
        self.fetch(version.version, copy)
        return copy

    # --- Writing ------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One writer at a time in this workspace; the lock of a dead process is free."""
        from filelock import Timeout

        Path(self._lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise RegistryError(
                f"another process has held {self._lock.lock_file} for {self._lock.timeout:.0f} s: wait for its "
                f"promotion to end, or end it, and run this again"
            ) from error
        try:
            self.git.clear_stale_locks()
            yield
        finally:
            self._lock.release()

    def fetch_tags(self) -> None:
        """Versions and stages as the remote has them now; what a killed promotion tagged here alone is gone."""
        self.git.fetch(TAGS)

    def track(self, folders: Sequence[Path], also: Sequence[str], message: str) -> None:
        """Put folders under DVC and commit their .dvc files with `also`; bytes are pushed before the commit is."""
        with self.locked():
            pointers = self.bytes.add(folders)
            self.bytes.push(pointers)
            self.git.commit([*also, *pointers], message)
            self.git.push()

    def release(
        self,
        place: Callable[[], None],
        targets: Sequence[str],
        entry: Entry,
        stage: str = PRODUCTION,
        incumbent: str | None = None,
    ) -> Version:
        """Register what `place` puts into the working tree as the next version and assign it to the stage.

        `targets` are the stages of dvc.yaml whose outs `place` provides; `incumbent` is the weights_sha256 that has to
        be in the stage still. The same bytes again register nothing: their version is assigned to the stage, unless
        this very decision had put it there before and a person took it out since; then it comes back as it is.
        Errors: RegistryError; the stage is then what it was and the working tree holds what it held before.
        """
        with self.locked():
            self._synchronise()
            self.bytes.checkout()
            known = self.versions()
            for version in known:
                if version.entry.content_sha256 == entry.content_sha256:
                    decided_before = version.entry.decision_id == entry.decision_id and not entry.forced_by
                    return version if decided_before else self._assign(version, stage)
            self._check_incumbent(next((v for v in known if stage in v.stages), None), incumbent, stage)
            name = bump(known[-1].version) if known else FIRST_VERSION
            with self._undone_on_failure():
                place()
                self.bytes.record(targets)
                self.git.commit(CHAMPION, f"Release {ARTIFACT} {name}\n\n{TRAILER}{name}")
                self.bytes.push(targets)
                self._publish(name, stage, entry)
            return self.find(name)

    def assign(self, name: str, stage: str) -> Version:
        """Put an older (or newer) version into the stage, and its champion back into the working tree."""
        with self.locked():
            self._synchronise()
            self.bytes.checkout()
            return self._assign(self.find(name), stage)

    # --- Steps --------------------------------------------------------------------------------------------

    def _assign(self, version: Version, stage: str) -> Version:
        if stage in version.stages:
            return version
        with self._undone_on_failure():
            if stage == PRODUCTION:
                self.git.run("restore", f"--source={version.git_rev}", "--staged", "--worktree", "--", *CHAMPION)
                self.bytes.checkout()
                subject = f"Return {ARTIFACT} to {version.version}"
                self.git.commit(CHAMPION, f"{subject}\n\n{TRAILER}{version.version}")
            self._publish(version.version, stage, None)
        return self.find(version.version)

    def _publish(self, version: str, stage: str, entry: Entry | None) -> None:
        """Tag (the version too, if there is an entry) and push commit and tags in one atomic push."""
        import gto.api

        root, tags = str(self.workspace.root), []
        try:
            with refused("GTO", f"tag {ARTIFACT}@{version} for {stage}"):
                if entry is not None:
                    message = f"{ARTIFACT} {version}\n\n{canonical_json(asdict(entry))}"
                    tags.append(gto.api.register(root, ARTIFACT, "HEAD", version=version, message=message).tag)
                self._wait_for_the_next_second()
                tags.append(gto.api.assign(root, ARTIFACT, stage, version=version, force=True).tag)
            self.git.push(tags)
        except BaseException:
            # A tag that the remote refused would look like a version here; if it did arrive, the next fetch says so.
            if tags:
                self.git.run("tag", "--delete", *tags)
            raise

    def _check_incumbent(self, current: Version | None, expected: str | None, stage: str) -> None:
        if expected is not None and (current is None or current.entry.weights_sha256 != expected):
            there = f"{current.version} ({current.entry.weights_sha256[:12]})" if current else "nothing"
            raise RegistryError(
                f"the decision was made against {expected[:12]}, but {stage} holds {there} now: "
                f"evaluate against that one and let the gate decide again"
            )

    def _synchronise(self) -> None:
        """Make this clone equal to the remote: undo a release that was never pushed, take over those of others."""
        self.fetch_tags()
        self._undo()
        if not self.git.has("origin/main") or self.git.is_ancestor("origin/main", "HEAD"):
            return
        if not self.git.is_ancestor("HEAD", "origin/main"):
            raise RegistryError(
                f"{self.workspace.root} and its remote have each a commit that the other lacks: "
                f"`git rebase origin/main` there, then run this again"
            )
        self.git.run("merge", "--quiet", "--ff-only", "origin/main")

    def _undo(self) -> None:
        """Take back an unpushed release commit and whatever else stands in the champion's files."""
        while (head := self.git.head()) and not (
            self.git.has("origin/main") and self.git.is_ancestor(head, "origin/main")
        ):
            if TRAILER not in self.git.run("show", "--no-patch", "--format=%B", head):
                break
            self.git.run("reset", "--quiet", "--soft", "HEAD~1")
        self.git.run("restore", "--source=HEAD", "--staged", "--worktree", "--", *CHAMPION)

    @contextmanager
    def _undone_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(RegistryError):  # a dead remote is why we are here: prune when it is back
                self.fetch_tags()
            self._undo()
            self.bytes.checkout()
            raise

    def _wait_for_the_next_second(self) -> None:
        """Tags carry whole seconds and the latest one wins: two assignments in one second would be a toss-up."""
        seconds = self.git.run("for-each-ref", "--format=%(taggerdate:unix)", f"refs/tags/{ARTIFACT}#*").split()
        newest = max(map(int, seconds), default=0)
        ahead = newest + 1 - time.time()
        if ahead > 60:
            raise RegistryError(f"the newest stage tag is {ahead:.0f} s in the future: set this machine's clock")
        time.sleep(max(0.0, ahead))
