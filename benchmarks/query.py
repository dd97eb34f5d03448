"""Questions to the lake through `flywheel.connect()`, against bare DuckDB over plain Parquet of the same rows.

    python benchmarks/query.py [--trajectories 1000000] [--s3 100000] [--rounds 5]

1M trajectories and 10M steps of half a year are made by DuckDB, staged and published as one batch, so they pass through
the real publisher; the same staged files, sorted in time by DuckDB itself into one Parquet file a table, are what the
yardstick reads. Both sides run the same SQL, one thread, interleaved, CPU time, medians. `unsorted` is the yardstick's
data in the order of its (random) ids: what "last week" costs where nobody sorted.

The same again, with fewer rows, on a lake in a bucket (`weed mini`, started here): the yardstick's files lie in the
same bucket and bare DuckDB reads them through the same file system. There the worse counts of the scans and the point
trajectories, in CPU time of this process, once DuckDB has cached on both sides what it wants to cache.

`wide`: a lake of few rows of 100 KB and more, on disk: a trajectory's steps by id, against the same in plain Parquet.

Bars: the median over the scans of ours / bare <= 1.1, a point trajectory <= 1.2 (on wide rows too), last week
unsorted / ours >= 4, on S3 <= 1.2. `value` is the worst as a share of its bar (<= 1 is good). Prints one JSON line
last, exits 1 above. Not covered: several threads, queries while others publish.
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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from query_rows import BATCH, make, make_plain

from flywheel.store.lake import Lake
from flywheel.store.lake_place import place_of
from flywheel.workspace import Workspace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

SCAN_BAR, POINT_BAR, PRUNING_BAR, S3_BAR = 1.1, 1.2, 4.0, 1.2
WIDE_TRAJECTORIES = 120
CACHED_AFTER_S = 15.0  # DuckDB keeps nothing of a remote file that was written in the last seconds, on either side
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


Seconds = dict[str, float]  # by side


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(sides: dict[str, tuple[duckdb.DuckDBPyConnection, str]], rounds: int) -> Seconds:
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
    parser.add_argument("--s3", type=int, default=100_000, help="trajectories of the lake in a bucket; 0: without")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        result = on_disk(Path(scratch) / "disk", arguments.trajectories, arguments.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        result["wide"] = of_wide_rows(Path(scratch) / "wide", arguments.rounds)
    shares = [
        result["scan_ratio"] / SCAN_BAR,
        result["point_ratio"] / POINT_BAR,
        PRUNING_BAR / result["last_week_pruning"],
        result["wide"]["point_steps_ratio"] / POINT_BAR,
    ]
    if arguments.s3:
        with tempfile.TemporaryDirectory() as scratch:
            result["s3"] = in_bucket(Path(scratch), arguments.s3, arguments.rounds)
        shares.append(result["s3"]["ratio"] / S3_BAR)
    value = round(max(shares), 3)
    result["seconds"]["all"] = round(time.monotonic() - started, 1)
    print(json.dumps({"name": "query", "value": value, "bar": 1.0, "ok": value <= 1.0, **result}))
    return 0 if value <= 1.0 else 1


def workspace_at(root: Path, config: str = "") -> Workspace:
    """A new workspace."""
    root.mkdir(parents=True)
    workspace = Workspace(root)
    workspace.config_file.write_text(config, encoding="utf-8")
    return workspace


def on_disk(folder: Path, n: int, rounds: int) -> dict[str, Any]:
    """Both sides in a folder."""
    started = time.monotonic()
    workspace = workspace_at(folder / "w")
    make(workspace, n)
    make_plain(workspace, folder / "plain")
    made = time.monotonic()
    Lake(workspace).publish(BATCH)
    published = time.monotonic()
    with duckdb.connect() as bare:
        result = compare(workspace, bare, str(folder / "plain"), rounds)
    return {**result, "seconds": {"made": round(made - started, 1), "published": round(published - made, 1)}}


def of_wide_rows(folder: Path, rounds: int) -> dict[str, Any]:
    """The steps of one trajectory where a row weighs more than 100 KB."""
    workspace = workspace_at(folder / "w")
    make(workspace, WIDE_TRAJECTORIES, wide=True)
    make_plain(workspace, folder / "plain")
    Lake(workspace).publish(BATCH)
    with Lake(workspace).connect() as ours, duckdb.connect() as bare:
        sides = Sides(ours, bare, str(folder / "plain"))
        found = [sides.both(POINT_STEPS, rounds, id=name) for name in sides.some_ids()]
    return {
        "point_steps_ratio": ratio(found),
        "point_steps_ms": {side: milliseconds(found, side) for side in ("ours", "bare")},
    }


def in_bucket(folder: Path, n: int, rounds: int) -> dict[str, Any]:
    """Both sides in one bucket of a server of our own."""
    server = S3Server(folder / "server")
    os.environ.update(
        AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_EC2_METADATA_DISABLED="true",
        AWS_ENDPOINT_URL_S3=server.endpoint,
    )  # fmt: skip
    server.start()
    try:
        workspace = workspace_at(folder / "w", f'[lake]\nuri = "s3://{BUCKET}/lake"\n')
        make(workspace, n)
        make_plain(workspace, folder / "plain")
        for file in (folder / "plain").iterdir():
            server.client().upload_file(str(file), BUCKET, f"plain/{file.name}")
        Lake(workspace).publish(BATCH)
        time.sleep(CACHED_AFTER_S)
        with duckdb.connect() as bare:
            place_of(workspace).attach(bare)
            found = compare(workspace, bare, f"s3://{BUCKET}/plain", rounds)
    finally:
        server.kill()
    return {"trajectories": n, "ratio": max(found["scan_ratio"], found["point_ratio"]), **found}


@dataclass(frozen=True, slots=True)
class Sides:
    """Two connections, one thread each, and where the bare one finds its files."""

    ours: duckdb.DuckDBPyConnection
    bare: duckdb.DuckDBPyConnection
    plain: str

    def __post_init__(self) -> None:
        for con in (self.ours, self.bare):
            con.execute("SET threads = 1; SET TimeZone = 'UTC'")

    def statements(self, sql: str, **more: str) -> dict[str, tuple[duckdb.DuckDBPyConnection, str]]:
        """The same statement for both sides."""
        views = {name: name for name in ("trajectory", "step")}
        files = {name: f"'{self.plain}/{name}.parquet'" for name in views}
        return {"ours": (self.ours, sql.format(**views, **more)), "bare": (self.bare, sql.format(**files, **more))}

    def both(self, sql: str, rounds: int, **more: str) -> Seconds:
        """Seconds of both sides, whose answers must be the same."""
        sides = self.statements(sql, **more)
        answers = [sorted(map(repr, con.execute(text).fetchall())) for con, text in sides.values()]
        assert answers[0] == answers[1], f"the two sides disagree on {sql}"
        return measured(sides, rounds)

    def last_week(self, rounds: int) -> Seconds:
        """Both sides, and the yardstick's unsorted file."""
        unsorted = LAST_WEEK.format(trajectory=f"'{self.plain}/trajectory_unsorted.parquet'")
        return measured({**self.statements(LAST_WEEK), "unsorted": (self.bare, unsorted)}, rounds)

    def some_ids(self) -> list[str]:
        """Five trajectories, always the same ones."""
        sql = f"SELECT trajectory_id FROM '{self.plain}/trajectory.parquet' USING SAMPLE 5 ROWS (reservoir, 7)"
        return [row[0] for row in self.bare.execute(sql).fetchall()]


def ratio(found: Iterable[Seconds]) -> float:
    """Median over statements of ours / bare."""
    return round(statistics.median(seconds["ours"] / seconds["bare"] for seconds in found), 3)


def milliseconds(found: Iterable[Seconds], side: str) -> float:
    """Median of one side over statements."""
    return round(statistics.median(seconds[side] for seconds in found) * 1e3, 1)


def compare(workspace: Workspace, bare: duckdb.DuckDBPyConnection, plain: str, rounds: int) -> dict[str, Any]:
    """Every query on both sides."""
    before = cpu()
    with Lake(workspace).connect() as ours:
        connecting = cpu() - before
        sides = Sides(ours, bare, plain)
        scans = {name: sides.both(sql, rounds) for name, sql in QUERIES.items()}
        some = sides.some_ids()
        points = [sides.both(POINT, rounds, id=name) for name in some]
        steps = [sides.both(POINT_STEPS, rounds, id=name) for name in some]
        week = sides.last_week(rounds)
    return {
        "scan_ratio": ratio(scans.values()),
        "point_ratio": ratio(points),
        "point_steps_ratio": ratio(steps),
        "last_week_pruning": round(week["unsorted"] / week["ours"], 1),
        "last_week_ratio": ratio([week]),
        "cpu_ms": {name: {side: round(s * 1e3, 1) for side, s in found.items()} for name, found in scans.items()},
        "point_ms": {side: milliseconds(points, side) for side in ("ours", "bare")},
        "connect_ms": round(connecting * 1e3, 1),
        "cores": os.cpu_count(),
    }


if __name__ == "__main__":
    sys.exit(main())
