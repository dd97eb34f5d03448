"""Landing objects: what applications put down for `ingest` to pick up, behind a Protocol of three verbs.

A key is the path below the root, with forward slashes. An object is what was put there whole: names that start with a
dot and names ending in `.tmp`, `.part` or `.partial` (also as a folder of the path) are uploads still on their way or
files of the system's own, and are not listed. Symbolic links to files count as objects, linked folders aren't entered.

Not covered: S3, deletion (the landing zone is the evidence, only erasure touches it).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from flywheel.errors import WorkspaceError
from flywheel.store.artifacts import file_sha256, write_atomic

_PARTIAL = (".tmp", ".part", ".partial")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its key, its size in bytes, and the sha256 of its bytes."""

    key: str
    size: int
    sha256: str


class ObjectStore(Protocol):
    """Whole objects by key."""

    def list(self) -> list[StoredObject]:
        """Every object, by key in order."""
        ...

    def open(self, key: str) -> BinaryIO:
        """The object's bytes as a stream. Errors: WorkspaceError if there is no such object."""
        ...

    def put(self, key: str, data: bytes) -> StoredObject:
        """Store an object so that nobody ever sees half of it."""
        ...


@dataclass(frozen=True, slots=True)
class FolderStore:
    """Objects as files of a local folder."""

    root: Path

    def list(self) -> list[StoredObject]:
        """Every object below the root, hashed by streaming; none if the folder isn't there."""
        found = []
        for path in self.root.rglob("*"):
            key = path.relative_to(self.root)
            if path.is_file() and not any(_ignored(part) for part in key.parts):
                found.append(StoredObject(key.as_posix(), path.stat().st_size, file_sha256(path)))
        return sorted(found, key=lambda stored: stored.key)

    def open(self, key: str) -> BinaryIO:
        """The file of that key, for reading."""
        path = self._path(key)
        if not path.is_file():
            raise WorkspaceError(f"no object {key!r} in {self.root}; it was listed before, or its name is wrong")
        return path.open("rb")

    def put(self, key: str, data: bytes) -> StoredObject:
        """Write the file atomically; an object of the same key is replaced."""
        write_atomic(self._path(key), data)
        return StoredObject(key, len(data), hashlib.sha256(data).hexdigest())

    def _path(self, key: str) -> Path:
        pure = PurePosixPath(key)
        if pure.is_absolute() or not pure.parts or any(part == ".." or _ignored(part) for part in pure.parts):
            raise WorkspaceError(
                f"{key!r} can't be a key: give a path below {self.root} without `..`, dot or .tmp names"
            )
        return self.root / pure


def _ignored(name: str) -> bool:
    return name.startswith(".") or name.endswith(_PARTIAL)
