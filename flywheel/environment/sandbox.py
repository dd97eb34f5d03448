"""The sandbox seam, and level 0 of it: a subprocess with limits. LEVEL 0 IS NOT A BOUNDARY.

What `LocalSandbox` holds: wall time (the whole process group is killed), CPU time, address space and file size of
each process, open files, core dumps, captured output, a clean environment, a private folder that is removed.
What it does NOT hold, so never run untrusted code in it:
- network: the program connects wherever this machine can;
- files: it reads and writes whatever this user may, links included; the folder is a place, not a jail;
- daemons: a process that calls setsid leaves the group and outlives the run;
- other processes: it may signal those of this user; the limit on processes is not enforced for root, and for others it
  is shared with everything that the user runs;
- disk: the size of one file is limited, the number of files is not.

Needs Linux and /bin/sh. Not covered: levels 1 to 3 (namespaces, Landlock, seccomp; bubblewrap; containers).
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flywheel.environment.process import Limits, Result, run_limited
from flywheel.errors import SandboxError

PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What lies in a fresh workspace. `files`: relative path -> bytes. `env` is added to the clean environment."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


class Sandbox(Protocol):
    """One workspace, in which programs run one after another. SandboxError is infrastructure: verdict None, never 0."""

    level: int

    def open(self, spec: SandboxSpec) -> Path:
        """Make the workspace; programs start in the returned folder."""
        ...

    def run(self, argv: Sequence[str], limits: Limits) -> Result:
        """Run a program to its end or to a limit. Errors: ValueError for an argv that no system could run."""
        ...

    def snapshot(self) -> str:
        """Keep the files as they are now; the returned name is good for any number of `restore`s."""
        ...

    def restore(self, snapshot: str) -> None:
        """Put the files back as they were."""
        ...

    def close(self) -> None:
        """Remove the workspace with its snapshots. Twice is once."""
        ...


class LocalSandbox:
    """Level 0: see the module's docstring for what it does not hold. Usable as a context manager, which closes it."""

    level = 0

    def __init__(self) -> None:
        self._root: Path | None = None
        self._env: dict[str, str] = {}
        self._snapshots = 0

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, spec: SandboxSpec) -> Path:
        """A private folder (mode 700) with `work`, `home` and `tmp`. Errors: SandboxError if open, or not on Linux."""
        if not hasattr(resource, "prlimit"):
            raise SandboxError("sandbox level 0 needs Linux (prlimit): run this where Linux is")
        if self._root is not None:
            raise SandboxError(f"the sandbox is open already at {self._root}: close it, or make another")
        self._root = Path(tempfile.mkdtemp(prefix="flywheel-sandbox-"))
        box = self._root / "box"
        for name in ("work", "home", "tmp"):
            (box / name).mkdir(parents=True)
        for name, data in spec.files.items():
            path = box / "work" / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                self.close()
                raise SandboxError(f"{name!r} lies outside the workspace: name files relative to it")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        places = {"HOME": str(box / "home"), "TMPDIR": str(box / "tmp")}
        self._env = {"PATH": PATH, "LANG": "C.UTF-8", **places, **spec.env}
        return box / "work"

    def run(self, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Result:
        work = self._box() / "work"
        work.mkdir(parents=True, exist_ok=True)  # a program that removed its own folder has not broken the sandbox
        return run_limited(argv, work, self._env, limits)

    def snapshot(self) -> str:
        """Files, folders and links are kept; pipes, sockets and devices are not. Locked files are made readable."""
        self._snapshots += 1
        name = f"snapshot-{self._snapshots}"
        _copy(self._box(), self._box().parent / name)
        return name

    def restore(self, snapshot: str) -> None:
        """Errors: SandboxError for a name that this sandbox did not give."""
        box = self._box()
        kept = box.parent / snapshot
        if snapshot not in {f"snapshot-{n + 1}" for n in range(self._snapshots)}:
            raise SandboxError(f"this sandbox has no snapshot {snapshot!r}: take one first")
        _remove(box)
        _copy(kept, box)

    def close(self) -> None:
        if self._root is not None:
            _remove(self._root)
            self._root = None

    def _box(self) -> Path:
        if self._root is None:
            raise SandboxError("the sandbox is not open: call open first")
        return self._root / "box"


def _copy(source: Path, target: Path) -> None:
    try:
        _open_up(source)
        shutil.copytree(source, target, symlinks=True, ignore=_special)
    except OSError as error:
        raise SandboxError(f"the sandbox could not copy its files: {error}") from error


def _remove(folder: Path) -> None:
    try:
        _open_up(folder)
        shutil.rmtree(folder)
    except OSError as error:
        raise SandboxError(f"the sandbox could not remove {folder}: {error}") from error


def _open_up(folder: Path) -> None:
    """Give this user access to what a program has locked; links are not followed."""
    folder.chmod(0o700)
    for at, folders, files in os.walk(folder):
        for name, needed in [*((n, 0o700) for n in folders), *((n, 0o400) for n in files)]:
            path = Path(at, name)
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & needed != needed:
                path.chmod(stat.S_IMODE(mode) | needed)


def _special(folder: str, names: list[str]) -> set[str]:
    """What a copy leaves out: neither file, folder nor link."""
    return {
        name
        for name in names
        if not any(kind(Path(folder, name).lstat().st_mode) for kind in (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK))
    }
