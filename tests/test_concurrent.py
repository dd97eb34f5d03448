"""Several processes at one lake: ingest, upkeep and readers at once, and what they do to each other's staged batches.

The minute with eight ingesters is `benchmarks/soak.py`; here it runs for some seconds with three.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_ingest import CONFIG, make_workspace, trace, write

from flywheel.ingest import ingest
from flywheel.ledger import Validation
from flywheel.store import lake_publish
from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import verify
from flywheel.validate import validate
from flywheel.workspace import Workspace

SOAK = Path(__file__).parents[1] / "benchmarks" / "soak.py"


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path / "bare")


def test_ingest_upkeep_and_readers_at_once_lose_nothing_and_show_whole_snapshots() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "8", "--ingesters", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["rounds"] >= 3 and said["upkeep"] >= 1


def test_a_batch_that_another_process_judges_is_waited_for_and_judged_once(bare: Workspace, tmp_path: Path) -> None:
    ingest(bare, CONFIG, [write(tmp_path / "a.jsonl", trace(1))])
    (batch,) = Lake(bare).staged()
    judged = []
    other = threading.Thread(target=lambda: judged.append(validate(bare, CONFIG)))
    with Lake(bare).deciding(batch) as undecided:
        assert undecided
        other.start()
        other.join(0.5)
        assert other.is_alive()
        Lake(bare).publish(batch)
    other.join()
    assert [result.judged for result in judged] == [()]
    assert judged[0].snapshot == (Lake(bare).head() or pytest.fail("nothing is published")).snapshot_id
    assert not list(bare.staging.iterdir()) and verify(Lake(bare)) == []


def test_what_a_killed_publisher_left_is_finished_before_it_would_be_judged(bare: Workspace, tmp_path: Path) -> None:
    ingest(bare, CONFIG, [write(tmp_path / "a.jsonl", trace(1))])
    lake = Lake(bare)
    (batch,) = lake.staged()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_publish, "write_snapshot", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.publish(batch)
    assert lake.head() is None and lake.staged() == [batch]
    with lake.deciding(batch) as undecided:
        assert not undecided
    assert lake.query("SELECT count(*) AS n FROM trajectory") == [{"n": 1}]


def test_what_a_process_publishes_by_itself_is_nobody_elses_to_judge(bare: Workspace) -> None:
    lake = Lake(bare)
    verdict = Validation(
        validation_id="v", target_kind="batch", target_id="b", suite="step", suite_sha256="s", success=True, n_failed=0
    )
    lake.stage("own", {"validation": [verdict]}, judged=False)
    assert list(lake.in_staging()) == ["own"] and lake.staged() == [] and validate(bare, CONFIG).judged == ()
    lake.publish("own", {"validation": [verdict]})
    assert lake.query("SELECT validation_id FROM validation") == [{"validation_id": "v"}]


def test_a_batch_that_was_published_while_it_was_staged_again_does_not_come_back(
    bare: Workspace, tmp_path: Path
) -> None:
    ingest(bare, CONFIG, [write(tmp_path / "a.jsonl", trace(1))])
    lake = Lake(bare)
    (batch,) = lake.staged()
    late = lake.draft(batch)
    lake.publish(batch)
    lake.finish_draft(batch, late, {"objects": []})
    assert lake.staged() == [] and not list(bare.staging.iterdir())
