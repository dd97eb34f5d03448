"""Reading the lake: HEAD, snapshot records, the exact files of a snapshot, and SQL over them.

data/lake/<table>/              a Delta table; made by its first row
data/lake/snapshots/<id>.json   parent, batch, Delta version of each table; no times, so equal inputs give equal bytes
data/lake/HEAD                  the id of the newest snapshot; its atomic rename is the moment of publishing

Only what HEAD (or a snapshot asked for by id) names is ever seen: rows of a half-published batch are in no snapshot.
Not covered: writing (`lake_publish.py`), S3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from filelock import FileLock, Timeout

from flywheel.errors import LakeError
from flywheel.ledger import Snapshot
from flywheel.records import canonical_json
from flywheel.store import lake_views
from flywheel.store.artifacts import write_atomic
from flywheel.workspace import Workspace

_UNUSABLE = re.compile(r"[\[\]^|\\%?\x00-\x1f]")  # found by trying: delta-rs panics, or it and DuckDB lose the file


class LakeReader:
    """The published lake of a workspace, newest snapshot or any older one. Safe beside a running publisher."""

    def __init__(self, workspace: Workspace, *, lease_s: float = 300.0) -> None:
        """`lease_s`: how long to wait for another publisher. Errors: LakeError for a path that can't be opened."""
        bad = _UNUSABLE.search(str(workspace.lake))
        if bad:
            raise LakeError(f"{workspace.lake}: a lake can't lie under a path with {bad.group()!r}; rename it")
        self.workspace = workspace
        self._lease_s = lease_s
        self._files: dict[tuple[str, int], list[Path]] = {}  # a Delta version never changes, so neither does its list

    @contextmanager
    def lease(self) -> Iterator[None]:
        """The one lease under which the lake is written; a killed holder loses it with its process.

        Errors: LakeError if somebody else holds it for longer than `lease_s`.
        """
        lock = self._lock(self._lease_s)
        try:
            lock.acquire()
        except Timeout as error:
            raise LakeError(
                f"another process is publishing: {lock.lock_file} was locked for {self._lease_s:g} s; try again later"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _lock(self, wait_s: float) -> FileLock:
        self.workspace.lake.mkdir(parents=True, exist_ok=True)
        return FileLock(self.workspace.lake / "publisher.lock", timeout=wait_s)

    def head(self) -> Snapshot | None:
        """The newest published snapshot; None in a lake that never published."""
        path = self.workspace.lake / "HEAD"
        return self.snapshot(path.read_text(encoding="utf-8").strip()) if path.is_file() else None

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """The record of one snapshot. Errors: LakeError if there is none of that id, or it can't be read."""
        path = self.workspace.lake / "snapshots" / f"{snapshot_id}.json"
        if not path.is_file():
            raise LakeError(f"no snapshot {snapshot_id} in {self.workspace.lake}; `from snapshot` in SQL lists them")
        try:
            return msgspec.json.decode(path.read_bytes(), type=Snapshot)
        except msgspec.MsgspecError as error:
            raise LakeError(f"{path} is no snapshot record ({error}); restore it from a backup") from error

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot record there is, in no order."""
        return [self.snapshot(path.stem) for path in (self.workspace.lake / "snapshots").glob("snapshot-*.json")]

    def files(self, table: str, version: int) -> list[Path]:
        """The Parquet files of one Delta version. Errors: LakeError if the version is gone."""
        key = (table, version)
        if key not in self._files:
            folder = self.workspace.lake / table
            try:
                uris = DeltaTable(folder, version=version).file_uris()
            except DeltaError as error:
                raise LakeError(f"version {version} of {folder} can't be opened: {error}") from error
            # Only the names: delta-rs percent-encodes the folders before them. Tables aren't partitioned.
            self._files[key] = sorted(folder / uri.rsplit("/", 1)[1] for uri in uris)
        return self._files[key]

    def published(self, batch_id: str) -> Snapshot | None:
        """The snapshot that a batch was published in; None if it wasn't, or not completely yet."""
        folder = self.workspace.lake / "batch"
        if not DeltaTable.is_deltatable(str(folder)) or DeltaTable(folder).transaction_version(batch_id) is None:
            return None
        rows = self.query("SELECT snapshot_id FROM snapshot WHERE list_contains(batches, ?)", [batch_id])
        return self.snapshot(rows[0]["snapshot_id"]) if rows else None

    def recorded_objects(self) -> set[str]:
        """sha256 of every landing object that an accepted (or forced) batch was made from."""
        rows = self.query("SELECT DISTINCT unnest(objects) AS sha FROM batch_all WHERE state IN ('accepted', 'forced')")
        return {row["sha"] for row in rows}

    def connect(self, snapshot: str | None = None) -> duckdb.DuckDBPyConnection:
        """A private in-memory DuckDB with one view per table over a snapshot's files (default: the newest).

        Brings `lake.duckdb` up to date on the way, if it's of another place or snapshot. Errors: LakeError for an
        unknown snapshot.
        """
        record = self.snapshot(snapshot) if snapshot else self.head()
        if record and not snapshot:
            self._refresh(record)
        con = duckdb.connect()
        con.execute("SET TimeZone = 'UTC'")
        lake_views.create_views(con, record, self.files)
        return con

    def query(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] | None = None, snapshot: str | None = None
    ) -> list[dict[str, Any]]:
        """The rows of one SQL statement, each as a dictionary by column name; of a name used twice, `name_1` too.

        Errors: LakeError with DuckDB's sentence.
        """
        with self.connect(snapshot) as con:
            try:
                found = con.execute(sql, params)
                names = _distinct([column[0] for column in found.description or ()])
                return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            except duckdb.Error as error:
                sentence = " ".join(str(error).split("\n\nLINE ")[0].split())
                raise LakeError(f"the query failed: {sentence}") from error

    def _refresh(self, head: Snapshot) -> None:
        if lake_views.is_fresh(self.workspace, head) or not os.access(self.workspace.data, os.W_OK):
            return
        try:
            with self._lock(wait_s=0):
                lake_views.refresh(self.workspace, head, self.files)
        except Timeout:
            return  # whoever holds the lease is publishing, and writes the file itself when done


def _distinct(names: Sequence[str]) -> list[str]:
    """The names as DuckDB itself makes them distinct in a subquery: a join's second `id` is `id_1`."""
    found: list[str] = []
    for name in names:
        free = (f"{name}_{n}" if n else name for n in count())
        found.append(next(candidate for candidate in free if candidate not in found))
    return found


def write_snapshot(workspace: Workspace, snapshot: Snapshot) -> None:
    """Write the record, then move HEAD to it: from then on the snapshot is published."""
    path = workspace.lake / "snapshots" / f"{snapshot.snapshot_id}.json"
    write_atomic(path, (canonical_json(asdict(snapshot)) + "\n").encode())
    write_atomic(workspace.lake / "HEAD", (snapshot.snapshot_id + "\n").encode())
