"""Erasure: the rows of one user leave every version of every table, so that no snapshot, old or new, shows them.

First the trajectories are found: the user's own, those of the same session that name nobody, their subagents and
continuations, and the rollouts that repeat their prompts. Then, under the lease and behind a journal (a killed erasure
is finished by the next): a Delta delete in each table, so that its newest version is clean; every older Parquet file
that still holds such rows is rewritten in place, under its name, so that older snapshots stay readable without them;
those snapshots are marked `not_reproducible`; a tombstone is published as a snapshot of its own.

Rows that say what happened without saying what was said (curriculum_row, run, decision) stay.
Not covered: landing objects, staged batches and curricula (`flywheel/erase.py`), backups, copies made by others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction

from flywheel.ledger import Snapshot, Tombstone
from flywheel.records import canonical_json, content_id
from flywheel.store import lake_publish, lake_views
from flywheel.store.lake import Lake
from flywheel.store.lake_read import write_record
from flywheel.store.tables import TABLES

JOURNAL = "erasing.json"
_BY_TRAJECTORY = ("trajectory", "step", "tool_call", "verdict", "failure")

# Everything that repeats what the user said, however far from where it was said.
_FOUND = """
    WITH RECURSIVE own AS (
        SELECT trajectory_id, session_id FROM trajectory_all WHERE user_id = $user),
    named AS (
        SELECT trajectory_id FROM own
        UNION SELECT t.trajectory_id FROM trajectory_all t SEMI JOIN own USING (session_id) WHERE t.user_id IS NULL),
    every AS (
        SELECT trajectory_id FROM named
        UNION
        SELECT t.trajectory_id FROM trajectory_all t JOIN every e ON t.parent_trajectory_id = e.trajectory_id
            OR t.continued_from = e.trajectory_id
            OR (t.format = 'rollout' AND contains(t.metadata, e.trajectory_id)))
    SELECT DISTINCT trajectory_id FROM every ORDER BY trajectory_id"""

# Blobs that only the erased trajectories refer to: a reference is the sha256 in one of their texts.
_BLOBS = """
    WITH texts AS (
        SELECT trajectory_id, concat_ws(' ', content, parts, raw, extra) AS text FROM step_all
        UNION ALL SELECT trajectory_id, concat_ws(' ', args, args_raw, result_text, result_parts, extra)
            FROM tool_call_all
        UNION ALL SELECT trajectory_id, concat_ws(' ', tools, task, metadata, extra) FROM trajectory_all
        UNION ALL SELECT trajectory_id, concat_ws(' ', attributes, events) FROM span),
    used AS (
        SELECT b.sha256, bool_and(list_contains($ids, t.trajectory_id)) AS only_here
        FROM blob b JOIN texts t ON contains(t.text, b.sha256) GROUP BY b.sha256)
    SELECT sha256 FROM used WHERE only_here ORDER BY sha256"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an erasure removes, named by ids alone: this is its journal."""

    user_hash: str
    erased_at: str  # ISO
    trajectories: tuple[str, ...]
    native_ids: tuple[str, ...]  # what loose outcomes and spans call them
    blobs: tuple[str, ...]
    clusters: tuple[str, ...]  # whose failures are all erased: their titles quote the errors
    quarantined: tuple[tuple[str, int], ...]  # source and byte offset of refused records that name the user
    sources: tuple[str, ...]  # landing objects that the trajectories came from
    unread: tuple[str, ...] = ()  # and those of them that only a staged batch knows
    objects: tuple[str, ...] = ()  # sha256 of the landing objects that stand in their place
    curricula: tuple[str, ...] = ()
    curriculum_rows: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    policy_versions: tuple[str, ...] = ()

    @property
    def batch_id(self) -> str:
        """The batch that publishes the tombstone: of what is erased, so that a second call is the same one."""
        return content_id("erase", self.user_hash, list(self.trajectories), list(map(list, self.quarantined)))


def find(lake: Lake, user_hash: str, erased_at: datetime) -> Found:
    """What the published lake holds of the user and what used it. Nothing is changed."""
    with lake.connect() as con:
        ids = [row[0] for row in con.execute(_FOUND, {"user": user_hash}).fetchall()]
    return with_consequences(lake, user_hash, erased_at, ids)


def with_consequences(lake: Lake, user_hash: str, erased_at: datetime, ids: Sequence[str]) -> Found:
    """Everything else that goes with those trajectories, and what was made from them."""
    with lake.connect() as con:

        def column(sql: str, **parameters: object) -> tuple[str, ...]:
            rows = con.execute(sql, {"ids": ids, **parameters}).fetchall()
            return tuple(sorted({row[0] for row in rows if row[0] is not None}))

        curricula = column("SELECT curriculum_id FROM curriculum_row WHERE list_has_any(parents, $ids)")
        runs = column("SELECT run_id FROM run WHERE list_contains($c, curriculum_id) AND $ids IS NOT NULL", c=curricula)
        return Found(
            user_hash=user_hash,
            erased_at=erased_at.isoformat(),
            trajectories=tuple(ids),
            native_ids=column(
                "SELECT unnest([native_id, trace_id, conversation_id, session_id]) FROM trajectory_all "
                "WHERE list_contains($ids, trajectory_id) "
                "UNION SELECT native_target_id FROM late_outcome WHERE list_contains($ids, trajectory_id)"
            ),
            blobs=column(_BLOBS),
            clusters=column(
                "SELECT cluster_id FROM failure WHERE cluster_id IS NOT NULL GROUP BY cluster_id "
                "HAVING bool_and(list_contains($ids, trajectory_id))"
            ),
            quarantined=(),
            sources=column("SELECT source_id FROM trajectory_all WHERE list_contains($ids, trajectory_id)"),
            curricula=curricula,
            curriculum_rows=column("SELECT row_id FROM curriculum_row WHERE list_has_any(parents, $ids)"),
            runs=runs,
            policy_versions=column(
                "SELECT version FROM policy_version WHERE list_contains($r, run_id) AND $ids IS NOT NULL", r=runs
            ),
        )


def begun(lake: Lake) -> Found | None:
    """The erasure that a killed process left half-way."""
    journal = lake.location.read(JOURNAL)
    return None if journal is None else msgspec.json.decode(journal, type=Found)


def begin(lake: Lake, found: Found) -> None:
    """Write the journal: from here on the erasure will be finished, by this process or by the next."""
    lake.location.write(JOURNAL, canonical_json(asdict(found)).encode())


def erase(lake: Lake, found: Found) -> tuple[Snapshot, dict[str, int]]:
    """Remove the rows everywhere and publish the tombstone; the new snapshot, and rows removed by table.

    Idempotent. Errors: LakeError if another publisher holds the lease for too long.
    """
    removed: dict[str, int] = {}
    with lake.lease():
        lake_publish.roll_forward(lake)
        predicates = dict(_predicates(found))
        for table, predicate in predicates.items():
            if lake.has_table(table):
                removed[table] = _delete(lake.table(table), predicate, found.batch_id)
        touched = [path for table, predicate in predicates.items() for path in _rewrite(lake, table, predicate)]
        _mark(lake, set(touched))
        lake.stage(found.batch_id, {"tombstone": [_tombstone(found)]}, objects=found.objects, judged=False)
        if lake.published(found.batch_id) is None:
            reason = f"erasure of {found.user_hash}"
            lake_publish.publish_staged(lake, found.batch_id, "accepted", reason, lake.turn_id, latest=True)
        head = lake.head()
        assert head is not None, "a lake that just published has a head"
        lake_views.refresh(lake.workspace, lake.location, lake.head, lake.files)
    return head, {table: n for table, n in removed.items() if n}


def finish(lake: Lake) -> None:
    """Drop the journal: everything of the erasure is done."""
    lake.location.delete(JOURNAL)


def _tombstone(found: Found) -> Tombstone:
    return Tombstone(
        user_hash=found.user_hash,
        erased_at=datetime.fromisoformat(found.erased_at),
        trajectories=len(found.trajectories),
        curricula=found.curricula,
        runs=found.runs,
        policy_versions=found.policy_versions,
    )


def _predicates(found: Found) -> Iterator[tuple[str, str]]:
    """The condition that rows of a table must go, in SQL that both DuckDB and delta-rs read."""
    ids = _in(found.trajectories)
    if ids:
        yield from ((table, f"trajectory_id IN {ids}") for table in _BY_TRAJECTORY)
        natives = _in(found.native_ids)
        more = f" OR native_target_id IN {natives} OR session_id IN {natives}" if natives else ""
        yield "outcome", f"trajectory_id IN {ids}{more}"
        more = f" OR trace_id IN {natives}" if natives else ""
        yield "span", f"trajectory_id IN {ids}{more}"
    for table, column, values in (
        ("blob", "sha256", found.blobs),
        ("cluster", "cluster_id", found.clusters),
        ("cluster_event", "cluster_id", found.clusters),
    ):
        if values:
            yield table, f"{column} IN {_in(values)}"
    if found.quarantined:
        places = (f"(source_id = {_text(source)} AND byte_offset = {at})" for source, at in found.quarantined)
        yield "quarantine", " OR ".join(places)


def _in(values: Sequence[str]) -> str:
    return f"({', '.join(map(_text, values))})" if values else ""


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _delete(table: DeltaTable, predicate: str, batch_id: str) -> int:
    """Delete from the newest version, once per erasure; how many rows went."""
    if table.transaction_version(batch_id) is not None:
        return 0
    properties = CommitProperties(app_transactions=[Transaction(app_id=batch_id, version=1)])
    metrics: Mapping[str, int] = table.delete(predicate, commit_properties=properties)
    return int(metrics.get("num_deleted_rows") or 0)


def _rewrite(lake: Lake, table: str, predicate: str) -> Iterator[str]:
    """Rewrite every Parquet file of the table that still has such rows, under its name; the files rewritten."""
    names = [name for name in lake.location.names(table) if name.endswith(".parquet")]
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        lake.location.attach(con)
        for name in names:
            path = f"{lake.location.table(table)}/{name.rsplit('/', 1)[1]}"
            source = f"read_parquet([{lake_views.quoted(path)}], hive_partitioning=false)"
            ((rows,),) = con.execute(f"SELECT count(*) FROM {source} WHERE {predicate}").fetchall()
            if not rows:
                continue
            kept = con.sql(f"SELECT * FROM {source} WHERE NOT coalesce({predicate}, false)").to_arrow_table()
            buffer = pa.BufferOutputStream()
            pq.write_table(kept.cast(TABLES[table].schema), buffer, compression="zstd")
            lake.location.write(name, buffer.getvalue().to_pybytes())
            yield path


def _mark(lake: Lake, touched: set[str]) -> None:
    """Say of every snapshot that named a rewritten file that its rows can't be had again."""
    stale = []
    for snapshot in lake.snapshots():
        versions = msgspec.json.decode(snapshot.table_versions, type=dict[str, int])
        files = {path for table, version in versions.items() for path in lake.files(table, version)}
        if snapshot.state == "live" and files & touched:
            marked = replace(snapshot, state="not_reproducible")
            write_record(lake.location, marked)
            stale.append(snapshot.snapshot_id)
    if stale and lake.has_table("snapshot"):
        lake.table("snapshot").update(updates={"state": "'not_reproducible'"}, predicate=f"snapshot_id IN {_in(stale)}")
