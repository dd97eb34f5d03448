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

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.formats.assemble import complete, join
from flywheel.records import Fragment, Trajectory
from flywheel.store.lake_staged import bounded, parts_of, scan
from flywheel.store.tables import TABLES, Stamps, from_arrow, stamped, to_arrow

GROUP_BYTES = 16 << 20  # of text, before a row group is written
_ROW_BYTES = 600  # what a row weighs beside its text
# Staged files are read once or twice and then deleted: a light compression, and dictionaries only where values repeat.
_COMPRESSION = "lz4"
_REPEATED = ("_id", "role", "role_raw", "format", "model", "name", "state", "kind", "quality", "reason", "_sha256")
_KEYED = {"outcome": "outcome_id", "blob": "sha256", "span": "trace_id, span_id, start_ns, name"}
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
    size = len(whole.trajectory.tools or "") + len(whole.trajectory.extra or "")
    for step in whole.steps:
        for text in (step.content, step.parts, step.raw, step.extra):
            if text is not None:
                size += len(text)
    size += sum(len(span.attributes or "") + len(span.events or "") for span in whole.spans)
    return (
        size + sum(len(blob.data or b"") for blob in whole.blobs) + sum(len(c.args_raw or "") for c in whole.tool_calls)
    )


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
                for sets in _row_sets(con, files):
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
            regexp_extract(filename, '\\.([^.]*)\\.parquet$', 1) AS part, n_steps, n_tool_calls AS n_calls,
            sum(n_steps) OVER before - n_steps AS step_at, sum(n_tool_calls) OVER before - n_tool_calls AS call_at
        FROM {trajectories}
        WINDOW before AS (PARTITION BY filename ORDER BY file_row_number ROWS UNBOUNDED PRECEDING))
    SELECT * FROM placed WHERE trajectory_id IN (
        SELECT trajectory_id FROM placed GROUP BY trajectory_id HAVING count(*) > 1)"""


def _row_sets(con: duckdb.DuckDBPyConnection, files: dict[str, list[Path]]) -> Iterator[list[Fragment]]:
    """All row sets of one trajectory, in the order of sources and records; one trajectory after the other."""
    order = "v.trajectory_id, v.source_id, v.source_record_ix, v.part, v.row"
    heads = _rows(con, "trajectory", files, "s.file_row_number = v.row", order)
    steps = _rows(con, "step", files, _WITHIN.format("step", "steps"), f"{order}, s.file_row_number")
    calls = _rows(con, "tool_call", files, _WITHIN.format("call", "calls"), f"{order}, s.file_row_number")
    outcomes = _rows(con, "outcome", files, None, "s.trajectory_id, s.filename, s.file_row_number")
    outcome = next(outcomes, None)
    held: list[Fragment] = []
    for head in heads:
        if held and held[0].key != head.trajectory_id:
            yield held
            held = []
        said = []
        while not held and outcome is not None and outcome.trajectory_id == head.trajectory_id:
            said.append(outcome)  # whose row set said it is not known, and they're joined anyway
            outcome = next(outcomes, None)
        held.append(_fragment(head, steps, calls, said))
    if held:
        yield held


_WITHIN = (
    "s.trajectory_id = v.trajectory_id AND s.file_row_number >= v.{0}_at AND s.file_row_number < v.{0}_at + v.n_{1}"
)


def _fragment(head: Trajectory, steps: Iterator[Any], calls: Iterator[Any], said: list[Any]) -> Fragment:
    return Fragment(
        key=head.trajectory_id,
        record_ix=head.source_record_ix,
        trajectory=head,
        steps=tuple(islice(steps, head.n_steps)),
        tool_calls=tuple(islice(calls, head.n_tool_calls or 0)),
        outcomes=tuple(said),
    )


def _rows(
    con: duckdb.DuckDBPyConnection, table: str, files: dict[str, list[Path]], within: str | None, order: str
) -> Iterator[Any]:
    """The rows of one table that belong to trajectories written more than once, as records."""
    if not files[table]:
        return
    names = ", ".join(f"s.{name}" for name in TABLES[table].columns)
    part = "regexp_extract(s.filename, '\\.([^.]*)\\.parquet$', 1)"
    chosen = (
        f"JOIN several v ON {part} = v.part AND {within}"
        if within
        else "SEMI JOIN several v ON s.trajectory_id = v.trajectory_id"
    )
    source = scan(files[table], _PLACE)
    found = con.cursor().sql(f"SELECT {names} FROM {source} s {chosen} ORDER BY {order}")
    for batch in found.to_arrow_reader(1024):
        yield from from_arrow(table, pa.Table.from_batches([batch]))


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
