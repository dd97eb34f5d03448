"""Questions to the lake through `flywheel.connect()`, against bare DuckDB over plain Parquet of the same rows.

    python benchmarks/query.py [--trajectories 1000000] [--rounds 5]

1M trajectories and 10M steps of half a year are made by DuckDB, staged and published as one batch, so they pass through
the real publisher; the same staged files, sorted in time by DuckDB itself into one Parquet file a table, are what the
yardstick reads. Both sides run the same SQL, one thread, interleaved, CPU time, medians. `unsorted` is the yardstick's
data in the order of its (random) ids: what "last week" costs where nobody sorted.

Bars: the median over the scans of ours / bare <= 1.1, a point trajectory <= 1.2, last week unsorted / ours >= 4.
`value` is the worst of the three as a share of its bar (<= 1 is good). Prints one JSON line last, exits 1 above.
Not covered: S3 (the lake on S3 is measured by `--s3`, which starts a server of its own).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.store.tables import TABLES
from flywheel.workspace import Workspace

SCAN_BAR, POINT_BAR, PRUNING_BAR = 1.1, 1.2, 4.0
BATCH = "batch-of-the-benchmark"
FIRST, DAYS = "2025-01-01", 180
QUERIES = {
    "failures by tool and day": """
        SELECT date_trunc('day', ts) AS day, name, count(*) FROM {step}
        WHERE role = 'tool' AND error_type IS NOT NULL GROUP BY ALL""",
    "tokens by model": "SELECT model, sum(input_tokens), quantile_cont(n_steps, .95) FROM {trajectory} GROUP BY ALL",
    "steps of failures": """
        SELECT t.model, s.name, count(*) FROM {step} s JOIN {trajectory} t USING (trajectory_id)
        WHERE NOT t.success AND s.error_type IS NOT NULL GROUP BY ALL""",
    "pass rate of tasks": """
        SELECT task_id, avg(success::INT) AS p, count(*) FROM {trajectory} GROUP BY ALL ORDER BY p, task_id LIMIT 50""",
}
LAST_WEEK = """
    SELECT error_type, count(*) FROM {trajectory}
    WHERE started_at >= TIMESTAMPTZ '2025-06-23 00:00:00+00' AND NOT success GROUP BY ALL"""
POINT = "SELECT * FROM {trajectory} WHERE trajectory_id = '{id}'"
POINT_STEPS = "SELECT * FROM {step} WHERE trajectory_id = '{id}' ORDER BY step_ix"


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def columns(table: str, given: dict[str, str]) -> str:
    """A SELECT list of all columns of the table, in order: the given expressions, and NULL for the rest."""
    with duckdb.connect() as con:
        con.register("empty", TABLES[table].schema.empty_table())
        types = {row[0]: row[1] for row in con.execute("DESCRIBE empty").fetchall()}
    return ", ".join(f'CAST({given.get(name, "NULL")} AS {kind}) AS "{name}"' for name, kind in types.items())


def make(workspace: Workspace, n: int) -> None:
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
    heads = f"SELECT i, {columns('trajectory', head)} FROM range({n}) r(i)"
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'; SET memory_limit = '6GB'")
        copy = "(FORMAT parquet, COMPRESSION zstd)"
        con.execute(f"COPY (SELECT * EXCLUDE (i) FROM ({heads})) TO '{folder / 'trajectory.parquet'}' {copy}")
        rows = f"SELECT i, trajectory_id, started_at, unnest(range(n_steps)) AS k FROM ({heads})"
        con.execute(f"COPY (SELECT {columns('step', step)} FROM ({rows})) TO '{folder / 'step.parquet'}' {copy}")
    counts = {name: pq.read_metadata(folder / f"{name}.parquet").num_rows for name in ("trajectory", "step")}
    artifacts.finish(folder, "batch", BATCH, {"objects": []}, {"rows": counts})


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


def measured(sides: dict[str, tuple[duckdb.DuckDBPyConnection, str]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each side's statement, run in turns after one warm-up."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, (con, sql) in sides.items():
            before = cpu()
            con.execute(sql).fetchall()
            if turn:
                seconds[side].append(cpu() - before)
    return {side: statistics.median(found) for side, found in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Workspace(Path(scratch) / "w")
        workspace.root.mkdir()
        workspace.config_file.touch()
        make(workspace, arguments.trajectories)
        made = time.monotonic()
        make_plain(workspace, Path(scratch) / "plain")
        Lake(workspace).publish(BATCH)
        published = time.monotonic()
        result = compare(workspace, Path(scratch) / "plain", arguments.rounds)
        result["seconds"] = {
            "made": round(made - started, 1),
            "published": round(published - made, 1),
            "all": round(time.monotonic() - started, 1),
        }
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def compare(workspace: Workspace, plain: Path, rounds: int) -> dict[str, object]:
    """Every query on both sides; the JSON line."""
    before = cpu()
    ours = Lake(workspace).connect()
    connecting = cpu() - before
    bare = duckdb.connect()
    bare.execute("SET TimeZone = 'UTC'")
    for con in (ours, bare):
        con.execute("SET threads = 1")
    files = {table: f"'{plain / table}.parquet'" for table in ("trajectory", "step")}
    unsorted = {**files, "trajectory": f"'{plain / 'trajectory_unsorted'}.parquet'"}
    views = {"trajectory": "trajectory", "step": "step"}
    some = bare.execute(
        f"SELECT trajectory_id FROM {files['trajectory']} USING SAMPLE 5 ROWS (reservoir, 7)"
    ).fetchall()

    def both(sql: str, **more: str) -> dict[str, float]:
        sides = {"ours": (ours, sql.format(**views, **more)), "bare": (bare, sql.format(**files, **more))}
        answers = [sorted(map(repr, con.execute(text).fetchall())) for con, text in sides.values()]
        assert answers[0] == answers[1], f"the two sides disagree on {sql}"
        return measured(sides, rounds)

    scans = {name: both(sql) for name, sql in QUERIES.items()}
    points = [both(POINT, id=row[0]) for row in some]
    steps = [both(POINT_STEPS, id=row[0]) for row in some]
    week = measured(
        {
            "ours": (ours, LAST_WEEK.format(**views)),
            "bare": (bare, LAST_WEEK.format(**files)),
            "unsorted": (bare, LAST_WEEK.format(**unsorted)),
        },
        rounds,
    )
    scan = statistics.median(s["ours"] / s["bare"] for s in scans.values())
    point = statistics.median(s["ours"] / s["bare"] for s in points)
    pruning = week["unsorted"] / week["ours"]
    value = max(scan / SCAN_BAR, point / POINT_BAR, PRUNING_BAR / pruning)
    return {
        "name": "query",
        "value": round(value, 3),
        "bar": 1.0,
        "ok": value <= 1.0,
        "scan_ratio": round(scan, 3),
        "point_ratio": round(point, 3),
        "point_steps_ratio": round(statistics.median(s["ours"] / s["bare"] for s in steps), 3),
        "last_week_pruning": round(pruning, 1),
        "last_week_ratio": round(week["ours"] / week["bare"], 3),
        "cpu_ms": {name: {side: round(s * 1e3, 1) for side, s in found.items()} for name, found in scans.items()},
        "point_ms": {side: round(statistics.median(p[side] for p in points) * 1e3, 1) for side in ("ours", "bare")},
        "connect_ms": round(connecting * 1e3, 1),
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    sys.exit(main())
