"""A batch in the making: rows to Parquet files in a draft folder, a bounded number of bytes at a time.

    with PartWriter(draft, part, stamps) as writer: writer.add_fragment(...)       any number of parts, also in parallel
    settle(draft)          once all parts are closed: one row set a trajectory, one row a key
    Lake.finish_draft(...) the draft becomes the staged batch

Files are `<table>.<part>.parquet`. The rows of a trajectory stand together and in the order of the heads, so counts
tell which belong to which: that is how `settle` finds the row sets of a trajectory that was written more than once (a
retry that was logged twice, an export in several objects) and joins them (`assemble.join`), without a list of keys.

Not covered: what makes a batch complete (`lake.py`), rows under one key that differ only in the lake (publisher).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.formats.assemble import complete, join
from flywheel.records import Fragment
from flywheel.store.lake_staged import bounded, parts_of, scan
from flywheel.store.tables import TABLES, Stamps, from_arrow, stamped, to_arrow

GROUP_BYTES = 6 << 20  # of text, before a row group is written
_ROW_BYTES = 600  # what a row weighs beside its text
# Staged files are read once or twice and then deleted: a light compression, and dictionaries only where values repeat.
_COMPRESSION = "lz4"
_REPEATED = ("_id", "role", "role_raw", "format", "model", "name", "state", "kind", "quality", "reason", "_sha256")
_KEYED = {"outcome": "outcome_id", "blob": "sha256", "span": "trajectory_id, trace_id, span_id, start_ns, end_ns, name"}
_PLACE = "filename=true, file_row_number=true"


class PartWriter:
    """Writes one part of a batch. Use it as a context manager; only then are the files whole."""

    def __init__(self, draft: Path, part: str, stamps: Stamps) -> None:
        self._draft, self._part, self._stamps = draft, part, stamps
        self._rows: dict[str, list[Any]] = {}
        self._weight = 0
        self._files: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._flush()
        for file in self._files.values():
            file.close()

    def add_fragment(self, whole: Fragment) -> None:
        """The rows of one trajectory, redacted and completed. Errors: LakeError for a value that fits no column."""
        rows = self._rows
        rows.setdefault("trajectory", []).append(whole.trajectory)
        for table in ("steps", "tool_calls", "outcomes", "blobs", "spans"):
            found = getattr(whole, table)
            if found:
                rows.setdefault(table[:-1], []).extend(found)
        self._weigh(len(whole.steps) + len(whole.tool_calls) + 2, _text_of(whole))

    def add(self, table: str, rows: Sequence[Any]) -> None:
        """Rows of another table than those of a fragment."""
        self._rows.setdefault(table, []).extend(rows)
        self._weigh(len(rows), sum(len(row.redacted or b"") for row in rows) if table == "quarantine" else 0)

    def _weigh(self, rows: int, text: int) -> None:
        self._weight += rows * _ROW_BYTES + text
        if self._weight >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        for table, rows in self._rows.items():
            if rows:
                self._write(table, stamped(table, to_arrow(table, rows), self._stamps))
        self._rows, self._weight = {}, 0

    def _write(self, table: str, data: pa.Table) -> None:
        if table not in self._files:
            self._files[table] = open_writer(self._draft / f"{table}.{self._part}.parquet", data.schema)
        self._files[table].write_table(data, row_group_size=max(data.num_rows, 1))


def _text_of(whole: Fragment) -> int:
    """About how many bytes the texts of a trajectory weigh."""
    head, blobs = whole.trajectory, whole.blobs
    texts = chain(
        (head.tools, head.extra),
        *map(_STEP_TEXTS, whole.steps),
        *map(_CALL_TEXTS, whole.tool_calls),
        *map(_SPAN_TEXTS, whole.spans),
    )
    return sum(map(len, filter(None, texts))) + sum(len(blob.data or b"") for blob in blobs)


_STEP_TEXTS = attrgetter("content", "parts", "reasoning", "raw", "extra")
_CALL_TEXTS = attrgetter("args_raw", "args", "result_text")
_SPAN_TEXTS = attrgetter("attributes", "events")


def open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of one staged file."""
    repeated = [field.name for field in schema if field.name.endswith(_REPEATED) and field.type == pa.large_string()]
    return pq.ParquetWriter(path, schema, use_dictionary=repeated, write_statistics=False, compression=_COMPRESSION)


def settle(draft: Path, stamps: Stamps) -> dict[str, int]:
    """Make it one row set a trajectory and one row a key; gives the number of trajectories that each source has.

    Of the row sets of one trajectory the rules of `assemble.join` make one, in the order of sources and records. Of
    rows under one key in other tables the last counts.
    """
    with bounded(duckdb.connect(), draft) as con:
        files = {table: parts_of(draft, table) for table in TABLES}
        if not files["trajectory"]:
            _drop_repeats(con, files)
            return {}
        sources = dict(
            con.sql(
                f"SELECT source_id, count(DISTINCT trajectory_id) FROM {scan(files['trajectory'])} GROUP BY source_id"
            ).fetchall()
        )
        con.execute(_SEVERAL.format(trajectories=scan(files["trajectory"], _PLACE)))
        if con.sql("SELECT count(*) FROM several").fetchall() != [(0,)]:
            with PartWriter(draft, "joined", stamps) as writer:
                for sets in _row_sets(con, draft):
                    for whole in join(sets):
                        writer.add_fragment(complete(whole))
            for table in ("trajectory", "step", "tool_call", "outcome"):
                if files[table]:
                    _drop(con, files[table], "trajectory_id IN (SELECT trajectory_id FROM several)")
        _drop_repeats(con, {table: parts_of(draft, table) for table in TABLES})
    return sources


# Which trajectories were written more than once, and at which rows of the same part their steps and calls stand.
_SEVERAL = """
    CREATE TABLE several AS
    WITH placed AS (
        SELECT trajectory_id, source_id, source_record_ix, file_row_number AS row,
            regexp_extract(filename, '\\.([^.]*)\\.parquet$', 1) AS part, n_steps, coalesce(n_tool_calls, 0) AS n_calls,
            sum(n_steps) OVER before - n_steps AS step_at,
            sum(coalesce(n_tool_calls, 0)) OVER before - coalesce(n_tool_calls, 0) AS call_at
        FROM {trajectories}
        WINDOW before AS (PARTITION BY filename ORDER BY file_row_number ROWS UNBOUNDED PRECEDING))
    SELECT *, min((part, row)) OVER (PARTITION BY trajectory_id) AS first FROM placed WHERE trajectory_id IN (
        SELECT trajectory_id FROM placed GROUP BY trajectory_id HAVING count(*) > 1)"""
_SETS = """
    SELECT trajectory_id, part, row, n_steps, n_calls, step_at, call_at FROM several
    ORDER BY first, trajectory_id, source_id, source_record_ix, part, row"""


def _row_sets(con: duckdb.DuckDBPyConnection, draft: Path) -> Iterator[list[Fragment]]:
    """All row sets of one trajectory, in the order of sources and records; one trajectory after the other.

    Trajectories come in the order in which they were first written, so that what is read stands close together.
    """
    places, outcomes = con.cursor().execute(_SETS), _outcomes(con, parts_of(draft, "outcome"))
    outcome = next(outcomes, None)
    held: list[Fragment] = []
    read = _Places(draft)
    while found := places.fetchmany(1000):
        for key, part, row, n_steps, n_calls, step_at, call_at in found:
            if held and held[0].key != key:
                yield held
                held = []
            said = []
            while not held and outcome is not None and outcome.trajectory_id == key:
                said.append(outcome)  # whose row set said it is not known, and they're joined anyway
                outcome = next(outcomes, None)
            (head,) = read.rows("trajectory", part, row, 1)
            held.append(
                Fragment(
                    key=key,
                    record_ix=head.source_record_ix,
                    trajectory=head,
                    steps=tuple(read.rows("step", part, step_at, n_steps)),
                    tool_calls=tuple(read.rows("tool_call", part, call_at, n_calls)),
                    outcomes=tuple(said),
                )
            )
    if held:
        yield held


def _outcomes(con: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> Iterator[Any]:
    """The outcomes of trajectories written more than once, in the order of these."""
    if not files:
        return
    names = ", ".join(f"s.{name}" for name in TABLES["outcome"].columns)
    found = con.cursor().sql(
        f"SELECT {names} FROM {scan(files, _PLACE)} s JOIN (SELECT DISTINCT trajectory_id, first FROM several) v"
        " USING (trajectory_id) ORDER BY v.first, s.trajectory_id, s.filename, s.file_row_number"
    )
    for batch in found.to_arrow_reader(1024):
        yield from from_arrow("outcome", pa.Table.from_batches([batch]))


class _Places:
    """Rows of the draft by their place. The row groups that were read last are kept."""

    def __init__(self, draft: Path) -> None:
        self._draft = draft
        self._open: dict[tuple[str, str], tuple[pq.ParquetFile, list[int]]] = {}
        self._group = lru_cache(maxsize=6)(self._read_group)

    def rows(self, table: str, part: str, at: int, n: int) -> list[Any]:
        """So many rows of a part's table from that one on, as records."""
        if n == 0:
            return []
        found = []
        _, ends = self._file(table, part)
        group = bisect_right(ends, at)
        while n:
            data, begin = self._group(table, part, group), ends[group - 1] if group else 0
            piece = data.slice(at - begin, n)
            found += from_arrow(table, piece)
            at, n, group = at + piece.num_rows, n - piece.num_rows, group + 1
        return found

    def _file(self, table: str, part: str) -> tuple[pq.ParquetFile, list[int]]:
        if (table, part) not in self._open:
            file = pq.ParquetFile(self._draft / f"{table}.{part}.parquet")
            sizes = (file.metadata.row_group(ix).num_rows for ix in range(file.num_row_groups))
            self._open[table, part] = file, list(accumulate(sizes))
        return self._open[table, part]

    def _read_group(self, table: str, part: str, group: int) -> pa.Table:
        return self._file(table, part)[0].read_row_group(group)


def _drop_repeats(con: duckdb.DuckDBPyConnection, files: dict[str, list[Path]]) -> None:
    for table, key in _KEYED.items():
        if files[table]:
            given = "span_id IS NOT NULL" if table == "span" else "true"
            later = f"lead(0) OVER (PARTITION BY {key} ORDER BY filename, file_row_number) = 0"
            _drop(con, files[table], f"{given} QUALIFY {later}")


def _drop(con: duckdb.DuckDBPyConnection, files: Iterable[Path], where: str) -> None:
    """Rewrite those files that hold rows of that kind without them, a row group at a time."""
    rows = scan(files, _PLACE)
    sql = f"SELECT filename, file_row_number AS row FROM {rows} WHERE {where}"
    found = con.sql(f"SELECT filename, list(row ORDER BY row) FROM ({sql}) GROUP BY filename").fetchall()
    for name, dropped in found:
        rewrite(Path(name), np.array(dropped))


def rewrite(path: Path, dropped: np.ndarray[Any, Any], ix_base: int = 0) -> None:
    """The file without the given rows, and with `ix_base` added to the record's place in its source."""
    draft = path.with_suffix(".rewritten")
    file, at = pq.ParquetFile(path), 0
    with open_writer(draft, file.schema_arrow) as out:
        for group in range(file.num_row_groups):
            data = file.read_row_group(group)
            keep = ~np.isin(np.arange(at, at + data.num_rows), dropped)
            at += data.num_rows
            data = data.filter(pa.array(keep))
            if data.num_rows:
                out.write_table(_moved(data, ix_base), row_group_size=data.num_rows)
    draft.replace(path)


def _moved(data: pa.Table, ix_base: int) -> pa.Table:
    import pyarrow.compute as pc

    for name in ("source_record_ix", "record_ix") if ix_base else ():
        if name in data.column_names:
            at = data.column_names.index(name)
            data = data.set_column(at, data.schema.field(at), pc.add(data.column(at), ix_base))
    return data
