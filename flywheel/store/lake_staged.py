"""Reading a batch that is not in the lake yet: its files by table, and the SQL that `validate` judges it with.

Memory is bounded whatever the batch weighs: DuckDB reads the files, and puts what it can't hold beside them.

Not covered: staging (`lake.py`, `lake_stage.py`), and SQL over published snapshots (`lake_read.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from flywheel.errors import LakeError
from flywheel.store.lake_views import quoted
from flywheel.store.tables import TABLES

MEMORY = "128MB"  # of DuckDB's own, to look at narrow columns; the rest of the process needs about as much
SORT_MEMORY = "1GB"  # to put whole rows into another order


def parts_of(folder: Path, table: str) -> list[Path]:
    """The files of one table in a staged batch or a draft of one: `<table>.parquet` or `<table>.<part>.parquet`."""
    return sorted([*folder.glob(f"{table}.parquet"), *folder.glob(f"{table}.*.parquet")])


def row_count(files: Iterable[Path]) -> int:
    """How many rows the files have together."""
    return sum(pq.read_metadata(file).num_rows for file in files)


def scan(files: Iterable[Path], options: str = "") -> str:
    """SQL that reads the files as one table."""
    names = ", ".join(quoted(str(file)) for file in files)
    return f"read_parquet([{names}], hive_partitioning=false{', ' + options if options else ''})"


@contextmanager
def bounded(con: duckdb.DuckDBPyConnection, folder: Path, memory: str = MEMORY) -> Iterator[duckdb.DuckDBPyConnection]:
    """The connection, holding little and spilling into a folder beside the given one, gone afterwards."""
    spill = folder.parent / f".{folder.name.lstrip('.')}.{os.urandom(4).hex()}.spill"
    con.execute(f"SET memory_limit = '{memory}'")
    con.execute("SET threads = 1")
    con.execute("SET preserve_insertion_order = false")
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"SET temp_directory = {quoted(str(spill))}")
    try:
        yield con
    finally:
        con.close()
        shutil.rmtree(spill, ignore_errors=True)


class StagedBatch:
    """A private DuckDB with one view per lake table over a staged batch, from its folder or from Arrow tables."""

    def __init__(self, batch: Path | Mapping[str, pa.Table]) -> None:
        folder = batch if isinstance(batch, Path) else Path(tempfile.gettempdir(), "staged")
        self._bounded = bounded(duckdb.connect(), folder)
        self._con = self._bounded.__enter__()
        for name, spec in TABLES.items():
            files = parts_of(batch, name) if isinstance(batch, Path) else []
            if files:
                self._con.execute(f"CREATE VIEW {name} AS FROM {scan(files)}")
            else:
                given = batch.get(name) if isinstance(batch, Mapping) else None
                self._con.register(name, spec.schema.empty_table() if given is None else given)

    def __enter__(self) -> StagedBatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bounded.__exit__(kind, error, at)

    def count(self, table: str) -> int:
        """How many rows of a table the batch has."""
        return int(self._con.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    def columns(self, table: str, names: Iterable[str], rows: int) -> Iterator[pa.Table]:
        """The given columns of a table, at most so many rows at a time."""
        found: list[pa.RecordBatch] = []
        for batch in self._con.sql(f"SELECT {', '.join(names)} FROM {table}").to_arrow_reader(min(rows, 100_000)):
            found.append(batch)
            if sum(held.num_rows for held in found) + 100_000 > rows:
                yield pa.Table.from_batches(found)
                found = []
        if found:
            yield pa.Table.from_batches(found)

    def query(self, sql: str, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """How many rows a SELECT gives, and the first `limit` of them. Errors: LakeError with DuckDB's sentence."""
        try:
            found = self._con.execute(sql)
            names = [column[0] for column in found.description or ()]
            rows = found.fetchmany(limit)
            total = len(rows)
            while more := found.fetchmany(10_000):
                total += len(more)
        except duckdb.Error as error:
            raise LakeError(f"DuckDB refuses the SQL: {error}") from error
        return total, [dict(zip(names, row, strict=True)) for row in rows]
