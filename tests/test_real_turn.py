"""A whole turn with a real model of half a million weights through TRL: nothing scripted, so nothing is promised.

The model can't learn the task. What is tested is that a real model goes all the way: its failures land, repair finds
nothing, expert rows (marked as such) train it, both policies are tried, and the gate says no for an honest reason.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tiny_model import make_tiny_policy

from flows.turn import order
from flywheel.config import Base, Config, Curate, Evaluate, Repair, Tasks, Train
from flywheel.init import init
from flywheel.records import Request, Sampling
from flywheel.stages import STAGES
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_tasks
from flywheel.traffic import serve_traffic
from flywheel.trainers import open_policy
from flywheel.turn import open_turn
from flywheel.workspace import Workspace

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("real")
    config = Config(
        base=Base(model=str(make_tiny_policy(folder / "tiny"))),
        tasks=Tasks(train=24, holdout=24),
        repair=Repair(k=1, shots=0, max_tokens=8),
        curate=Curate(expert=16, max_length=2048),
        train=Train(recipe="sft", steps=4, batch=4, lora_r=4, learning_rate=1e-2),
        evaluate=Evaluate(k=1, max_tokens=8),
    )
    init(folder / "w", config=config)
    workspace = Workspace.find(folder / "w")
    serve_traffic(workspace, config, taskset="online", at=datetime(2026, 1, 5, tzinfo=UTC))
    return workspace, order(open_turn(workspace.root, STAGES))


def test_a_real_model_goes_all_the_way_and_is_not_promoted(turned: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, result = turned
    assert result["new"] is True
    assert result["verdict"] in ("INCONCLUSIVE", "REJECT")
    assert result["version"] == "v0.1.0"
    assert result["results"]["repair"]["rollouts"] == 24
    assert result["results"]["repair"]["verified"] == 0
    metrics = (workspace.runs / result["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(metrics) == 4


def test_expert_rows_are_called_expert(turned: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, result = turned
    rows = Lake(workspace).query(
        "select source, count(*) as n from curriculum_row where kept and curriculum_id = $1 group by 1",
        [result["curriculum"]],
    )
    assert {row["source"]: row["n"] for row in rows} == {"expert": 16}


def test_the_run_is_weights_that_load_and_differ_from_the_base(turned: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, result = turned
    tasks = load_tasks(workspace, "holdout")
    trained = open_policy(workspace.runs / result["run"] / "policy", tasks)
    assert trained.identity != open_policy(workspace.base, tasks).identity
    request = Request(messages=({"role": "user", "content": "Where is order A-1001?"},))
    (reply,) = trained.act([request], Sampling(temperature=0.0, max_tokens=4))
    assert 1 <= reply.output_tokens <= 4
