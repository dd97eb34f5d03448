"""One sample of an Inspect log as a trajectory: messages, scores, usage, errors and limits.

Contents that were moved to attachments (`attachment://<hash>`, `tc://<hash>` in 2024) stand in the messages again; the
attachments that only events refer to stay in `extra`, and so do the events. A model event gives its answer's tokens,
time and stop reason to the message it became. Inspect counts input without what was cached: the three are added up.
Letters are judged as Inspect's own metrics judge them: C correct, I incorrect, P partial, N no answer.

Not covered: messages that a solver took out of the history before the end (they stand in the events).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.inspect_events import calls_of, resolved, stamp, usage_of
from flywheel.formats.inspect_messages import add, finish
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, money
from flywheel.records import Fragment, Outcome, Step, Trajectory

_LETTERS = {"C": 1, "I": -1, "P": 0, "N": -1}
_LIMITS = {
    "message": "max_turns", "turn": "max_turns", "token": "max_tokens", "time": "timeout", "working": "timeout",
    "context": "context_overflow", "operator": "user_abort",
}  # fmt: skip
_STOPS = {
    "stop": "completed", "tool_calls": "completed", "max_tokens": "max_tokens", "length": "max_tokens",
    "model_length": "context_overflow", "content_filter": "model_error",
}  # fmt: skip
_TASK = ("input", "target", "choices", "files", "setup", "sandbox")
_READ = {*_TASK, "epoch", "messages", "metadata", "attachments", "uuid", "scores", "score"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the head of a log says of all its samples."""

    known: bool = False
    session_id: str | None = None
    version: str | None = None
    task: str | None = None
    model: str | None = None
    agent: str | None = None
    sampling: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, log: Mapping[str, Any]) -> Run:
        """From a whole log, its header, or the first entry of its journal."""
        said, plan = as_dict(log.get("eval")), as_dict(log.get("plan"))
        sampling = {**as_dict(said.get("model_generate_config")), **as_dict(plan.get("config"))}
        tags = as_list(log.get("tags")) or as_list(said.get("tags"))
        return cls(
            known=True,
            session_id=first_text(said, "eval_id", "run_id"),
            version=as_text(as_dict(said.get("packages")).get("inspect_ai")),
            task=first_text(said, "task"),
            model=first_text(said, "model"),
            agent=first_text(said, "solver") or first_text(plan, "name"),
            sampling=dumps(sampling) if sampling else None,
            tags=tuple(tag for tag in tags if isinstance(tag, str)),
        )


def fragment(
    sample: Mapping[str, Any], run: Run, record: Record, source: Source, first: str, *, lost: bool = False
) -> Fragment:
    """The trajectory of a sample; of its summary if the sample itself is `lost`."""
    native_id = first_text(sample, "uuid") or f"{run.session_id}/{run.task}/{sample.get('id')}/{sample.get('epoch')}"
    this = trajectory_id("inspect_log", native_id, first)
    attachments = {**_transcript(sample), **as_dict(sample.get("attachments"))}
    used: set[str] = set()
    conversation = Conversation(this)
    for message in as_list(sample.get("messages")):
        add(conversation, resolved(message, attachments, used))
    calls = calls_of(sample, attachments)
    if not conversation.steps and calls:  # before 2025 a sample that failed was logged without its messages
        for message in calls[-1].messages:
            add(conversation, message)
    stamp(conversation, calls)
    steps, tool_calls = finish(conversation)
    outcomes = tuple(_outcomes(sample, this))
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        session_id=run.session_id,
        attempt=as_int32(sample.get("epoch")),
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="inspect_log",
        format_version=run.version,
        agent_name=run.agent,
        model=run.model or as_text(as_dict(sample.get("output")).get("model")),
        provider=run.model.partition("/")[0] if run.model and "/" in run.model else None,
        sampling=run.sampling,
        tools=next((dumps(call.tools) for call in calls if call.tools), None),
        task_id=_task_id(sample, run),
        task=dumps({key: resolved(sample[key], attachments, used) for key in _TASK if sample.get(key) is not None}),
        n_steps=len(steps),
        content_complete=not lost,
        quality_flags=_flags(record, steps, lost) or None,
        tags=run.tags or None,
        metadata=dumps(sample["metadata"]) if sample.get("metadata") else None,
        **_headline(outcomes),
        **_times(sample),
        **_usage(sample),
        **_ending(sample),
        extra=_extra(sample, used),
    )
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _flags(record: Record, steps: tuple[Step, ...], lost: bool) -> tuple[str, ...]:
    named = {"sample_missing": lost, "no_steps": not steps and not lost}
    return (*record.repairs, *(name for name, raised in named.items() if raised))


def _transcript(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Contents as logs of 2024 kept them, beside the events."""
    return as_dict(as_dict(sample.get("transcript")).get("content"))


def _task_id(sample: Mapping[str, Any], run: Run) -> str | None:
    own = as_text(sample.get("id"))
    return own if own is None or run.task is None else f"{run.task}/{own}"


def _outcomes(sample: Mapping[str, Any], this: str) -> Iterator[Outcome]:
    scores = sample.get("scores")
    if not isinstance(scores, dict):
        scores = {"score": sample["score"]} if isinstance(sample.get("score"), dict) else {}
    for name, said in scores.items():
        score = said if isinstance(said, dict) else {"value": said}
        rest = {key: item for key, item in score.items() if key not in ("value", "explanation")}
        value, why = score.get("value"), score.get("explanation")
        explanation = why if why is None or isinstance(why, str) else dumps(why)
        yield scored(
            this, name, value, polarity=_polarity(value), source_id=name, explanation=explanation, metadata=rest
        )
        for part, inner in value.items() if isinstance(value, dict) else ():
            yield scored(this, f"{name}/{part}", inner, polarity=_polarity(inner), source_id=name)


def _polarity(value: Any) -> int | None:
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    return feedback.polarity_of(value)


def _headline(outcomes: tuple[Outcome, ...]) -> dict[str, Any]:
    """Verdicts in words decide, where there are any; numbers only where there are none."""
    worded = [outcome for outcome in outcomes if outcome.value_type in ("text", "boolean") and outcome.polarity]
    summary = feedback.headline(worded or outcomes)
    reward = feedback.headline(outcomes).reward
    return {"success": summary.success, "reward": reward, "success_source": summary.source}


def _times(sample: Mapping[str, Any]) -> dict[str, Any]:
    start, end = read_time(sample.get("started_at")), read_time(sample.get("completed_at"))
    seconds = as_float(sample.get("total_time"))
    return {
        "started_at": start.at,
        "ended_at": end.at,
        "duration_ms": None if seconds is None or seconds < 0 else seconds * 1000,
        "time_quality": start.quality if start.at is not None else None,
    }


def _usage(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The sum over the models, graders included; what the steps have takes its place (`assemble.complete`)."""
    said = [value for value in as_dict(sample.get("model_usage")).values() if isinstance(value, dict)]
    said = said or [value for value in (as_dict(sample.get("output")).get("usage"),) if isinstance(value, dict)]
    usages = [usage_of(value) for value in said]
    costs = [cost for value in said if (cost := money(value.get("total_cost"))) is not None]
    columns: dict[str, Any] = {}
    for name in Usage.__slots__:
        known = [number for usage in usages if (number := getattr(usage, name)) is not None]
        columns[name] = sum(known) if known else None
    return columns | ({"cost_usd": sum(costs), "cost_source": "recorded"} if costs else {})


def _ending(sample: Mapping[str, Any]) -> dict[str, Any]:
    output, limit, error = as_dict(sample.get("output")), as_dict(sample.get("limit")), sample.get("error")
    choice = as_dict(next(iter(as_list(output.get("choices"))), None))
    stop = as_text(choice.get("stop_reason"))
    if error:
        message = as_text(error) or first_text(as_dict(error), "message") or dumps(error)
        kind = message.partition("(")[0]
        return {
            "end_reason": "env_error",
            "end_reason_raw": stop,
            "error_type": kind if kind.isidentifier() else None,
            "error_message": message,
        }
    if limit or isinstance(sample.get("limit"), str):
        raw = first_text(limit, "type") or as_text(sample["limit"])
        return {"end_reason": _LIMITS.get(raw or "", "unknown"), "end_reason_raw": raw}
    if output.get("error"):
        return {"end_reason": "model_error", "end_reason_raw": stop, "error_message": as_text(output["error"])}
    return {"end_reason": _STOPS.get(stop or ""), "end_reason_raw": stop}


def _extra(sample: Mapping[str, Any], used: set[str]) -> str | None:
    rest = {key: item for key, item in sample.items() if key not in _READ and item not in (None, [], {})}
    attachments = {key: item for key, item in as_dict(sample.get("attachments")).items() if key not in used}
    rest |= {"attachments": attachments} if attachments else {}
    if not isinstance(sample.get("scores"), dict) and not isinstance(sample.get("score"), dict):
        rest |= {key: sample[key] for key in ("scores", "score") if sample.get(key) is not None}
    odd = {"messages": list, "attachments": dict}
    rest |= {key: sample[key] for key, kind in odd.items() if sample.get(key) and not isinstance(sample[key], kind)}
    rest |= {"epoch": sample["epoch"]} if as_int32(sample.get("epoch")) is None and sample.get("epoch") else {}
    return dumps(rest) if rest else None
