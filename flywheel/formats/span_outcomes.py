"""Outcomes that tracing tools record: GenAI evaluation events, annotations of spans, traces and sessions, assessments.

A polarity is given where a label or a boolean says it, or where a person gave the number. A judge's number has one
unless its name says that less is better (toxicity, hallucination, ...).

Not covered: what a headline makes of them (`feedback.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_text
from flywheel.formats.span_view import View, decoded_object
from flywheel.formats.times import read_time
from flywheel.records import Outcome, Span, Step, content_id

EVALUATION = "gen_ai.evaluation.result"
_LESS_IS_BETTER = re.compile(r"(?i)toxic|halluc|harm|bias|error|violat|jailbreak|injection|latency|cost|refus")
_KINDS = {
    "HUMAN": "human_user", "LLM": "llm_judge", "LLM_JUDGE": "llm_judge", "CODE": "heuristic", "AI_JUDGE": "llm_judge",
}  # fmt: skip


def source_kind(value: Any) -> str:
    """Of the words of Phoenix and MLflow for who annotated."""
    return _KINDS.get((as_text(value) or "").upper(), "system")


def score_polarity(name: str, label: Any, score: Any, source: str) -> int | None:
    """-1, 0, +1, or None where nothing says whether it is good."""
    said = feedback.polarity_of(label) if isinstance(label, (str, bool)) else None
    if said is not None or score is None:
        return said
    if isinstance(score, bool) or source.startswith("human") or not _LESS_IS_BETTER.search(name):
        return feedback.polarity_of(score)
    return None


def scored(name: str, label: Any, score: Any, source: str) -> dict[str, Any]:
    """Columns of an outcome that has a score, a label, or both."""
    columns = feedback.value_columns(label if score is None else score)
    if score is not None and isinstance(label, str):
        columns["value_text"] = label
    return {**columns, "name": name, "polarity": score_polarity(name, label, score, source), "source_kind": source}


def evaluations(
    views: Iterable[View], logs: Sequence[Span], trajectory_id: str, steps: Sequence[Step]
) -> list[Outcome]:
    """The evaluation events of an agent's spans and the loose ones of its trace, on the step they name, if any."""
    made: dict[str, Outcome] = {}
    for view in views:
        for event in view.events:
            if event.name == EVALUATION:
                found = evaluation(event.attributes, event.at, view.row.span_id, trajectory_id, steps)
                made[found.outcome_id] = found
    for log in logs:
        if log.name == EVALUATION:
            found = evaluation(decoded_object(log.attributes), log.start_ns, None, trajectory_id, steps)
            made[found.outcome_id] = found
    return list(made.values())


def evaluation(
    attributes: Mapping[str, Any], at: Any, span_id: str | None, trajectory_id: str | None, steps: Sequence[Step]
) -> Outcome:
    """One GenAI evaluation; without a trajectory it names its target by response id."""
    start = "gen_ai.evaluation."
    name = as_text(attributes.get(start + "name")) or "evaluation"
    score, label = attributes.get(start + "score.value"), attributes.get(start + "score.label")
    response = as_text(attributes.get("gen_ai.response.id"))
    step = next((s for s in steps if response is not None and s.llm_call_id == response), None)
    if step is None and response is None:
        step = next((s for s in steps if span_id is not None and s.span_id == span_id and s.sampled), None)
    known = {start + part for part in ("name", "score.value", "score.label", "explanation")}
    rest = {key: value for key, value in attributes.items() if key not in known}
    judged = any(key.startswith(("gen_ai.request.model", "gen_ai.evaluation.model")) for key in attributes)
    return Outcome(
        outcome_id=content_id("outcome", trajectory_id, span_id, name, dumps([score, label, response]), str(at)),
        trajectory_id=trajectory_id,
        target_kind="step" if step is not None else "span" if span_id or response else "trajectory",
        step_ix=None if step is None else step.step_ix,
        native_target_id=response or span_id,
        **scored(name, label, score, "llm_judge" if judged else "system"),
        explanation=as_text(attributes.get(start + "explanation")),
        created_at=read_time(at).at,
        metadata=dumps(rest) if rest else None,
    )
