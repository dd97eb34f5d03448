"""Ingest of one file of JSON lines, against bare msgspec and pyarrow (`ingest_yardstick.py`).

    python benchmarks/ingest.py [--mb 200] [--rounds 3]

The file comes from `gen_trajectories.py` (seed 7). Every run is a process of its own, which reads a file of a few lines
first (imports, compiled patterns), then the file; both sides take turns, one thread each. What counts is CPU time, and
medians. 500 MB give the same figures and take three times as long; `--mb 500` does it.

Bars: ours without redaction / bare, per CPU-second, >= 0.5 (goal 0.95); with redaction in the same pass >= 40 MB per
CPU-second (goal 75); peak memory of a process <= 350 MB; on idle cores two processes >= 1.8 times one in wall time.
Staged files are LZ4 (they are read once, then deleted), the yardstick's zstd 3. Prints one JSON line last; exits 1
below a bar.

Not covered: judging and publishing the batch; other formats.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BAR, GOAL, REDACTED_BAR, REDACTED_GOAL, MEMORY_BAR, TWO_BAR = 0.5, 0.95, 40.0, 75.0, 350.0, 1.8
KINDS = ("bare", "ours", "redacted", "two")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", type=Path, help="a file that is there already")
    parser.add_argument("--run", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(run(given.run, given.file)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        source = given.file or generated(Path(scratch), given.mb)
        is_idle = os.getloadavg()[0] < 0.5 and (os.cpu_count() or 1) > 1
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(given.rounds):
            for kind in KINDS:
                runs[kind].append(measured(kind, source))
        report(runs, source.stat().st_size / 1e6, is_idle)


def generated(folder: Path, mb: float) -> Path:
    """The file to read."""
    source = folder / "trajectories.jsonl"
    command = [sys.executable, str(HERE / "gen_trajectories.py"), "--out", str(source), "--mb", str(mb), "--seed", "7"]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return source


def measured(kind: str, source: Path) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--run", kind, "--file", str(source)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(kind, {name: round(value, 2) for name, value in found.items()}, flush=True)
    return found


def report(runs: dict[str, list[dict[str, float]]], mb: float, is_idle: bool) -> None:
    """The table, and the JSON line; exits 1 if a bar is missed."""

    def middle(kind: str, name: str) -> float:
        return statistics.median(run[name] for run in runs[kind])

    speed = {kind: mb / middle(kind, "cpu") for kind in KINDS}
    ratio = statistics.median(bare["cpu"] / ours["cpu"] for bare, ours in zip(runs["bare"], runs["ours"], strict=True))
    memory = max(run["peak_mb"] for kind in KINDS[1:] for run in runs[kind])
    two = middle("ours", "wall") / middle("two", "wall")
    ok = ratio >= BAR and speed["redacted"] >= REDACTED_BAR and memory <= MEMORY_BAR and (two >= TWO_BAR or not is_idle)
    result: dict[str, Any] = {
        "name": "ingest", "value": round(ratio, 3), "bar": BAR, "goal": GOAL, "ok": ok,
        "mb_per_cpu_s": {kind: round(value, 1) for kind, value in speed.items()},
        "redacted": round(speed["redacted"], 1), "redacted_bar": REDACTED_BAR, "redacted_goal": REDACTED_GOAL,
        "peak_mb": round(memory), "peak_bar": MEMORY_BAR, "two_processes": round(two, 2), "two_bar": TWO_BAR,
        "idle": is_idle, "mb": round(mb), "rounds": len(runs["ours"]),
    }  # fmt: skip
    print(json.dumps(result))
    sys.exit(0 if ok else 1)


def run(kind: str, source: Path) -> dict[str, float]:
    """One side, timed after it has read a few lines; CPU and wall seconds, and peak memory of one process in MB."""
    with tempfile.TemporaryDirectory(dir=source.parent) as scratch:
        few = Path(scratch) / "few.jsonl"
        with source.open("rb") as lines:
            few.write_bytes(b"".join(line for line, _ in zip(lines, range(5), strict=False)))
        read = bare if kind == "bare" else ours(kind)
        read(few, Path(scratch) / "warm")
        before, began = cpu(), time.perf_counter()
        read(source, Path(scratch) / "timed")
        spent, wall = cpu() - before, time.perf_counter() - began
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"cpu": spent, "wall": wall, "peak_mb": peak / 1024}


def bare(source: Path, folder: Path) -> None:
    """The yardstick."""
    import ingest_yardstick

    folder.mkdir()
    ingest_yardstick.run(source, folder / "nested.parquet")


def ours(kind: str) -> Callable[[Path, Path], None]:
    """Ingest into a workspace of its own, where the file has landed already."""
    from flywheel.config import Config, Ingest, RedactionSection
    from flywheel.ingest import ingest
    from flywheel.store.keys import make_redaction_key
    from flywheel.workspace import Workspace

    config = Config(
        ingest=Ingest(processes=2 if kind == "two" else 1),
        redaction=RedactionSection(mode="on" if kind == "redacted" else "off"),
    )

    def read(source: Path, folder: Path) -> None:
        workspace = Workspace(folder)
        workspace.landing.mkdir(parents=True)
        workspace.config_file.write_text("", encoding="utf-8")
        make_redaction_key(workspace)
        (workspace.landing / source.name).hardlink_to(source)
        result = ingest(workspace, config)
        assert result.batch and not result.quarantined, result
        shutil.rmtree(workspace.staging)

    return read


def cpu() -> float:
    """CPU seconds of this process and its children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
