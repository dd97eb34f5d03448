"""What is known of the objects of a store since the last listing: a local SQLite file that may be lost without harm.

A key with its state (an ETag, or times and inode) and the sha256 that was taken of it, so that nothing is hashed twice;
and a few marks of the listing itself. It's a cache: without it everything is listed and hashed once more, and a file
that is no database (a crash, a full disk) is thrown away.

Not covered: what is in the lake (`Lake.recorded_objects` knows); two stores of one name (the name holds the address).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from flywheel.errors import ObjectError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
    store TEXT, key TEXT, size INTEGER, state TEXT, sha256 TEXT, modified REAL, PRIMARY KEY (store, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (store TEXT, name TEXT, value TEXT, PRIMARY KEY (store, name)) WITHOUT ROWID;
"""
_BROKEN = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_WAIT = 60.0  # seconds for another process to finish its write


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object as it was hashed."""

    size: int
    state: str
    sha256: str
    modified: float  # seconds since 1970


@dataclass(frozen=True, slots=True)
class ObjectIndex:
    """The entries of one store in the file."""

    path: Path
    store: str  # its address: the folder, or endpoint, bucket and prefix

    def entries(self) -> dict[str, Entry]:
        """Every entry by key."""
        with self._database() as database:
            rows = database.execute(
                "SELECT key, size, state, sha256, modified FROM object WHERE store = ?", (self.store,)
            )
            return {
                _text(key): Entry(size=size, state=state, sha256=sha256, modified=modified)
                for key, size, state, sha256, modified in rows
            }

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Add entries, or put them in the place of older ones."""
        if not entries:
            return
        rows = [(self.store, _bytes(k), e.size, e.state, e.sha256, e.modified) for k, e in entries.items()]
        with self._database() as database:
            database.executemany("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?, ?)", rows)

    def remove(self, keys: Sequence[str]) -> None:
        """Forget objects that are gone."""
        rows = [(self.store, _bytes(key)) for key in keys]
        if rows:
            with self._database() as database:
                database.executemany("DELETE FROM object WHERE store = ? AND key = ?", rows)

    def replace(self, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> None:
        """Write what changed from one state of the whole store to the next."""
        self.add({key: entry for key, entry in after.items() if before.get(key) != entry})
        self.remove([key for key in before if key not in after])

    def marks(self) -> dict[str, str]:
        """What was noted about the listing itself."""
        with self._database() as database:
            return dict(database.execute("SELECT name, value FROM mark WHERE store = ?", (self.store,)))

    def set_marks(self, marks: Mapping[str, str]) -> None:
        """Note something about the listing."""
        with self._database() as database:
            rows = [(self.store, name, value) for name, value in marks.items()]
            database.executemany("INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", rows)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=_WAIT)) as database:
            try:
                with database:
                    if not database.execute("SELECT 1 FROM sqlite_master").fetchone():
                        database.executescript(_SCHEMA)
                    yield database
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorname not in _BROKEN:
                    raise ObjectError(
                        f"{self.path}, which remembers what was hashed, can't be used ({error}); see to its disk and "
                        f"permissions, or delete it, then run the same command again"
                    ) from error
                self.path.unlink(missing_ok=True)
                raise ObjectError(
                    f"{self.path}, which remembers what was hashed, was damaged and is thrown away; run the same "
                    f"command again, everything is listed and hashed once more"
                ) from error


def _bytes(key: str) -> bytes:
    """Names of files need not be text."""
    return key.encode("utf-8", "surrogateescape")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
