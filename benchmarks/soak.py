"""Many processes at one lake: ingest, compaction, vacuum and readers at the same time, for a minute.

    python benchmarks/soak.py [--seconds 60] [--ingesters 8]

Every ingester lands, stages, judges and publishes small files in a loop: one of its own (with a line that can't be
read), one that all of them land alike, and one that says more about a trajectory it landed the round before. One
process compacts, vacuums and verifies. Two readers ask through `flywheel.connect()`, one through plain DuckDB on
`data/lake.duckdb`: each look has to be one published snapshot (whole files, whole trajectories, an unbroken chain of
snapshots), the same however long one looks, and what an older snapshot showed it has to show later.

Bars: no process meets an error; at the end every trajectory of every file that was landed is there once, in its newest
revision, every refused line once, nothing waits in staging, and `verify` finds nothing. Prints one JSON line last;
exits 1 otherwise.

Not covered: killed processes (tests), several machines, S3.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

PER_FILE = 5  # trajectories of one file
WAIT_S = 600.0
Look = Callable[[], "duckdb.DuckDBPyConnection | None"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--ingesters", type=int, default=8)
    parser.add_argument("--role", choices=sorted(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        warm(given.role)
        print("ready", flush=True)
        until = float(sys.stdin.readline())
        print(json.dumps(ROLES[given.role](given.root, given.number, until)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        soak(Path(scratch, "workspace"), given.seconds, given.ingesters)


def warm(role: str) -> None:
    """What is slow to import is imported before the clock starts."""
    import flywheel.store.lake_maintain

    if role == "ingest":
        import great_expectations  # noqa: F401

        import flywheel.ingest
        import flywheel.validate  # noqa: F401


def soak(root: Path, seconds: float, ingesters: int) -> None:
    """All processes for so many seconds, then the reckoning."""
    from flywheel.store.keys import make_redaction_key
    from flywheel.workspace import Workspace

    root.mkdir()
    (root / "flywheel.toml").write_text("")
    make_redaction_key(Workspace(root))
    roles = [("ingest", n) for n in range(ingesters)] + [("upkeep", 0), ("reader", 0), ("reader", 1), ("plain", 2)]
    children = [(f"{role}-{number}", started(role, number, root)) for role, number in roles]
    for _, child in children:
        assert child.stdout is not None
        child.stdout.readline()
    until = time.time() + seconds
    for _, child in children:
        assert child.stdin is not None
        child.stdin.write(f"{until}\n")
        child.stdin.flush()
    said, errors = {}, []
    for name, child in children:
        out, err = child.communicate(timeout=seconds + WAIT_S)
        if child.returncode:
            errors.append(f"{name}: exit {child.returncode}: {' | '.join(err.strip().splitlines()[-6:])}")
        else:
            said[name] = json.loads(out.splitlines()[-1])
    rounds = {n: said[f"ingest-{n}"]["done"] for n in range(ingesters) if f"ingest-{n}" in said}
    problems = [problem for one in said.values() for problem in one["problems"]]
    problems += reckoning(root, rounds) if len(rounds) == ingesters else []
    result: dict[str, Any] = {
        "name": "soak", "value": len(errors) + len(problems), "bar": 0, "ok": not errors and not problems,
        "seconds": seconds, "ingesters": ingesters, "rounds": sum(rounds.values()),
        "upkeep": said.get("upkeep-0", {}).get("done"),
        "looks": sum(said.get(name, {}).get("done", 0) for name in ("reader-0", "reader-1", "plain-2")),
        "errors": errors, "problems": problems[:20],
    }  # fmt: skip
    print(json.dumps(result))
    sys.exit(0 if result["ok"] else 1)


def started(role: str, number: int, root: Path) -> subprocess.Popen[str]:
    """One process of the many; it waits for the common end on its standard input."""
    command = [sys.executable, __file__, "--role", role, "--number", str(number), "--root", str(root)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def trace(name: str, more: int = 0) -> dict[str, Any]:
    """A chat of four messages with one tool call, and more of them."""
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": 1}'}}
    messages = [
        {"role": "user", "content": f"question of {name}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "content": "it is 42"},
        *({"role": "user", "content": f"and then {ix}?"} for ix in range(more)),
    ]
    return {"id": native(name), "messages": messages}


def native(name: str) -> str:
    """An id that is long enough to be unique anywhere."""
    return f"trajectory-of-{name}"


def files_of(number: int, n: int) -> dict[str, list[Any]]:
    """What an ingester lands in its n-th round: names of files, and their records (None: a line that can't be read)."""
    own, shared = f"own-{number}-{n}", f"shared-{n}"
    found: dict[str, list[Any]] = {
        own: [None, *(trace(f"{own}-{ix}") for ix in range(PER_FILE))],
        shared: [trace(f"{shared}-{ix}") for ix in range(PER_FILE)],
    }
    if n:
        found[f"later-{number}-{n}"] = [trace(f"own-{number}-{n - 1}-0", more=2)]
    return found


def ingest_in_a_loop(root: Path, number: int, until: float) -> dict[str, Any]:
    """Land, stage, judge, publish, again and again; a round that was begun is finished."""
    from flywheel.config import Config
    from flywheel.ingest import ingest
    from flywheel.validate import validate
    from flywheel.workspace import Workspace

    workspace, problems, n = Workspace(root), [], 0
    with tempfile.TemporaryDirectory() as scratch:
        while time.time() < until:
            paths = []
            for name, records in files_of(number, n).items():
                path = Path(scratch, f"{name}.jsonl")
                broken = f'{{"broken in {name}'
                path.write_text("".join((broken if r is None else json.dumps(r)) + "\n" for r in records))
                paths.append(path)
            result = ingest(workspace, Config(), paths)
            problems += [f"ingest-{number}: refused: {sentence}" for sentence in result.refused]
            for judged in validate(workspace, Config()).judged:
                problems += [f"ingest-{number}: {judged.batch} failed: {sentence}" for sentence in judged.failed]
            n += 1
    return {"done": n, "problems": problems}


def look_after(root: Path, _: int, until: float) -> dict[str, Any]:
    """Compact, vacuum and verify in a loop."""
    from flywheel.store.lake import Lake
    from flywheel.store.lake_maintain import compact, vacuum, verify
    from flywheel.workspace import Workspace

    lake, problems, n = Lake(Workspace(root)), [], 0
    while time.time() < until:
        compact(lake)
        vacuum(lake)
        problems += [f"verify: {problem}" for problem in verify(lake)]
        n += 1
        time.sleep(0.5)
    return {"done": n, "problems": problems}


def read_by_api(root: Path, number: int, until: float) -> dict[str, Any]:
    """Look at the newest snapshot, and at older ones again."""
    import flywheel

    remembered: dict[str, Any] = {}

    def older(chance: random.Random) -> Iterator[str]:
        if remembered:
            snapshot = chance.choice(sorted(remembered))
            with flywheel.connect(root, snapshot) as con:
                if totals(con) != remembered[snapshot]:
                    yield f"{snapshot} shows {totals(con)} by now and showed {remembered[snapshot]}"

    return looks(lambda: flywheel.connect(root), number, until, remembered, older)


def read_by_duckdb(root: Path, number: int, until: float) -> dict[str, Any]:
    """Look at the file of views, as any tool does that knows DuckDB."""
    import duckdb

    file = root / "data" / "lake.duckdb"
    return looks(
        lambda: duckdb.connect(str(file), read_only=True) if file.exists() else None,
        number, until, {}, lambda chance: iter(()),
    )  # fmt: skip


def looks(
    look: Look,
    number: int,
    until: float,
    remembered: dict[str, Any],
    older: Callable[[random.Random], Iterator[str]],
) -> dict[str, Any]:
    """Look again and again; what was seen must be whole, and never less than before."""
    chance, problems, n, most = random.Random(number), [], 0, 0
    while time.time() < until:
        con = look()
        if con is not None:
            with con:
                found = [f"reader-{number}: {problem}" for problem in whole(con, chance)]
                seen = totals(con)
                head = con.sql("SELECT snapshot_id FROM snapshot ORDER BY created_at DESC LIMIT 1").fetchall()
            for (snapshot,) in head:
                if remembered.setdefault(snapshot, seen) != seen:
                    found.append(f"reader-{number}: {snapshot} shows {seen} and showed {remembered[snapshot]}")
                n += 1
            if seen["trajectory"] < most:
                found.append(f"reader-{number}: {most} trajectories became {seen['trajectory']}")
            most = max(most, seen["trajectory"])
            problems += [*found, *(f"reader-{number}: {problem}" for problem in older(chance))]
        time.sleep(0.05)
    return {"done": n, "problems": problems}


def totals(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows by table."""
    tables = ("trajectory_all", "trajectory", "step", "tool_call", "quarantine", "source_file", "snapshot", "batch_all")
    return {table: con.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}


# What one published snapshot never shows: a query each, whose rows are the problems.
NEVER = {
    "a trajectory without all its steps or calls": """
        SELECT trajectory_id FROM trajectory t WHERE n_steps <> (SELECT count(*) FROM step s
            WHERE s.trajectory_id = t.trajectory_id) OR n_tool_calls <> (SELECT count(*) FROM tool_call c
            WHERE c.trajectory_id = t.trajectory_id)""",
    "steps without their trajectory": "SELECT trajectory_id FROM step ANTI JOIN trajectory USING (trajectory_id)",
    "a trajectory twice": "SELECT trajectory_id FROM trajectory GROUP BY 1 HAVING count(*) > 1",
    "a source twice": "SELECT source_id FROM source_file GROUP BY 1 HAVING count(*) > 1",
    "a refused record twice": """
        SELECT source_id FROM quarantine GROUP BY source_id, record_ix, byte_offset HAVING count(*) > 1""",
    "a file in part": f"""
        WITH part AS (SELECT regexp_extract(native_id, '(own|shared)-[0-9-]+-') AS file, count(*) AS n
                      FROM trajectory GROUP BY 1)
        SELECT file, n FROM part WHERE n <> {PER_FILE}""",
    "a source without its rows": """
        SELECT uri FROM source_file WHERE regexp_extract(uri, '((own|shared)-[0-9-]+)\\.jsonl', 1) || '-' NOT IN
            (SELECT regexp_extract(native_id, '(own|shared)-[0-9-]+-') FROM trajectory) AND uri NOT LIKE '%later-%'""",
    "a snapshot whose parent is not there": """
        SELECT snapshot_id FROM snapshot WHERE parent_id IS NOT NULL AND parent_id NOT IN (
            SELECT snapshot_id FROM snapshot)""",
    "two snapshots on one parent": "SELECT parent_id FROM snapshot GROUP BY 1 HAVING count(*) > 1",
    "rows of a batch that no snapshot has": """
        SELECT batch_id FROM trajectory_all WHERE batch_id NOT IN (SELECT unnest(batches) FROM snapshot)""",
    "a batch that no snapshot has": """
        SELECT batch_id FROM batch WHERE state = 'accepted' AND batch_id NOT IN (
            SELECT unnest(batches) FROM snapshot)""",
    "a snapshot without its batch": """
        SELECT snapshot_id FROM (SELECT snapshot_id, unnest(batches) AS b FROM snapshot) WHERE b NOT IN (
            SELECT batch_id FROM batch)""",
}  # fmt: skip


def whole(con: duckdb.DuckDBPyConnection, chance: random.Random) -> Iterator[str]:
    """What a connection shows that a published snapshot can't be; and whether it shows the same a moment later."""
    before = totals(con)
    for what, sql in NEVER.items():
        rows = con.sql(sql).fetchall()
        if rows:
            yield f"{what}: {len(rows)}, e.g. {rows[0]}"
    time.sleep(chance.uniform(0, 0.3))
    if totals(con) != before:
        yield f"one connection showed {before} and then {totals(con)}"


def reckoning(root: Path, rounds: dict[int, int]) -> Iterator[str]:
    """What is lost, doubled or left over once all is done."""
    from flywheel.store.lake import Lake
    from flywheel.store.lake_maintain import verify
    from flywheel.workspace import Workspace

    lake = Lake(Workspace(root))
    landed = {
        name: records for number, done in rounds.items() for n in range(done)
        for name, records in files_of(number, n).items()
    }  # fmt: skip
    expected: dict[str, int] = {}
    for records in landed.values():
        for record in filter(None, records):
            expected[record["id"]] = max(expected.get(record["id"], 0), len(record["messages"]))
    found = {row["native_id"]: row["n_steps"] for row in lake.query("SELECT native_id, n_steps FROM trajectory")}
    yield from (f"lost: {name}" for name in expected.keys() - found.keys())
    yield from (f"out of nowhere: {name}" for name in found.keys() - expected.keys())
    yield from (f"{name} has {found[name]} steps, not {n}" for name, n in expected.items() if found.get(name, n) != n)
    with lake.connect() as con:
        yield from whole(con, random.Random(0))
        seen = totals(con)
    counts = {
        "trajectory": len(expected), "step": sum(expected.values()), "tool_call": len(expected),
        "quarantine": sum(None in records for records in landed.values()), "source_file": len(landed),
    }  # fmt: skip
    yield from (f"{table} has {seen[table]} rows, not {n}" for table, n in counts.items() if seen[table] != n)
    yield from (f"{batch} still waits" for batch in (*lake.staged(), *lake.failed()))
    yield from (f"left in staging: {path.name}" for path in lake.workspace.staging.glob("*"))
    yield from (f"verify: {problem}" for problem in verify(lake))


ROLES: dict[str, Callable[[Path, int, float], dict[str, Any]]] = {
    "ingest": ingest_in_a_loop,
    "upkeep": look_after,
    "reader": read_by_api,
    "plain": read_by_duckdb,
}

if __name__ == "__main__":
    main()
