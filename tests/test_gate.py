"""The gate verb on evaluations that lie in a real workspace, with a real lake."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flywheel.config import Config, Gate
from flywheel.errors import ArtifactError, GateError
from flywheel.gate import gate
from flywheel.records import Report
from flywheel.statistics.reports import report_to_json
from flywheel.statistics.simulate import simulated_report
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

GROUPS = [f"phrasing-{t // 4:02d}" for t in range(48)]
CONFIG = Config()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "flywheel.toml").write_text("", encoding="utf-8")
    return Workspace(tmp_path)


def evaluated(workspace: Workspace, policy: str, rate: float, seed: int, **changes: object) -> str:
    """Place a finished evaluation of a policy with that true pass rate; returns its id."""
    report = replace(simulated_report(policy, [rate] * 48, GROUPS, k=4, seed=seed), **changes)  # type: ignore[arg-type]
    return placed(workspace, report)


def placed(workspace: Workspace, report: Report) -> str:
    folder = workspace.evals / report.evaluation_id
    artifacts.write_atomic(folder / "report.json", report_to_json(report).encode())
    artifacts.finish(folder, "evaluation", report.evaluation_id, {"policy": report.policy}, {})
    return report.evaluation_id


@pytest.mark.parametrize(
    ("rate", "seed", "verdict"), [(0.7, 1, "PROMOTE"), (0.05, 1, "REJECT"), (0.33, 13, "INCONCLUSIVE")]
)
def test_the_decision_is_an_artefact_and_one_row_of_the_ledger(
    workspace: Workspace, rate: float, seed: int, verdict: str
) -> None:
    candidate = evaluated(workspace, "candidate", rate, seed)
    incumbent = evaluated(workspace, "incumbent", 0.28, 14)
    result = gate(workspace, CONFIG, candidate_eval=candidate, incumbent_eval=incumbent)
    assert result.verdict == verdict
    assert result.sentence == result.reasons[0]
    assert result.sentence.startswith(verdict)
    assert (result.more_runs is not None) == (verdict == "INCONCLUSIVE")
    folder = workspace.decisions / result.decision_id
    assert artifacts.load(folder, verify=True).summary == {"verdict": verdict}
    stored = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    assert (stored["candidate"], stored["incumbent"]) == ("candidate", "incumbent")
    assert stored["checks"] == result.checks
    rows = Lake(workspace).query("select decision_id, candidate, incumbent, verdict, reasons, looks from decision")
    assert len(rows) == 1
    assert rows[0]["verdict"] == verdict
    assert rows[0]["decision_id"] == result.decision_id
    reasons = json.loads(rows[0]["reasons"])
    assert reasons["candidate_evaluation"] == candidate
    assert reasons["checks"] == json.loads(json.dumps(result.checks))


def test_a_second_time_is_the_same_result_and_no_second_row(workspace: Workspace) -> None:
    ids = {
        "candidate_eval": evaluated(workspace, "candidate", 0.7, 1),
        "incumbent_eval": evaluated(workspace, "incumbent", 0.2, 2),
    }
    first = gate(workspace, CONFIG, **ids)
    before = (workspace.decisions / first.decision_id / "manifest.json").stat().st_mtime_ns
    assert gate(workspace, CONFIG, **ids) == first
    assert (workspace.decisions / first.decision_id / "manifest.json").stat().st_mtime_ns == before
    assert Lake(workspace).query("select count(*) as n from decision") == [{"n": 1}]


def test_killed_between_the_folder_and_the_row_the_row_is_caught_up(workspace: Workspace, tmp_path: Path) -> None:
    ids = {
        "candidate_eval": evaluated(workspace, "candidate", 0.7, 1),
        "incumbent_eval": evaluated(workspace, "incumbent", 0.2, 2),
    }
    done = gate(workspace, CONFIG, **ids)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "flywheel.toml").write_text("", encoding="utf-8")
    other = Workspace(tmp_path / "other")
    shutil.copytree(workspace.decisions, other.decisions)  # a workspace that has the decision and not yet its row
    assert gate(other, CONFIG, **ids) == done
    assert Lake(other).query("select decision_id from decision") == [{"decision_id": done.decision_id}]


def test_ids_are_of_the_inputs_alone(workspace: Workspace) -> None:
    candidate = evaluated(workspace, "candidate", 0.7, 1)
    incumbent = evaluated(workspace, "incumbent", 0.2, 2)
    strict = CONFIG.model_copy(update={"gate": Gate(alpha=0.01)})
    first = gate(workspace, CONFIG, candidate_eval=candidate, incumbent_eval=incumbent)
    second = gate(workspace, strict, candidate_eval=candidate, incumbent_eval=incumbent)
    turned = gate(workspace, CONFIG, candidate_eval=incumbent, incumbent_eval=candidate)
    assert len({first.decision_id, second.decision_id, turned.decision_id}) == 3
    assert turned.verdict == "REJECT"
    json.dumps(asdict(first), allow_nan=False)


def test_what_can_not_be_compared_leaves_no_decision(workspace: Workspace) -> None:
    candidate = evaluated(workspace, "candidate", 0.7, 1, taskset_sha256="1" * 64)
    incumbent = evaluated(workspace, "incumbent", 0.2, 2)
    with pytest.raises(GateError, match="different task sets"):
        gate(workspace, CONFIG, candidate_eval=candidate, incumbent_eval=incumbent)
    assert not workspace.decisions.exists()
    assert Lake(workspace).query("select count(*) as n from decision") == [{"n": 0}]


def test_an_unfinished_or_edited_evaluation_is_no_evidence(workspace: Workspace) -> None:
    candidate = evaluated(workspace, "candidate", 0.2, 1)
    incumbent = evaluated(workspace, "incumbent", 0.2, 2)
    with pytest.raises(ArtifactError, match="not a finished artefact"):
        gate(workspace, CONFIG, candidate_eval="evaluation-of-nothing", incumbent_eval=incumbent)
    report = workspace.evals / candidate / "report.json"
    report.write_bytes(report.read_bytes().replace(b'"passed":0', b'"passed":4'))
    with pytest.raises(ArtifactError, match="differs from its manifest"):
        gate(workspace, CONFIG, candidate_eval=candidate, incumbent_eval=incumbent)


def test_a_report_in_another_evaluations_folder_is_refused(workspace: Workspace) -> None:
    incumbent = evaluated(workspace, "incumbent", 0.2, 2)
    report = simulated_report("candidate", [0.7] * 48, GROUPS, k=4, seed=1)
    folder = workspace.evals / "evaluation-elsewhere"
    artifacts.write_atomic(folder / "report.json", report_to_json(report).encode())
    artifacts.finish(folder, "evaluation", "evaluation-elsewhere", {}, {})
    with pytest.raises(GateError, match="holds the report of evaluation-candidate-1"):
        gate(workspace, CONFIG, candidate_eval="evaluation-elsewhere", incumbent_eval=incumbent)
