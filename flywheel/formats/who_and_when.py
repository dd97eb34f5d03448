"""Who&When: multi-agent runs that failed, with the agent and the step that a person holds responsible.

    {history: [{content, role, name?}], question, question_ID, ground_truth, is_correct | is_corrected,
     mistake_agent, mistake_step, mistake_reason, level?, system_prompt?: {agent: text}}

Of the generated half `name` says who speaks and `role` who listens; of the hand-made half `role` is the speaker, with a
note behind it (`Orchestrator (thought)`, `Orchestrator (-> WebSurfer)`). Every agent's turn is an assistant's, since
all of them are policies; only the question and the terminal are not. The mistake is an outcome of the step it names.
The halves ask some questions both, so a case is named by its content.

Not covered: the tools behind the terminal's answers (the log has their output only: a tool's row without a call).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_int,
    as_text,
    fingerprint,
    trajectory_id,
)
from flywheel.formats.scores import scored
from flywheel.records import Fragment, Outcome, Reject, Trajectory

_CASE = {"history", "mistake_agent", "mistake_step"}
_READ = {"history", "question_ID", "is_correct", "is_corrected", "mistake_agent", "mistake_step", "mistake_reason"}
_TASK = ("question", "ground_truth", "level")
_TOOLS = ("computer_terminal", "computerterminal", "terminal")
_CORRECT = ("is_correct", "is_corrected")  # the halves spell it differently


class WhoAndWhen:
    """The reader."""

    name = "who_and_when"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        cases = sum(map(_is_case, head.values))
        return Match(confidence=round(0.95 * cases / len(head.values), 3)) if cases else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        for record in records:
            if _is_case(record.value):
                yield _fragment(record.value, record, source)
            else:
                yield record.reject("not_who_and_when", "the record has no history with a mistake_agent and its step")


def _is_case(value: Any) -> bool:
    case = as_dict(value)
    return case.keys() >= _CASE and isinstance(case["history"], list)


def _fragment(case: Mapping[str, Any], record: Record, source: Source) -> Fragment:
    native_id = as_text(case.get("question_ID"))
    this = trajectory_id("who_and_when", fingerprint(case), "")
    conversation = Conversation(this)
    for ix, message in enumerate(case["history"]):
        _add(conversation, message, is_first=ix == 0)
    steps, tool_calls = conversation.finish()
    verdict = next((case[key] for key in _CORRECT if isinstance(case.get(key), bool)), None)
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="who_and_when",
        task_id=native_id,
        task=dumps({key: case[key] for key in _TASK if key in case}),
        n_steps=len(steps),
        success=verdict,
        success_source=None if verdict is None else "environment:is_correct",
        content_complete=True,
        quality_flags=(record.repairs if steps else (*record.repairs, "no_steps")) or None,
        extra=_extra(case),
    )
    outcomes = tuple(_outcomes(case, this, len(steps), verdict))
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _add(conversation: Conversation, message: Any, *, is_first: bool) -> None:
    given = as_dict(message)
    raw, name = as_text(given.get("role")), as_text(given.get("name"))
    if not given or raw is None:
        add_message(conversation, message)
        return
    speaker = name or raw.partition(" (")[0]
    role = "assistant"
    if raw == "human" or (is_first and raw == "user"):
        role, speaker = "user", name or ""
    elif speaker.replace(" ", "_").lower() in _TOOLS:
        role = "tool"
    said = {key: item for key, item in given.items() if key not in ("role", "name")}
    add_message(conversation, {**said, "role": role}, role_raw=raw, name=speaker or None)


def _outcomes(case: Mapping[str, Any], this: str, n_steps: int, verdict: bool | None) -> Iterator[Outcome]:
    if verdict is not None:
        polarity = 1 if verdict else -1
        yield scored(this, "is_correct", verdict, polarity=polarity, source_kind="environment")
    step = as_int(case["mistake_step"])
    text = as_text(case["mistake_step"])
    if step is None and text is not None and text.strip().isdecimal():
        step = int(text) if len(text) < 10 else None
    inside = step is not None and 0 <= step < n_steps
    reason = case.get("mistake_reason")
    yield scored(
        this,
        "mistake",
        case["mistake_agent"],
        polarity=-1,
        source_kind="human_expert",
        target_kind="step" if inside else "trajectory",
        step_ix=step if inside else None,
        explanation=reason if reason is None or isinstance(reason, str) else dumps(reason),
        correction=None if case.get("ground_truth") is None else dumps(case["ground_truth"]),
        metadata={"mistake_step": case["mistake_step"]},
    )


def _extra(case: Mapping[str, Any]) -> str | None:
    rest = {key: item for key, item in case.items() if key not in (*_READ, *_TASK)}
    rest |= {key: case[key] for key in _CORRECT if case.get(key) is not None and not isinstance(case[key], bool)}
    own = case.get("question_ID")
    rest |= {"question_ID": own} if own and as_text(own) is None else {}
    return dumps(rest) if rest else None
