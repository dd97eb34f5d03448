"""Where the lake lies: its tables and its few small control files, in a folder or below an `s3://` prefix.

`[lake] uri` says where. Everything else of the lake goes through a `Place` and does not know the difference: delta-rs
opens `table(name)`, DuckDB reads the Parquet files that it names, control files are read and written whole, and one
lease lets one publisher write. Staged batches stay on the machine that made them until they are published; then a
copy goes to the place, so that any machine can finish what a killed one began.

Not covered: what the control files say (`lake_read.py`, `lake_publish.py`), S3 itself (`objects_s3.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
from filelock import FileLock, Timeout

from flywheel.config import load_config
from flywheel.errors import LakeError
from flywheel.store.artifacts import write_atomic
from flywheel.workspace import Workspace

_UNUSABLE = re.compile(r"[\[\]^|\\%?\x00-\x1f]")  # found by trying: delta-rs panics, or it and DuckDB lose the file
S3 = "s3://"


class Place(Protocol):
    """One lake's place."""

    @property
    def uri(self) -> str:
        """The place's own address, the same from wherever one looks."""
        ...

    @property
    def options(self) -> Mapping[str, str] | None:
        """What delta-rs needs to open a table here."""
        ...

    def table(self, name: str) -> str:
        """The address of a table, for delta-rs."""
        ...

    def read(self, name: str) -> bytes | None:
        """A control file; None if there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a control file whole. Errors: LakeError if another publisher wrote it since this one read it."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file below the place; a no-op if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """The files directly below a folder of the place, as names from the place's root, in order."""
        ...

    def lease(self, wait_s: float) -> AbstractContextManager[None]:
        """The one lease under which the lake is written. Errors: LakeError if it can't be had in that time."""
        ...

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let a DuckDB connection read the place's files."""
        ...

    def keep_staged(self, folder: Path) -> None:
        """Keep a copy of a staged batch where every publisher can find it."""
        ...

    def fetch_staged(self, folder: Path) -> None:
        """Bring a kept batch to this machine, if it isn't here."""
        ...

    def drop_staged(self, batch_id: str) -> None:
        """Forget the kept copy of a batch."""
        ...


def place_of(workspace: Workspace) -> Place:
    """The place that `[lake] uri` names. Errors: LakeError for a path that can't be opened, ConfigError."""
    section = load_config(workspace.config_file).lake
    if section.uri.startswith(S3):
        from flywheel.store.lake_s3 import BucketPlace

        return BucketPlace.open(section.uri, section.endpoint)
    return FolderPlace(workspace.root / section.uri)


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A lake in a local folder."""

    root: Path
    options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        bad = _UNUSABLE.search(str(self.root))
        if bad:
            raise LakeError(f"{self.root}: a lake can't lie under a path with {bad.group()!r}; rename it")

    @property
    def uri(self) -> str:
        return str(self.root.resolve())

    def table(self, name: str) -> str:
        return str(self.root / name)

    def read(self, name: str) -> bytes | None:
        path = self.root / name
        return path.read_bytes() if path.is_file() else None

    def write(self, name: str, data: bytes) -> None:
        write_atomic(self.root / name, data)

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        return sorted(p.relative_to(self.root).as_posix() for p in (self.root / folder).glob("*") if p.is_file())

    @contextmanager
    def lease(self, wait_s: float) -> Iterator[None]:
        """A lock file: a killed holder loses it with its process."""
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.root / "publisher.lock", timeout=wait_s)
        try:
            lock.acquire()
        except Timeout as error:
            raise LakeError(
                f"another process is publishing: {lock.lock_file} was locked for {wait_s:g} s; try again later"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """DuckDB reads folders by itself."""

    def keep_staged(self, folder: Path) -> None:
        """The staged batch lies beside the lake already."""

    def fetch_staged(self, folder: Path) -> None:
        """The staged batch lies beside the lake already."""

    def drop_staged(self, batch_id: str) -> None:
        """There is no copy."""
