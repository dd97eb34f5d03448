"""How a staged batch becomes a snapshot, so that a kill -9 anywhere loses nothing, doubles nothing, shows nothing half.

Delta has no commit over several tables. So, under the lease: (1) write a journal, `publishing.json`; (2) append each
table, in one Delta commit that carries the batch id as its transaction, skipped if the table has that id already;
(3) write the snapshot record and move HEAD; (4) rewrite `lake.duckdb`, drop the staged files, drop the journal.
Whoever takes the lease next finishes a journal that it finds before anything else. What is appended is worked out
against the *parent* snapshot, which no append changes, so finishing gives the rows that the first try would have given.

Which rows: a row whose key is published already is skipped. A trajectory that says what a published revision says,
in its content and in its head, is skipped with its steps and calls (an old export delivered again doesn't turn the
clock back); any other one becomes the next revision. Not covered: staging and judging (`lake.py`, `validate`), erasure.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)

import flywheel
from flywheel.ledger import Batch, Snapshot
from flywheel.records import canonical_json, content_id
from flywheel.store import artifacts, lake_views
from flywheel.store.lake_read import LakeReader, write_snapshot
from flywheel.store.lake_staged import SORT_MEMORY, bounded, parts_of, scan
from flywheel.store.tables import TABLES, Stamps, TableSpec, stamped, to_arrow

RETENTION = {
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.deletedFileRetentionDuration": "interval 3650 days",
}
# The log would repeat the smallest and largest text of every column, and erasure would have to rewrite history: so it
# counts ids (hashes) and revisions alone, by which views know what they may leave out. Parquet's footers go with files.
_TOLD = ("trajectory_id", "revision")
GROUP_BYTES = 24 << 20  # of a row group, uncompressed: a point lookup decompresses one group of each column
SAMPLE_ROWS = 2048  # by which a table's files are laid out
_TIME = {"outcome": "created_at", "span": "start_ns", "source_file": "ingested_at", "cluster_event": "happened_at"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What is being published: enough to finish it from the staged files alone."""

    batch_id: str
    parent_id: str | None
    state: str
    reason: str | None
    turn_id: str | None
    latest: bool = False  # name the latest version of every table: compaction's, the rows are the same

    @property
    def snapshot_id(self) -> str:
        """Of the inputs alone: the parent, and the batch on top of it."""
        return content_id("snapshot", self.parent_id, self.batch_id)


JOURNAL = "publishing.json"
"""The journal's name below the place, while a batch is being published."""


def publish_staged(
    reader: LakeReader, batch_id: str, state: str, reason: str | None, turn_id: str | None, latest: bool = False
) -> Snapshot:
    """Publish one staged batch on top of HEAD. Call it under the lease, after `roll_forward`."""
    head = reader.head()
    journal = Journal(
        batch_id=batch_id,
        parent_id=head.snapshot_id if head else None,
        state=state,
        reason=reason,
        turn_id=turn_id,
        latest=latest,
    )
    reader.location.keep_staged(reader.workspace.staging / batch_id)
    reader.location.write(JOURNAL, canonical_json(asdict(journal)).encode())
    return _finish(reader, journal)


def roll_forward(reader: LakeReader) -> None:
    """Finish what a killed publisher began. Call it under the lease, before anything else."""
    found = reader.location.read(JOURNAL)
    if found is not None:
        journal = msgspec.json.decode(found, type=Journal)
        reader.location.fetch_staged(reader.workspace.staging / journal.batch_id)
        _finish(reader, journal)


def _finish(reader: LakeReader, journal: Journal) -> Snapshot:
    head = reader.head()
    if head is None or head.snapshot_id != journal.snapshot_id:
        head = _append_all(reader, journal, head)
        write_snapshot(reader.location, head)
    lake_views.refresh(reader.workspace, reader.location, reader.head, reader.files)
    drop_staged(reader, journal.batch_id)
    reader.location.delete(JOURNAL)
    return head


def drop_staged(reader: LakeReader, batch_id: str) -> None:
    """Remove the staged files of a published batch, all at once for whoever looks."""
    folder = reader.workspace.staging / batch_id
    if folder.is_dir():
        shutil.rmtree(folder.rename(folder.with_name(f".{batch_id}.{os.urandom(4).hex()}")))
    reader.location.drop_staged(batch_id)


def writer_properties(spec: TableSpec, sample: pa.Table) -> WriterProperties:
    """How a table's files are written, by a sample of its rows.

    zstd; row groups of about GROUP_BYTES of what isn't NULL; a bloom filter on trajectory_id, by which rows are looked
    up; and no dictionary of what hardly repeats: delta-rs would write one, full, before it falls back to plain pages,
    and every scan would decompress it in vain.
    """
    held = [column for column in sample.columns if column.null_count < sample.num_rows]
    row_bytes = sum(column.nbytes for column in held) / max(sample.num_rows, 1)
    rows = int(min(max(GROUP_BYTES / max(row_bytes, 1.0), 128), 131_072))
    bloom = BloomFilterProperties(True, fpp=0.01, ndv=rows)
    columns = {
        name: ColumnProperties(
            dictionary_enabled=_repeats(sample[name]),
            bloom_filter_properties=bloom if name == "trajectory_id" else None,
        )
        for name in spec.schema.names
        if not pa.types.is_nested(sample[name].type)
    }
    return WriterProperties(compression="ZSTD", max_row_group_size=rows, column_properties=columns)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary of a whole row group's values may be shorter than the values, going by a sample of them.

    5,000 values in a group of 100,000 rows look two thirds distinct in the sample; times hardly repeat.
    """
    if pa.types.is_timestamp(column.type):
        return False
    n_values = len(column) - column.null_count
    n_distinct: int = pc.count_distinct(column, mode="only_valid").as_py()
    return bool(n_values == 0 or n_distinct < 0.95 * n_values)


def _append_all(reader: LakeReader, journal: Journal, parent: Snapshot | None) -> Snapshot:
    """Append the staged tables, the batch's own row, and the parent's row of `snapshot`; the snapshot that results."""
    folder = reader.workspace.staging / journal.batch_id
    manifest = artifacts.load(folder, verify=True)
    files = {table: parts_of(folder, table) for table in TABLES}
    staged = [table for table, found in files.items() if found]
    versions: dict[str, int] = json.loads(parent.table_versions) if parent else {}
    with bounded(reader.connect(journal.parent_id), folder, SORT_MEMORY) as con:
        con.execute("CREATE SCHEMA staged")
        for table in staged:
            con.execute(f"CREATE VIEW staged.{table} AS FROM {scan(files[table])}")
        con.register("own_batch", _batch_row(con, journal, manifest))
        if "trajectory" in staged:
            con.execute(_KEPT)
        con.execute("CREATE TABLE parent AS SELECT ?::VARCHAR AS snapshot_id", [journal.parent_id])
        for spec in TABLES.values():
            if spec.name in staged or spec.name in ("batch", "snapshot"):
                version = _append(reader, spec, con, _rows_sql(spec, staged), journal.batch_id)
                if version is not None:
                    versions[spec.name] = version
    if journal.latest:
        versions = {table: reader.table(table).version() for table in versions}
    return Snapshot(
        snapshot_id=journal.snapshot_id,
        parent_id=journal.parent_id,
        table_versions=canonical_json(versions),
        batches=(journal.batch_id,),
    )


def _batch_row(con: duckdb.DuckDBPyConnection, journal: Journal, manifest: artifacts.Manifest) -> pa.Table:
    rows = manifest.summary["rows"]
    sql = "SELECT sum(n_records)::BIGINT FROM staged.source_file"
    n_records = con.sql(sql).fetchall()[0][0] if "source_file" in rows else None
    batch = Batch(
        batch_id=journal.batch_id,
        state=journal.state,
        objects=tuple(manifest.inputs["objects"]),
        n_records=n_records,
        n_trajectories=rows.get("trajectory", 0),
        n_quarantined=rows.get("quarantine", 0),
        reason=journal.reason,
    )
    stamps = Stamps(
        batch_id=journal.batch_id,
        turn_id=journal.turn_id,
        created_at=datetime.now(UTC),
        code_version=flywheel.__version__,
    )
    return stamped("batch", to_arrow("batch", [batch]), stamps)


def _rows_sql(spec: TableSpec, staged: list[str]) -> str:
    """The rows of one table that the batch adds to its parent snapshot, in the order they're written in."""
    if spec.name == "snapshot":
        return "SELECT * FROM snapshot WHERE snapshot_id = (SELECT snapshot_id FROM parent)"
    if spec.name == "trajectory":
        return "SELECT * FROM kept ORDER BY started_at, trajectory_id"
    if spec.name in ("step", "tool_call"):  # in time, and each trajectory's rows together
        order = ", ".join(f"s.{key}" for key in spec.keys)
        return f"SELECT s.* FROM staged.{spec.name} s JOIN kept k USING (trajectory_id) ORDER BY k.started_at, {order}"
    same = " AND ".join(f"old.{key} IS NOT DISTINCT FROM s.{key}" for key in spec.keys)
    order = ", ".join([_TIME[spec.name]] if spec.name in _TIME else spec.keys)
    known = lake_views.base(spec.name)
    # One trace in two layouts gives the same span or blob twice in one batch.
    once = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(f's.{key}' for key in spec.keys)}) = 1"
    new = f"SELECT s.* FROM staged.{spec.name} s WHERE NOT EXISTS (SELECT 1 FROM {known} old WHERE {same}) {once}"
    if spec.name == "batch":
        return f"FROM own_batch UNION ALL BY NAME ({new})" if "batch" in staged else "FROM own_batch"
    return f"{new} ORDER BY {order}"


# What a revision says beside its content, but for where it stood and when it was; tools by their hash.
_PLACED = {"trajectory_id", "revision", "source_id", "source_record_ix", "tools", "content_sha256"}
_TIMED = {"started_at", "ended_at", "duration_ms", "time_quality"}
_SAID = [name for name in TABLES["trajectory"].columns if name not in _PLACED | _TIMED]
_KEPT = f"""
    CREATE TABLE kept AS
    WITH known AS (
        SELECT trajectory_id, max(revision) AS newest, list(content_sha256) AS contents FROM trajectory_all
        WHERE trajectory_id IN (SELECT trajectory_id FROM staged.trajectory) GROUP BY trajectory_id),
    again AS (
        SELECT trajectory_id FROM staged.trajectory t JOIN known k USING (trajectory_id)
        WHERE list_contains(k.contents, t.content_sha256)),
    said AS (
        SELECT trajectory_id, list((content_sha256, hash({", ".join(_SAID)}))) AS revisions FROM trajectory_all
        WHERE trajectory_id IN (SELECT trajectory_id FROM again) GROUP BY trajectory_id)
    SELECT t.* REPLACE (CAST(coalesce(k.newest + 1, 0) AS INTEGER) AS revision)
    FROM staged.trajectory t LEFT JOIN known k USING (trajectory_id) LEFT JOIN said s USING (trajectory_id)
    WHERE s.revisions IS NULL
    OR NOT list_contains(s.revisions, (t.content_sha256, hash({", ".join(f"t.{name}" for name in _SAID)})))"""


def _append(reader: LakeReader, spec: TableSpec, con: duckdb.DuckDBPyConnection, sql: str, batch_id: str) -> int | None:
    """Append the query's rows once per batch id; the Delta version that holds them, None if there are no rows."""
    batches = _batches(con, sql, spec.schema)
    first = next(batches, None)
    if first is None:
        return None
    table = reader.table(spec.name) if reader.has_table(spec.name) else create(reader, spec)
    if table.transaction_version(batch_id) is None:
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(spec.schema, chain([first], batches)),
            mode="append",
            writer_properties=writer_properties(spec, pa.Table.from_batches([first]).slice(0, SAMPLE_ROWS)),
            commit_properties=CommitProperties(app_transactions=[Transaction(app_id=batch_id, version=1)]),
        )
    version: int = table.version()
    return version


def create(reader: LakeReader, spec: TableSpec) -> DeltaTable:
    """An empty table in the lake's place."""
    options = dict(reader.location.options) if reader.location.options else None
    uri = reader.location.table(spec.name)
    counted = ",".join(name for name in ("batch_id", *_TOLD) if name in spec.schema.names)
    properties = {**RETENTION, "delta.dataSkippingStatsColumns": counted}
    return DeltaTable.create(uri, spec.schema, mode="ignore", configuration=properties, storage_options=options)


def _batches(con: duckdb.DuckDBPyConnection, sql: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Record batches small enough for 32-bit string offsets, cast to the table's own types."""
    for batch in con.sql(sql).to_arrow_reader(SAMPLE_ROWS):
        if batch.num_rows:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
