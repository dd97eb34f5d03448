"""Gate: read the reports of two evaluations, decide, and keep the decision with every reason and number.

    flywheel gate --candidate EVALUATION --incumbent EVALUATION

Writes data/decisions/<id>/decision.json and one `decision` row of the ledger. The judgement itself is the pure
function `statistics.decision.decide`; here are only its inputs and its place. Not covered: acting on it (`promote`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flywheel.config import Config
from flywheel.errors import GateError
from flywheel.ledger import Decision
from flywheel.progress import Progress, silent
from flywheel.records import Report, canonical_json, content_id
from flywheel.statistics.decision import decide
from flywheel.statistics.reports import report_from_json
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The decision and what it rests on; `checks` are those of decision.json, in order."""

    decision_id: str
    verdict: str  # PROMOTE|REJECT|INCONCLUSIVE
    sentence: str
    reasons: tuple[str, ...]
    checks: Sequence[dict[str, Any]]
    more_tasks: int | None
    more_runs: int | None
    candidate: str  # identities of the two policies
    incumbent: str
    candidate_evaluation: str
    incumbent_evaluation: str


def gate(
    workspace: Workspace,
    config: Config,
    *,
    candidate_eval: str,
    incumbent_eval: str,
    progress: Progress = silent,
) -> GateResult:
    """Decide on two finished evaluations. The same evaluations and `[gate]` settings give the same decision.

    Errors: ArtifactError for an evaluation that is missing, unfinished or was changed after it was finished;
    GateError for two that can't be compared.
    """
    settings = config.gate.model_dump()
    decision_id = content_id("decision", candidate_eval, incumbent_eval, settings)
    folder = workspace.decisions / decision_id
    if not artifacts.is_finished(folder):
        decision = decide(_report(workspace, candidate_eval), _report(workspace, incumbent_eval), config.gate)
        inputs = {"candidate": candidate_eval, "incumbent": incumbent_eval, "gate": settings}
        text = json.dumps(asdict(decision), indent=1, sort_keys=True, allow_nan=False) + "\n"
        artifacts.write_atomic(folder / "decision.json", text.encode())
        artifacts.finish(folder, "decision", decision_id, inputs, {"verdict": decision.verdict})
    result = _read(workspace, decision_id)
    # Published even when the folder stood already: a run killed between the two steps has the folder and no row.
    Lake(workspace).publish(decision_id, {"decision": [_row(result, settings["alpha"])]})
    progress(1, 1, "decision")
    return result


def _report(workspace: Workspace, evaluation_id: str) -> Report:
    folder = workspace.evals / evaluation_id
    artifacts.load(folder, verify=True)  # a report that was edited after the trial is no evidence
    report = report_from_json((folder / "report.json").read_bytes(), f"{folder / 'report.json'}")
    if report.evaluation_id != evaluation_id:
        raise GateError(f"{folder} holds the report of {report.evaluation_id}: evaluate the policy again")
    return report


def _read(workspace: Workspace, decision_id: str) -> GateResult:
    folder = workspace.decisions / decision_id
    artifacts.load(folder, verify=True)
    stored = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    return GateResult(
        decision_id=decision_id,
        verdict=stored["verdict"],
        sentence=stored["reasons"][0],
        reasons=tuple(stored["reasons"]),
        checks=stored["checks"],
        more_tasks=stored["more_tasks"],
        more_runs=stored["more_runs"],
        candidate=stored["candidate"],
        incumbent=stored["incumbent"],
        candidate_evaluation=stored["candidate_evaluation"],
        incumbent_evaluation=stored["incumbent_evaluation"],
    )


def _row(result: GateResult, alpha: float) -> Decision:
    return Decision(
        decision_id=result.decision_id,
        candidate=result.candidate,
        incumbent=result.incumbent,
        verdict=result.verdict,
        reasons=canonical_json(
            {
                "sentence": result.sentence,
                "candidate_evaluation": result.candidate_evaluation,
                "incumbent_evaluation": result.incumbent_evaluation,
                "checks": list(result.checks),
            }
        ),
        looks=1,
        alpha_spent=alpha,
        by_whom="gate",
    )
