"""SQL over a batch that is not in the lake yet: what `validate` judges with.

Not covered: staging (`lake.py`), and SQL over published snapshots (`lake_read.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from flywheel.errors import LakeError
from flywheel.store.tables import TABLES


class StagedBatch:
    """A private in-memory DuckDB with one view per lake table over the rows of one staged batch; absent: empty."""

    def __init__(self, rows: Mapping[str, pa.Table]) -> None:
        self._con = duckdb.connect()
        self._con.execute("SET TimeZone = 'UTC'")
        for name, spec in TABLES.items():
            self._con.register(name, rows.get(name, spec.schema.empty_table()))

    def __enter__(self) -> StagedBatch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._con.close()

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
