"""Landing objects: what applications put down for `ingest` to pick up, behind a Protocol of three verbs.

A key is the path below the root, with forward slashes. An object is what was put there whole: names that start with a
dot, names ending in `.tmp`, `.part` or `.partial` and Spark's `_temporary` (also as a folder of the path) are uploads
still on their way or files of the system's own, and are not listed; nor is what changed within the last `settle`
seconds. Symbolic links to files count as objects, linked folders aren't entered.

What is opened are the bytes that were hashed: a file that grows is read up to the size it had, one that is rewritten
under the reader is an error and no mixture. Only files that changed (size, times, inode) since the last listing are
hashed again; the rest is in an index that may be lost (`objects_index.py`).

The landing zone is the evidence: only erasure deletes. Not covered: S3 (`objects_s3.py`), Windows.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from flywheel.config import Config
from flywheel.errors import ObjectGone, ObjectUnread, WorkspaceError
from flywheel.store.artifacts import sync_folder
from flywheel.store.objects_files import CHUNK, Window, open_regular, sha256_of, shown, stat_regular, state_of, unread
from flywheel.store.objects_index import Entry, ObjectIndex
from flywheel.workspace import Workspace

RACY = 2.0  # seconds in which a file may change again without a change of its times
_UNFINISHED = (".tmp", ".part", ".partial")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object: its key, its size in bytes, and the sha256 of its bytes."""

    key: str
    size: int
    sha256: str
    state: str = field(default="", compare=False)  # tells it from a later object of this key: ETag, or times and inode


@dataclass(frozen=True, slots=True)
class Opened:
    """An object's bytes, exactly `stored.size` of them; `stored` is the newer object where one took its place."""

    stored: StoredObject
    stream: BinaryIO  # seekable; whoever opened it closes it


@dataclass(slots=True)
class Notes:
    """What a listing, and the reading after it, came across that is no object to read."""

    left_out: list[str] = field(default_factory=list)  # a sentence each, with the remedy
    deleted: int = 0  # of them: gone since they were listed
    replaced: int = 0  # newer than listed, and read as the new ones

    def leave_out(self, error: ObjectUnread) -> None:
        """The object isn't read; why is in the error."""
        self.left_out.append(str(error))
        self.deleted += isinstance(error, ObjectGone)


class ObjectStore(Protocol):
    """Whole objects by key."""

    def list(self, notes: Notes | None = None) -> list[StoredObject]:
        """Every object, by key in order. One that can't be read goes to `notes`, or raises without them.

        Errors: ObjectError if the store as a whole can't be listed.
        """
        ...

    def open(self, stored: StoredObject) -> Opened:
        """The bytes of a listed object; of the one that replaced it, if so. Errors: ObjectUnread, ObjectError."""
        ...

    def put(self, key: str, data: bytes | BinaryIO) -> StoredObject:
        """Store an object so that nobody ever sees half of it. Errors: WorkspaceError for a key that can't be."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object, for erasure; one that isn't there is no error."""
        ...


@dataclass(frozen=True, slots=True)
class FolderStore:
    """Objects as files of a local folder."""

    root: Path
    index: ObjectIndex | None = None  # without one every file is hashed each time
    settle: float = 0.0  # seconds that a file must have been left alone
    everything: bool = False  # hidden and unfinished names too: a person's own folder

    def list(self, notes: Notes | None = None) -> list[StoredObject]:
        """Every object below the root; none if the folder isn't there."""
        known = self.index.entries() if self.index else {}
        seen: dict[str, Entry] = {}
        found = []
        for key in self._keys(notes):
            try:
                entry = self._entry(key, known.get(key))
            except ObjectUnread as error:
                _leave_out(error, notes)
                continue
            if entry is not None:
                seen[key] = entry
                found.append(StoredObject(key, entry.size, entry.sha256, entry.state))
        if self.index:
            now = time.time()
            self.index.replace(known, {k: e for k, e in seen.items() if abs(now - e.modified) > RACY})
        return sorted(found, key=lambda stored: stored.key)

    def one(self, key: str) -> StoredObject:
        """One object that need not be listed. Errors: ObjectUnread if it can't be read."""
        entry = self._entry(key, None)
        if entry is None:
            raise ObjectUnread(f"{shown(self.root / key)} changed a moment ago; try again when it's whole")
        return StoredObject(key, entry.size, entry.sha256, entry.state)

    def open(self, stored: StoredObject) -> Opened:
        """The file of that key, up to the size that was hashed."""
        path = self._path(stored.key)
        file = open_regular(path)
        try:
            status = os.fstat(file.fileno())
            if state_of(status) != stored.state and sha256_of(file, stored.size) != stored.sha256:
                stored = self._hashed(file, stored.key)
        except BaseException:
            file.close()
            raise
        return Opened(
            stored, io.BufferedReader(Window(file, stored.key, stored.size, stored.sha256, stored.state), CHUNK)
        )

    def put(self, key: str, data: bytes | BinaryIO) -> StoredObject:
        """Write the file, seen only when complete; an object of the same key is replaced."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{os.urandom(8).hex()}.tmp")  # a long name must not become too long
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        digest, size = hashlib.sha256(), 0
        try:
            with draft.open("wb") as out:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    size += out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
                status = os.fstat(out.fileno())
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        draft.replace(path)
        sync_folder(path.parent)
        return StoredObject(key, size, digest.hexdigest(), state_of(status))

    def delete(self, key: str) -> None:
        """Remove the file; one that isn't there is no error."""
        path = self._path(key)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            sync_folder(path.parent)
        if self.index:
            self.index.remove([key])

    def _keys(self, notes: Notes | None) -> Iterator[str]:
        def unreadable(error: OSError) -> None:
            if Path(error.filename) != self.root or not isinstance(error, FileNotFoundError):
                _leave_out(unread(Path(error.filename), error), notes)

        for folder, folders, files in os.walk(self.root, onerror=unreadable):
            folders[:] = sorted(name for name in folders if self.everything or not is_ignored(name))
            for link in (Path(folder, name) for name in folders if self.everything and Path(folder, name).is_symlink()):
                _leave_out(ObjectUnread(f"{shown(link)} is a link to a folder; give that folder by itself"), notes)
            base = PurePosixPath(Path(folder).relative_to(self.root).as_posix())
            for name in sorted(files):
                if self.everything or not is_ignored(name):
                    yield (base / name).as_posix()

    def _entry(self, key: str, known: Entry | None) -> Entry | None:
        """The file as it is, hashed if it isn't known; None while it has not settled."""
        path = self.root / key
        if not self.everything and not key.isprintable() and any("\ud800" <= c <= "\udfff" for c in key):
            raise ObjectUnread(f"{shown(path)} has a name that is not UTF-8; rename it")
        status = stat_regular(path)
        if self.settle and time.time() - status.st_mtime < self.settle:
            return None
        if known is not None and known.state == state_of(status):
            return known
        with open_regular(path) as file:
            stored = self._hashed(file, key)
        return Entry(size=stored.size, state=stored.state, sha256=stored.sha256, modified=status.st_mtime)

    def _hashed(self, file: io.FileIO, key: str) -> StoredObject:
        status = os.fstat(file.fileno())
        sha256 = sha256_of(file, status.st_size)
        if sha256 is None:
            raise ObjectUnread(
                f"{shown(self.root / key)} was cut while it was read; the next ingest reads what it became"
            )
        return StoredObject(key, status.st_size, sha256, state_of(status))

    def _path(self, key: str) -> Path:
        if not self.everything:
            check_key(key, str(self.root))
        return self.root / key


def open_store(workspace: Workspace, config: Config, *, full: bool = False) -> ObjectStore:
    """The landing zone that `[ingest] landing` names. `full`: list all of it. Errors: ConfigError, ObjectError."""
    settings = config.ingest
    if settings.landing.startswith("s3://"):
        from flywheel.store.objects_s3 import open_landing

        return open_landing(workspace, settings, full=full)
    root = workspace.root / settings.landing
    return FolderStore(root, ObjectIndex(workspace.object_index, f"folder:{root}"), settings.settle_seconds)


def is_ignored(name: str) -> bool:
    """Whether a name, or a folder's, marks what isn't an object yet, or is the system's own."""
    return name.startswith(".") or name.endswith(_UNFINISHED) or name == "_temporary"


def check_key(key: str, place: str) -> None:
    """Errors: WorkspaceError for a key that leads out of the store or would never be listed."""
    pure = PurePosixPath(key)
    if pure.is_absolute() or not pure.parts or any(part == ".." or is_ignored(part) for part in pure.parts):
        raise WorkspaceError(f"{key!r} can't be a key: give a path below {place} without `..`, dot or .tmp names")


def _leave_out(error: ObjectUnread, notes: Notes | None) -> None:
    if notes is None:
        raise error
    notes.leave_out(error)
