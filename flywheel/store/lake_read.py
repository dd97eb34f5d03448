"""Reading the lake: HEAD, snapshot records, the exact files of a snapshot, and SQL over them.

<lake>/<table>/              a Delta table; made by its first row
<lake>/snapshots/<id>.json   parent, batch, Delta version of each table; no times, so equal inputs give equal bytes
<lake>/HEAD                  the id of the newest snapshot; replacing it, at once, is the moment of publishing

<lake> is a folder or an `s3://` prefix (`lake_place.py`).
Only what HEAD (or a snapshot asked for by id) names is ever seen: rows of a half-published batch are in no snapshot.
Not covered: writing (`lake_publish.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from filelock import Timeout

from flywheel.errors import LakeError
from flywheel.ledger import Snapshot
from flywheel.records import canonical_json
from flywheel.store import lake_views
from flywheel.store.lake_late import LOOSE_BY
from flywheel.store.lake_place import Place, place_of
from flywheel.workspace import Workspace

SNAPSHOTS = "snapshots"


class LakeReader:
    """The published lake of a workspace, newest snapshot or any older one. Safe beside a running publisher."""

    def __init__(self, workspace: Workspace, *, lease_s: float = 300.0) -> None:
        """`lease_s`: how long to wait for another publisher. Errors: LakeError for a path that can't be opened."""
        self.workspace = workspace
        self.location: Place = place_of(workspace)
        self._lease_s = lease_s
        # A Delta version never changes, so neither does its list.
        self._files: dict[tuple[str, int], list[tuple[str, bool]]] = {}

    @contextmanager
    def lease(self) -> Iterator[None]:
        """The one lease under which the lake is written; a killed holder loses it with its process.

        Errors: LakeError if somebody else holds it for longer than `lease_s`.
        """
        with self.location.lease(self._lease_s):
            yield

    def head(self) -> Snapshot | None:
        """The newest published snapshot; None in a lake that never published."""
        found = self.location.read("HEAD")
        return None if found is None else self.snapshot(found.decode().strip())

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """The record of one snapshot. Errors: LakeError if there is none of that id, or it can't be read."""
        name = snapshot_file(snapshot_id)
        found = self.location.read(name)
        if found is None:
            raise LakeError(f"no snapshot {snapshot_id} in {self.location.uri}; `from snapshot` in SQL lists them")
        try:
            return msgspec.json.decode(found, type=Snapshot)
        except msgspec.MsgspecError as error:
            where = f"{self.location.uri}/{name}"
            raise LakeError(f"{where} is no snapshot record ({error}); restore it from a backup") from error

    def snapshots(self) -> list[Snapshot]:
        """Every snapshot record there is, in no order."""
        names = (name.rsplit("/", 1)[1].removesuffix(".json") for name in self.location.names(SNAPSHOTS))
        return [self.snapshot(name) for name in names if name.startswith("snapshot-")]

    def has_table(self, table: str) -> bool:
        """Whether a table has had rows yet."""
        found: bool = DeltaTable.is_deltatable(self.location.table(table), self._options)
        return found

    def table(self, table: str, version: int | None = None) -> DeltaTable:
        """A table that has had rows, as delta-rs opens it. Errors: LakeError if the version is gone."""
        try:
            return DeltaTable(self.location.table(table), version=version, storage_options=self._options)
        except DeltaError as error:
            raise LakeError(f"version {version} of {self.location.table(table)} can't be opened: {error}") from error

    @property
    def _options(self) -> dict[str, str] | None:
        return dict(self.location.options) if self.location.options else None

    def files(self, table: str, version: int, special: bool = False) -> list[str]:
        """The Parquet files of one Delta version; `special`: those that may have rows which the views treat apart.

        Those are outcomes without a trajectory and revised trajectories. Errors: LakeError if the version is gone.
        """
        key = (table, version)
        if key not in self._files:
            self._files[key] = _listed(self.table(table, version), self.location.table(table))
        return [path for path, is_special in self._files[key] if is_special or not special]

    def published(self, batch_id: str) -> Snapshot | None:
        """The snapshot that a batch was published in; None if it wasn't, or not completely yet."""
        if not self.has_table("batch") or self.table("batch").transaction_version(batch_id) is None:
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
        self.location.attach(con)
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
        if lake_views.is_fresh(self.workspace, self.location, head) or not os.access(self.workspace.data, os.W_OK):
            return
        try:
            lake_views.refresh(self.workspace, self.location, self.head, self.files, wait_s=0)
        except Timeout:
            return  # somebody else is writing it


def _listed(table: DeltaTable, folder: str) -> list[tuple[str, bool]]:
    """The files of a table and whether one may have special rows (see `files`), by the statistics in Delta's log.

    Only the names: delta-rs percent-encodes the folders before them. Tables aren't partitioned.
    """
    added = pa.table(table.get_add_actions(flatten=True)).to_pydict()
    unknown = [None] * len(added["path"])
    told = added.get("max.revision") or added.get(f"null_count.{LOOSE_BY}") or unknown
    return sorted((f"{folder}/{path.rsplit('/', 1)[-1]}", n != 0) for path, n in zip(added["path"], told, strict=True))


def _distinct(names: Sequence[str]) -> list[str]:
    """The names as DuckDB itself makes them distinct in a subquery: a join's second `id` is `id_1`."""
    found: list[str] = []
    for name in names:
        free = (f"{name}_{n}" if n else name for n in count())
        found.append(next(candidate for candidate in free if candidate not in found))
    return found


def snapshot_file(snapshot_id: str) -> str:
    """The name of a snapshot's record below the place."""
    return f"{SNAPSHOTS}/{snapshot_id}.json"


def write_record(place: Place, snapshot: Snapshot) -> None:
    """Write a snapshot's record. No times in it, so equal inputs give equal bytes."""
    place.write(snapshot_file(snapshot.snapshot_id), (canonical_json(asdict(snapshot)) + "\n").encode())


def write_snapshot(place: Place, snapshot: Snapshot) -> None:
    """Write the record, then move HEAD to it: from then on the snapshot is published."""
    write_record(place, snapshot)
    place.write("HEAD", (snapshot.snapshot_id + "\n").encode())
