"""The rows that `query.py` asks about: a staged batch, as `ingest` would have left it, and the same as plain Parquet.

Everything is a function of the row's number, so that both sides and every run have the same rows.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from flywheel.store import artifacts
from flywheel.store.tables import TABLES
from flywheel.workspace import Workspace

BATCH = "batch-of-the-benchmark"
FIRST, DAYS = "2025-01-01", 180
WIDE_TEXTS = 3_500  # of 33 bytes each, of which a wide row's content is made


def columns(table: str, given: dict[str, str]) -> str:
    """A SELECT list of all columns of the table, in order: the given expressions, and NULL for the rest."""
    with duckdb.connect() as con:
        con.register("empty", TABLES[table].schema.empty_table())
        types = {row[0]: row[1] for row in con.execute("DESCRIBE empty").fetchall()}
    return ", ".join(f'CAST({given.get(name, "NULL")} AS {kind}) AS "{name}"' for name, kind in types.items())


def make(workspace: Workspace, n: int, wide: bool = False) -> None:
    """Stage n trajectories and ten times as many steps, as `ingest` would have left them."""
    folder = workspace.staging / BATCH
    folder.mkdir(parents=True)

    def part(key: int) -> str:
        return f"(hash(i, {key}) % 1000003 / 1000003.0)"

    head = {
        "trajectory_id": "md5(i::VARCHAR || 'x')", "revision": "0", "content_sha256": "md5(i::VARCHAR || 'c')",
        "source_id": "'s'", "source_record_ix": "i", "format": "'openai_chat'", "session_id": "'s-' || (i // 3)",
        "model": f"['acme-7b', 'acme-32b', 'qwx-14b', 'lmx-70b'][1 + floor({part(3)} * 4)::INT]",
        "task_id": f"'task-' || floor(pow({part(1)}, 2) * 5000)::INT",
        "started_at": f"TIMESTAMPTZ '{FIRST} 00:00:00+00' + to_seconds(floor(i * ({DAYS} * 86400.0 / {n}))::BIGINT)",
        "n_steps": f"5 + floor({part(6)} * 11)::INT", "success": f"{part(7)} > 0.7",
        "error_type": f"CASE WHEN {part(7)} <= 0.7 THEN 'error-' || floor({part(8)} * 10)::INT END",
        "input_tokens": f"1000 + floor({part(10)} * 200000)::BIGINT", "content_complete": "true",
        "batch_id": f"'{BATCH}'",
    }  # fmt: skip
    step = {
        "trajectory_id": "trajectory_id", "step_ix": "k", "parent_ix": "nullif(k - 1, -1)",
        "role": "CASE k % 3 WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' ELSE 'tool' END",
        "content_state": "'present'", "n_tool_calls": "(k % 3 = 1)::INT",
        "name": "CASE k % 3 WHEN 2 THEN ['bash', 'read_file', 'search', 'sql'][1 + (hash(i, k) % 4)::INT] END",
        "content": "'message ' || k || ' of ' || i || ': ' || hash(i, k, 1)", "ts": "started_at + to_seconds(k * 7)",
        "error_type": "CASE WHEN k % 3 = 2 AND hash(i, k, 2) % 100 < 12 THEN 'Timeout' END",
        "input_tokens": "CASE k % 3 WHEN 1 THEN hash(i, k, 3) % 30000 END", "batch_id": f"'{BATCH}'",
    }  # fmt: skip
    if wide:
        texts = f"list_transform(range({WIDE_TEXTS}), lambda x: md5((i * 1000 + k * 17 + x)::VARCHAR))"
        step["content"] = f"array_to_string({texts}, ' ')"
    heads = f"SELECT i, {columns('trajectory', head)} FROM range({n}) r(i)"
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET memory_limit = '6GB'")
        copy = "(FORMAT parquet, COMPRESSION zstd)"
        con.execute(f"COPY (SELECT * EXCLUDE (i) FROM ({heads})) TO '{folder / 'trajectory.parquet'}' {copy}")
        rows = f"SELECT i, trajectory_id, started_at, unnest(range(n_steps)) AS k FROM ({heads})"
        con.execute(f"COPY (SELECT {columns('step', step)} FROM ({rows})) TO '{folder / 'step.parquet'}' {copy}")
    if wide:
        _regroup(folder / "step.parquet")
    counts = {name: pq.read_metadata(folder / f"{name}.parquet").num_rows for name in ("trajectory", "step")}
    artifacts.finish(folder, "batch", BATCH, {"objects": []}, {"rows": counts})


def _regroup(file: Path) -> None:
    """Row groups of about 6 MB, as ingest writes them: DuckDB's own can't be of fewer than 2,048 rows."""
    rows = pq.read_table(file)
    pq.write_table(rows, file, compression="zstd", row_group_size=50)


def make_plain(workspace: Workspace, plain: Path) -> None:
    """The yardstick's files: one Parquet file a table, by time, and the trajectories once more by id."""
    plain.mkdir()
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET memory_limit = '6GB'")
        order = {"trajectory": "started_at, trajectory_id", "step": "ts, trajectory_id, step_ix"}
        for table, by in order.items():
            source = workspace.staging / BATCH / f"{table}.parquet"
            names = ", ".join(f'"{name}"' for name in TABLES[table].schema.names)
            for suffix, key in (("", by), *((("_unsorted", "trajectory_id"),) if table == "trajectory" else ())):
                sql = f"COPY (SELECT {names} FROM '{source}' ORDER BY {key}) TO '{plain / (table + suffix)}.parquet'"
                con.execute(f"{sql} (FORMAT parquet, COMPRESSION zstd)")
