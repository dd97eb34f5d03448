"""What the lake holds of trajectories by id: their newest revision as fragments, for parts that arrive later to join.

    with Known(lake) as known: for key, fragment in known.of(keys): ...

One narrow query over `trajectory_id` tells which of the keys are there at all; none is asked of an empty lake. Rows
come in the order of their keys, so that one trajectory is held at a time. Texts and media that were put out of line
are back in their places. A trajectory that was made from spans comes with the spans of its subagents and without its
steps: those are made again.

Not covered: batches that are staged and not published yet; joining (`ingest_rejoin.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import duckdb
import pyarrow as pa
from msgspec.structs import replace

from flywheel.formats.finish import FINISHERS
from flywheel.records import Fragment, Trajectory
from flywheel.store.lake_read import LakeReader
from flywheel.store.lake_staged import bounded
from flywheel.store.tables import TABLES, from_arrow
from flywheel.trajectory.outofline import internalise

_MEMORY = "96MB"  # of DuckDB's own, beside fragments that wait
_ROWS = 256  # of a table that are records at a time
_BLOB = re.compile(r'(?:"blob":"|\[blob )([0-9a-f]{64})')
_HEADS = """
    CREATE OR REPLACE TABLE head AS SELECT * FROM trajectory_all
    WHERE trajectory_id IN (SELECT trajectory_id FROM there)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY revision DESC) = 1"""
# Subagents of traces, however deep, of any revision: which spans are theirs may have changed since.
_FAMILY = """
    CREATE OR REPLACE TABLE family AS
    WITH RECURSIVE family AS (
        SELECT trajectory_id AS key, trajectory_id FROM head WHERE list_contains($formats, format)
        UNION
        SELECT f.key, t.trajectory_id FROM trajectory_all t JOIN family f ON t.parent_trajectory_id = f.trajectory_id
        WHERE list_contains($formats, t.format))
    SELECT * FROM family"""
_SPANS = """
    CREATE OR REPLACE TABLE held AS
    SELECT f.key, s.* FROM span s JOIN family f ON f.trajectory_id = s.trajectory_id"""
# By key; what else orders the rows of a key.
_ROWS_OF: Mapping[str, str] = {
    "trajectory": "SELECT trajectory_id AS key, * FROM head ORDER BY key",
    "step": "SELECT h.key, s.* FROM step_all s JOIN made h ON h.key = s.trajectory_id AND h.batch_id = s.batch_id"
    " ORDER BY key, step_ix",
    "tool_call": "SELECT h.key, s.* FROM tool_call_all s"
    " JOIN made h ON h.key = s.trajectory_id AND h.batch_id = s.batch_id ORDER BY key, step_ix, call_ix",
    "outcome": "SELECT o.trajectory_id AS key, o.* FROM outcome_all o"
    " WHERE trajectory_id IN (SELECT trajectory_id FROM head) ORDER BY key, created_at, outcome_id",
    "span": "SELECT * FROM held ORDER BY key, start_ns, span_id, name, attributes",
}


class Known:
    """Looks up trajectories in the newest snapshot of a lake; in the same one from the first question to the last."""

    def __init__(self, lake: LakeReader) -> None:
        self._lake = lake
        self._con: duckdb.DuckDBPyConnection | None = None
        self._open = ExitStack()

    def __enter__(self) -> Known:
        head = self._lake.head()
        if head is not None and "trajectory" in head.table_versions:
            con = self._lake.connect(head.snapshot_id)
            self._con = self._open.enter_context(bounded(con, self._lake.workspace.staging / "known", _MEMORY))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be found: nothing was published yet."""
        return self._con is None

    def of(self, keys: Sequence[str]) -> Iterator[tuple[str, Fragment]]:
        """(key, what is known) of those keys that the lake has, in the order of the keys. Read it to its end."""
        if self._con is None or not self._find(keys):
            return
        con = self._con
        con.execute(_HEADS)
        con.execute(_FAMILY, {"formats": sorted(FINISHERS)})
        con.execute(_SPANS)
        con.execute(
            "CREATE OR REPLACE TABLE made AS SELECT trajectory_id AS key, batch_id FROM head"
            " ANTI JOIN held ON held.key = head.trajectory_id"
        )
        rows = {table: _Rows(con, table) for table in _ROWS_OF}
        for key, (head,) in rows["trajectory"].by_key():
            yield key, self._in_place(_fragment(key, head, rows))

    def _find(self, keys: Sequence[str]) -> bool:
        """Put those of the keys that the lake has into the table `there`; whether there are any."""
        assert self._con is not None
        self._con.register("wanted", pa.table({"key": pa.array(sorted(set(keys)), pa.string())}))
        self._con.execute(
            "CREATE OR REPLACE TABLE there AS SELECT DISTINCT trajectory_id FROM trajectory_all"
            " WHERE trajectory_id IN (SELECT key FROM wanted)"
        )
        self._con.unregister("wanted")
        return bool(self._con.execute("SELECT count(*) FROM there").fetchall() != [(0,)])

    def _in_place(self, fragment: Fragment) -> Fragment:
        """The fragment with what was put out of line back in its place."""
        assert self._con is not None
        found = {sha256 for text in _texts(fragment) for sha256 in _BLOB.findall(text)}
        blobs: dict[str, bytes] = {}
        while found:
            sql = "SELECT sha256, data FROM blob WHERE list_contains($found, sha256) AND data IS NOT NULL"
            more = dict(self._con.cursor().execute(sql, {"found": sorted(found)}).fetchall())
            blobs |= more
            # A column that was too long as a whole may refer to others inside it.
            inner = {sha256 for data in more.values() for sha256 in _BLOB.findall(data.decode("utf-8", "replace"))}
            found = inner - blobs.keys()
        return internalise(fragment, blobs) if blobs else fragment


class _Rows:
    """The rows of one table, key by key, a few of them at a time."""

    def __init__(self, con: duckdb.DuckDBPyConnection, table: str) -> None:
        self._found = con.cursor().sql(_ROWS_OF[table]).to_arrow_reader(_ROWS)
        self._table = table
        self._ahead = self._each()
        self._next = next(self._ahead, None)

    def _each(self) -> Iterator[tuple[str, Any]]:
        columns = TABLES[self._table].columns
        for batch in self._found:
            data = pa.Table.from_batches([batch])
            yield from zip(data.column("key").to_pylist(), from_arrow(self._table, data.select(columns)), strict=True)

    def by_key(self) -> Iterator[tuple[str, list[Any]]]:
        """All rows, one key after the other."""
        while self._next is not None:
            key = self._next[0]
            yield key, self.take(key)

    def take(self, key: str) -> list[Any]:
        """The rows of a key, the one that comes next in order, if there are any."""
        rows = []
        while self._next is not None and self._next[0] == key:
            rows.append(self._next[1])
            self._next = next(self._ahead, None)
        return rows


def _fragment(key: str, head: Trajectory, rows: Mapping[str, _Rows]) -> Fragment:
    return Fragment(
        key=key,
        record_ix=head.source_record_ix,
        trajectory=replace(head, revision=0),
        steps=tuple(rows["step"].take(key)),
        tool_calls=tuple(rows["tool_call"].take(key)),
        outcomes=tuple(rows["outcome"].take(key)),
        spans=tuple(rows["span"].take(key)),
    )


def _texts(fragment: Fragment) -> Iterator[str]:
    rows: Iterable[Any] = (
        fragment.trajectory, *fragment.steps, *fragment.tool_calls, *fragment.outcomes, *fragment.spans,
    )  # fmt: skip
    for row in rows:
        for name in row.__struct_fields__:
            value = getattr(row, name)
            if isinstance(value, str) and "blob" in value:
                yield value
