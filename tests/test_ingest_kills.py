"""kill -9 at random moments of ingest, judging and publishing, then again from the start: the rows are the same.

8 kills; FLYWHEEL_KILL_POINTS=n makes it n.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kills import rows
from test_ingest import make_workspace, trace, write

from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import verify
from flywheel.store.tables import TABLES
from flywheel.workspace import Workspace

POINTS = int(os.environ.get("FLYWHEEL_KILL_POINTS", "8"))
# Drafts of killed writers, and the journal of a publisher that was killed when all but dropping it was done.
LEFTOVERS = ("never finished", "the next publish finishes it")
# What is slow to import is imported before the clock starts, so that kills fall into the work.
RUN = """
import sys
from pathlib import Path
import great_expectations
from flywheel.config import Config, Ingest
from flywheel.ingest import ingest
from flywheel.store import lake_stage
from flywheel.validate import validate
from flywheel.workspace import Workspace
lake_stage.GROUP_BYTES = 1 << 16
print("begun", flush=True)
workspace = Workspace(Path(sys.argv[1]))
ingest(workspace, Config(), [Path(sys.argv[2])])
validate(workspace, Config())
"""


def start(workspace: Workspace, landed: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, str(workspace.root), str(landed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n", child.stderr and child.stderr.read()
    return child


def finish(child: subprocess.Popen[str]) -> float:
    began = time.monotonic()
    _, said = child.communicate(timeout=180)
    assert child.returncode == 0, said
    return time.monotonic() - began


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    """Two files: retries, a trajectory in both, parts that wait for each other, and lines that can't be read."""
    noise = random.Random(3)
    many = [trace(ix, {"role": "user", "content": noise.randbytes(900).hex()}) for ix in range(300)]
    session = [
        {"id": f"call-{ix:016d}", "session_id": "session-of-several-calls", **trace(0), "metadata": {"n": ix}}
        for ix in range(5)
    ]
    write(tmp_path / "in" / "a.jsonl", *many, many[7], b"{broken", *session)
    write(tmp_path / "in" / "b.jsonl", many[3], trace(4), b"\xff{")
    return tmp_path / "in"


def state(workspace: Workspace) -> dict[str, list[str]]:
    return {table: rows(workspace, table) for table in TABLES}


def test_killed_at_random_moments_and_started_again_the_lake_holds_the_same_rows(
    tmp_path: Path, landed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    undisturbed = make_workspace(tmp_path / "undisturbed")
    took = finish(start(undisturbed, landed))
    expected = state(undisturbed)
    assert len(expected["trajectory"]) > 300 and expected["quarantine"]
    chance, hits, ends, number = random.Random(POINTS), [], 0, 0
    while len(hits) < POINTS:
        workspace = make_workspace(tmp_path / f"killed-{number}")
        copy_key(undisturbed, workspace)
        number += 1
        for _ in range(5):  # kills in a row, without an end between them
            child = start(workspace, landed)
            after = chance.uniform(0, took)
            time.sleep(after)
            child.kill()
            child.communicate()
            if child.returncode == 0:
                break
            hits.append(after)
        finish(start(workspace, landed))
        ends += 1
        assert state(workspace) == expected
        assert not [problem for problem in verify(Lake(workspace)) if not any(left in problem for left in LEFTOVERS)]
    with capsys.disabled():
        print(f"\n  {len(hits)} kills within {took:.2f} s of work, {ends} ends: the same rows")


def copy_key(source: Workspace, target: Workspace) -> None:
    """Pseudonyms are keyed: the same rows need the same key."""
    key = Path(".flywheel") / "redaction.key"
    (target.root / key).write_bytes((source.root / key).read_bytes())
