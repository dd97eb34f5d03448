"""Agent JSON lines: a plain format for teams that write logs of their own. One trajectory a line.

    {trajectory_id, task_id?, agent: {name, version, model, params}?, started_at?, ended_at?, outcome?, reward?,
     failure: {category, message}?, tags?: [text], usage: {tokens_in, tokens_out, cost_usd}?, metadata?: {...},
     session_id?, user_id?, environment?, feedback?,
     steps: [{index?, role, ts?, content, reasoning?, tool_calls?: [{id, name, arguments: {...} or text}],
              tool_call_id?, exit_code?, truncated?, latency_ms?, tokens_in?, tokens_out?, cost_usd?, logprob_mean?,
              model?, finish_reason?, error: {type, message}?}]}

Times are numbers (s, ms, us or ns) or ISO text. `outcome` is `success` or `failure` (or a word of the same meaning);
anything else is kept and leaves the success unknown. Arguments are best written as the text that the model said; an
object has lost it. A tool's message names its call by `tool_call_id`; without, calls are answered in their order. An
`exit_code` other than 0, or an `error`, makes the call's result an error. What has no column is kept in `extra`.

Not covered: one trajectory on several lines (write it again when it's longer: the later line counts), branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.agent_quick import QuickLine, decoded, rows_of
from flywheel.formats.agent_steps import add_step
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import Decoded, decode, dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_list,
    as_text,
    fingerprint,
    trajectory_id,
)
from flywheel.formats.times import read_time, worst
from flywheel.formats.usage import count, money
from flywheel.records import Fragment, Outcome, Reject, Step, ToolCall, Trajectory, content_id

_GOOD = {"success", "succeeded", "passed", "pass", "resolved", "solved", "completed"}
_BAD = {"failure", "failed", "fail", "error", "unresolved", "timeout", "aborted"}
_END_REASONS = {
    "timeout": "timeout", "context_overflow": "context_overflow", "tool_error": "tool_error", "max_turns": "max_turns",
    "max_tokens": "max_tokens", "user_abort": "user_abort", "cancelled": "cancelled", "model_error": "model_error",
    "env_error": "env_error",
}  # fmt: skip
# Where each key goes. A value that its column can't take stays in `extra`, as does every key that isn't here.
_HEAD = {
    "trajectory_id": "native_id", "task_id": "task_id", "reward": "reward", "session_id": "session_id",
    "user_id": "user_id", "conversation_id": "conversation_id", "environment": "environment", "tags": "tags",
    "metadata": "metadata",
}  # fmt: skip
_APART = {"agent", "failure", "usage", "steps", "feedback", "outcome"}


class AgentJsonl:
    """The reader."""

    name = "agent_jsonl"
    version = "1"
    independent = True
    quick = staticmethod(decoded)

    def sniff(self, head: Head) -> Match | None:
        if not head.values:
            return None
        found = sum(1 for value in head.values if _looks_like(value))
        return Match(confidence=round(0.9 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(_generally(record))
            quick = _quickly(record, source, first) if isinstance(record.value, QuickLine) else None
            value = _generally(record) if quick is None else None
            if quick is not None:
                yield quick
            elif not isinstance(value, dict) or not isinstance(value.get("steps"), list):
                yield record.reject("not_agent_jsonl", "the record has no list of `steps`")
            else:
                yield _fragment(value, record, source, first)


def _looks_like(value: Any) -> bool:
    """`trajectory_id` and steps that have a role: ATIF's have a `source`, others' an `action`."""
    if not isinstance(value, dict) or "trajectory_id" not in value or not isinstance(value.get("steps"), list):
        return False
    steps = value["steps"]
    return all(isinstance(step, dict) and isinstance(step.get("role"), str) for step in steps[:3])


def _generally(record: Record) -> Any:
    """The record's value, decoded in the general way if it wasn't."""
    if not isinstance(record.value, QuickLine):
        return record.value
    again = decode(record.raw or b"")
    return again.value if isinstance(again, Decoded) else None


def _quickly(record: Record, source: Source, first: str) -> Fragment | None:
    line: QuickLine = record.value
    native_id = as_text(line.head.get("trajectory_id"))
    if native_id is None:
        return None
    this = trajectory_id("agent_jsonl", native_id, first)
    rows = rows_of(line.steps, this)
    return None if rows is None else _whole(line.head, rows, {"exact"}, record, source, this)


def _fragment(value: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    native_id = as_text(value.get("trajectory_id"))
    this = trajectory_id("agent_jsonl", native_id or fingerprint(value), first)
    conversation, qualities = Conversation(this), {"missing"}
    for step in value["steps"]:
        add_step(conversation, step, qualities)
    return _whole(value, conversation.finish(), qualities, record, source, this)


def _whole(
    value: Mapping[str, Any],
    rows: tuple[tuple[Step, ...], tuple[ToolCall, ...]],
    qualities: set[str],
    record: Record,
    source: Source,
    this: str,
) -> Fragment:
    steps, calls = rows
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="agent_jsonl",
        n_steps=len(steps),
        content_complete=True,
        quality_flags=record.repairs if steps else (*record.repairs, "no_steps"),
        **_head(value, as_text(value.get("trajectory_id")), qualities),
    )
    outcomes = _outcomes(value, this)
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=calls, outcomes=outcomes
    )


def _head(value: Mapping[str, Any], native_id: str | None, qualities: set[str]) -> dict[str, Any]:
    agent, failure, usage = as_dict(value.get("agent")), as_dict(value.get("failure")), as_dict(value.get("usage"))
    started, ended = read_time(value.get("started_at")), read_time(value.get("ended_at"))
    category, cost, success = as_text(failure.get("category")), money(usage.get("cost_usd")), _success(value)
    columns = {
        "native_id": native_id,
        "conversation_id": as_text(value.get("conversation_id")),
        "session_id": as_text(value.get("session_id")),
        "user_id": as_text(value.get("user_id")),
        "environment": as_text(value.get("environment")),
        "agent_name": as_text(agent.get("name")),
        "agent_version": as_text(agent.get("version")),
        "model": as_text(agent.get("model")),
        "sampling": dumps(agent["params"]) if agent.get("params") else None,
        "task_id": as_text(value.get("task_id")),
        "started_at": started.at,
        "ended_at": ended.at,
        "time_quality": worst((started.quality, ended.quality, *qualities)),
        "input_tokens": count(usage.get("tokens_in")),
        "output_tokens": count(usage.get("tokens_out")),
        "cost_usd": cost,
        "cost_source": None if cost is None else "recorded",
        "end_reason": _END_REASONS.get(category, "agent_error") if category else "completed" if success else None,
        "end_reason_raw": category,
        "error_type": category,
        "error_message": as_text(failure.get("message")),
        "success": success,
        "reward": as_float(value.get("reward")),
        "success_source": None if success is None else "outcome",
        "tags": tuple(tag for tag in as_list(value.get("tags")) if isinstance(tag, str)) or None,
        "metadata": dumps(value["metadata"]) if value.get("metadata") is not None else None,
    }
    rest = _head_rest(value, columns)
    return columns | {"extra": dumps(rest) if rest else None}


def _head_rest(value: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    rest = {
        key: item
        for key, item in value.items()
        if item is not None and key not in _APART and columns.get(_HEAD.get(key, "")) is None
    }
    for name, known in (
        ("agent", {"name", "version", "model", "params"}),
        ("failure", {"category", "message"}),
        ("usage", {"tokens_in", "tokens_out", "cost_usd"}),
    ):
        part = value.get(name)
        if part and (not isinstance(part, dict) or part.keys() - known):
            rest[name] = part
    return rest


def _success(value: Mapping[str, Any]) -> bool | None:
    outcome = value.get("outcome")
    if isinstance(outcome, bool):
        return outcome
    word = outcome.lower() if isinstance(outcome, str) else ""
    return True if word in _GOOD else False if word in _BAD else None


def _outcomes(value: Mapping[str, Any], this: str) -> tuple[Outcome, ...]:
    said = feedback.read_feedback(value.get("feedback"), this)
    outcome, reward = value.get("outcome"), as_float(value.get("reward"))
    if outcome is None and reward is None:
        return said
    success = _success(value)
    own = Outcome(
        outcome_id=content_id("outcome", this, "outcome", dumps(outcome), reward),
        trajectory_id=this,
        name="reward" if outcome is None else "outcome",
        value_num=reward,
        value_bool=success,
        value_text=as_text(outcome),
        value_type="number" if outcome is None else "text" if isinstance(outcome, str) else "json",
        value_raw=dumps(value.get("reward") if outcome is None else outcome),
        polarity=None if success is None else 1 if success else -1,
        source_kind="system",
    )
    return (own, *said)
