"""Every flow on a real Prefect server: alone, inside a turn, and when its stage refuses."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from running_ui import RunningUi, artifacts_of, post, subflows_of

from flows.maintain import maintain
from flows.turn import FLOWS, turn
from flywheel.config import Evaluate
from flywheel.errors import ArtifactError, ConfigError, WorkspaceError
from flywheel.workspace import Workspace

pytestmark = pytest.mark.prefect

Refused = Callable[[Workspace], Callable[[], Any]]
ORDER = ["ingest", "repair", "curate", "train", "evaluate", "promote", "report"]


@dataclass(frozen=True, slots=True)
class FlowTurn:
    """A turn under Prefect: its workspace, what it returned, its flow run, and those of its stages by name."""

    workspace: Workspace
    result: dict[str, Any]
    run: dict[str, Any]
    stages: dict[str, dict[str, Any]]


def leaves(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Everything a stage returned as text, under its dotted name."""
    for name, value in result.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", text) for inner, text in leaves(value))
        else:
            yield name, str(value)


def newest(flow: str) -> dict[str, Any]:
    """The flow run of this flow that was created last."""
    body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC", "limit": 200}
    runs: list[dict[str, Any]] = post("/flow_runs/filter", body)
    return max(runs, key=lambda run: run["created"])


@pytest.fixture(scope="module")
def flow_turn(ui: RunningUi, served_once: Workspace, tmp_path_factory: pytest.TempPathFactory) -> FlowTurn:
    folder = tmp_path_factory.mktemp("flow-turn") / "w"
    shutil.copytree(served_once.root, folder, symlinks=True)
    result = turn(root=str(folder))
    run = newest("turn")
    return FlowTurn(Workspace(folder), result, run, subflows_of(run["id"]))


def test_a_turn_runs_its_stages_as_subflows(flow_turn: FlowTurn) -> None:
    assert flow_turn.run["state_type"] == "COMPLETED"
    assert {name: run["state_type"] for name, run in flow_turn.stages.items()} == dict.fromkeys(ORDER, "COMPLETED")
    assert sorted(ORDER, key=lambda name: flow_turn.stages[name]["start_time"]) == ORDER
    outcome = artifacts_of(flow_turn.run["id"])["turn-outcome"]
    assert outcome["type"] == "markdown"
    assert flow_turn.result["verdict"] in outcome["data"]


@pytest.mark.parametrize("stage", ORDER)
def test_each_stage_shows_how_far_it_is_and_what_it_did(flow_turn: FlowTurn, stage: str) -> None:
    shown = artifacts_of(flow_turn.stages[stage]["id"])
    assert shown[f"{stage}-progress"]["type"] == "progress"
    assert shown[f"{stage}-progress"]["data"] == 100.0
    assert shown[f"{stage}-result"]["type"] == "table"
    rows = {row["what"]: row["value"] for row in json.loads(shown[f"{stage}-result"]["data"])}
    assert rows == dict(leaves(flow_turn.result["results"][stage]))


def test_the_decision_stands_in_the_run_with_its_reasons(flow_turn: FlowTurn) -> None:
    gate = flow_turn.result["results"]["promote"]["gate"]
    shown = artifacts_of(flow_turn.stages["promote"]["id"])["promote-decision"]
    assert shown["type"] == "markdown"
    assert shown["data"].startswith(f"# {gate['verdict']}\n")
    rows = [line.split(" | ") for line in shown["data"].splitlines() if line.startswith("| ")]
    assert [row[0].removeprefix("| ") for row in rows[2:]] == [check["name"] for check in gate["checks"]]
    assert gate["decision_id"] in shown["data"]


def test_the_report_run_says_what_was_fixed_and_where_the_page_is(flow_turn: FlowTurn) -> None:
    shown = artifacts_of(flow_turn.stages["report"]["id"])
    text = shown["report-turn"]["data"]
    after = flow_turn.result["results"]["evaluate"]["candidate"]
    assert "went from never passing to passing every run" in text
    assert f"{after['pass_rate']:.3f}" in text
    assert f"`{flow_turn.result['page']}`" in text, "nobody serves this workspace: its path has to stand there"
    picture = shown["report-rates"]
    assert picture["type"] == "image"
    kind, data = picture["data"].split(",", 1)
    assert kind == "data:image/svg+xml;base64"
    assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")


def test_each_stage_runs_alone_and_changes_nothing_the_second_time(flow_turn: FlowTurn) -> None:
    results, root = flow_turn.result["results"], str(flow_turn.workspace.root)
    run = results["train"]["run_id"]
    ids: dict[str, dict[str, str]] = {
        "train": {"curriculum": results["curate"]["curriculum_id"]},
        "evaluate": {"run": run},
        "promote": {
            "run": run,
            "candidate": results["evaluate"]["candidate"]["evaluation_id"],
            "incumbent": results["evaluate"]["incumbent"]["evaluation_id"],
        },
    }
    alone = {stage: FLOWS[stage](root=root, **ids.get(stage, {})) for stage in ("train", "promote", "report", "ingest")}
    for stage in ("train", "promote", "report"):
        assert alone[stage] == results[stage]
    assert alone["ingest"]["batch"] is None
    assert alone["ingest"]["snapshot"] is not None
    for stage in alone:
        run_of_stage = newest(stage)
        assert run_of_stage["parent_task_run_id"] is None
        assert run_of_stage["state_type"] == "COMPLETED"
        assert f"{stage}-result" in artifacts_of(run_of_stage["id"])


def test_upkeep_runs_alone(flow_turn: FlowTurn) -> None:
    done = maintain(root=str(flow_turn.workspace.root))
    assert list(done) == ["compact", "vacuum", "verify"]
    assert newest("maintain")["state_type"] == "COMPLETED"


def test_a_field_of_the_form_replaces_that_field_alone(flow_turn: FlowTurn) -> None:
    """k is given; task set, temperature and seed are as flywheel.toml says, so the evaluation is another one."""
    results, root = flow_turn.result["results"], str(flow_turn.workspace.root)
    judged = FLOWS["evaluate"](root=root, run=results["train"]["run_id"], settings=Evaluate(k=1))
    folder = flow_turn.workspace.evals / judged["candidate"]["evaluation_id"]
    inputs = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["inputs"]
    before = json.loads(
        (flow_turn.workspace.evals / flow_turn.result["candidate"] / "manifest.json").read_text(encoding="utf-8")
    )["inputs"]
    assert inputs == before | {"k": 1}


def test_a_second_turn_says_that_there_is_nothing_to_do(flow_turn: FlowTurn) -> None:
    again = turn(root=str(flow_turn.workspace.root))
    run = newest("turn")
    assert again["new"] is False
    assert run["state_type"] == "COMPLETED"
    assert artifacts_of(run["id"])["turn-outcome"]["data"].startswith("# Nothing to do")
    assert set(subflows_of(run["id"])) < set(ORDER)


def no_such_curriculum(workspace: Workspace) -> Callable[[], Any]:
    return lambda: FLOWS["train"](root=str(workspace.root), curriculum="curriculum-nope")


def broken_suite(workspace: Workspace) -> Callable[[], Any]:
    folder = workspace.root / "expectations"
    folder.mkdir(exist_ok=True)
    (folder / "trajectory.yaml").write_text("table: trajectory\nexpect: 7\n", encoding="utf-8")
    return lambda: turn(root=str(workspace.root))


@pytest.mark.parametrize(
    ("flow", "refused", "error"),
    [("train", no_such_curriculum, ArtifactError), ("turn", broken_suite, ConfigError)],
)
def test_a_refusal_is_the_run_s_message(
    ui: RunningUi,
    served: Workspace,
    flow: str,
    refused: Callable[[Workspace], Callable[[], Any]],
    error: type[Exception],
) -> None:
    """The sentence of the stage is the message of its run, and of the turn's; in Python it is the same exception."""
    with pytest.raises(error) as raised:
        refused(served)()
    run = newest(flow)
    stages = subflows_of(run["id"]).values()
    assert len(stages) == (flow == "turn")
    for failed in (run, *stages):
        assert failed["state_type"] == "FAILED"
        assert failed["state"]["message"] == str(raised.value)


def test_a_folder_that_is_no_workspace_is_refused(ui: RunningUi, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="flywheel init"):
        turn(root=str(tmp_path))
    assert newest("turn")["state"]["message"].startswith(f"{tmp_path} has no flywheel.toml")
