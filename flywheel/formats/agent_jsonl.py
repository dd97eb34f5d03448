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

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.agent_quick import EPOCH, MILLISECONDS, quick_rows
from flywheel.formats.messages import CALLERS, ROLES, Conversation, read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    fingerprint,
    trajectory_id,
)
from flywheel.formats.times import read_time, worst
from flywheel.formats.usage import count, money
from flywheel.records import Fragment, Outcome, Reject, Trajectory, content_id

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
_STEP: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("native_id", as_text), "index": ("native_ix", as_int32), "name": ("name", as_text),
    "reasoning": ("reasoning", lambda value: value if isinstance(value, str) else None),
    "tool_call_id": ("tool_call_id", as_text), "tokens_in": ("input_tokens", count),
    "tokens_out": ("output_tokens", count), "cost_usd": ("cost_usd", money), "model": ("model", as_text),
    "finish_reason": ("finish_reason_raw", as_text),
}  # fmt: skip
_STEP_APART = {"role", "ts", "content", "tool_calls", "error"}


class AgentJsonl:
    """The reader."""

    name = "agent_jsonl"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        if not head.values:
            return None
        found = sum(1 for value in head.values if _looks_like(value))
        return Match(confidence=round(0.9 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            value = record.value
            if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
                yield record.reject("not_agent_jsonl", "the record has no list of `steps`")
            else:
                yield _fragment(value, record, source, first)


def _looks_like(value: Any) -> bool:
    """`trajectory_id` and steps that have a role: ATIF's have a `source`, others' an `action`."""
    if not isinstance(value, dict) or "trajectory_id" not in value or not isinstance(value.get("steps"), list):
        return False
    steps = value["steps"]
    return all(isinstance(step, dict) and isinstance(step.get("role"), str) for step in steps[:3])


def _fragment(value: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    native_id = as_text(value.get("trajectory_id"))
    this = trajectory_id("agent_jsonl", native_id or fingerprint(value), first)
    qualities = {"exact"}
    found = quick_rows(value["steps"], this)
    if found is None:
        conversation, qualities = Conversation(this), {"missing"}
        for step in value["steps"]:
            _add_step(conversation, step, qualities)
        found = conversation.finish()
    steps, tool_calls = found
    outcomes = _outcomes(value, this)
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="agent_jsonl",
        n_steps=len(steps),
        content_complete=True,
        quality_flags=record.repairs if steps else (*record.repairs, "no_steps"),
        **_head(value, native_id, qualities),
    )
    rows: dict[str, Any] = {"steps": steps, "tool_calls": tool_calls, "outcomes": outcomes}
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, **rows)


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


def _add_step(conversation: Conversation, step: Any, qualities: set[str]) -> None:
    if not isinstance(step, dict):
        conversation.add(role="event", content_state="missing", raw=dumps(step), quality_flags=("not_a_message",))
        return
    columns: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in step.items():
        if value is None or key in _STEP_APART:
            continue
        if key in _STEP:
            column, convert = _STEP[key]
            found = value if type(value) is str and value and convert is as_text else convert(value)
            if found is not None:
                columns[column] = found
                continue
        rest[key] = value
    role = _role(step.get("role"), columns, rest)
    if step.get("ts") is not None:
        columns["ts"], columns["ts_raw"] = _time(step["ts"], qualities)
        if columns["ts_raw"] is None:
            rest["ts"] = step["ts"]
    if step.get("error"):
        _add_error(step["error"], columns, rest)
    calls = step.get("tool_calls")
    if calls and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        rest["tool_calls"] = calls
    if "finish_reason_raw" in columns:
        columns["finish_reason"] = columns["finish_reason_raw"]
    if rest:
        columns["extra"] = dumps(rest)
    content = step.get("content")
    if isinstance(content, str):
        columns["content"], columns["content_state"] = content, "present"
    else:
        read = read_content(step)
        columns |= {"content": read.text, "content_state": read.state, "parts": read.parts, "refusal": read.refusal}
    if step.get("truncated") is True:
        columns["content_state"] = "truncated"
    step_ix = conversation.add(role=role, **columns)
    if role == "tool":
        conversation.result(step_ix, is_error=_is_error(step), error_type=columns.get("error_type"))
    elif role in CALLERS and calls:
        _add_calls(conversation, step_ix, calls)


def _role(raw: Any, columns: dict[str, Any], rest: dict[str, Any]) -> str:
    role = ROLES.get(raw) or ROLES.get(raw.lower(), "event") if isinstance(raw, str) else "event"
    if role == "assistant":
        columns["sampled"] = True
    elif role == "event" and raw != "event":
        columns["quality_flags"] = ("odd_role",)
    if isinstance(raw, str):
        columns["role_raw"] = raw
    elif raw is not None:
        rest["role"] = raw
    return role


def _add_error(error: Any, columns: dict[str, Any], rest: dict[str, Any]) -> None:
    detail = as_dict(error)
    columns["error_type"] = as_text(detail.get("type"))
    columns["error_message"] = as_text(error) or as_text(detail.get("message"))
    if not isinstance(error, str) and detail.keys() != {"type", "message"}:
        rest["error"] = error


def _time(value: Any, qualities: set[str]) -> tuple[datetime | None, str | None]:
    if type(value) is int and value in MILLISECONDS:
        qualities.add("exact")
        return EPOCH + timedelta(milliseconds=value), str(value)
    time = read_time(value)
    qualities.add(time.quality)
    return time.at, time.raw


def _add_calls(conversation: Conversation, step_ix: int, calls: Any) -> None:
    for call in as_list(calls):
        if isinstance(call, dict):
            rest = {key: value for key, value in call.items() if key not in ("id", "name", "arguments")}
            named = {"extra": rest} if rest else {}
            conversation.call(
                step_ix,
                call_id=as_text(call.get("id")),
                arguments=call.get("arguments"),
                name=as_text(call.get("name")),
                kind="function",
                **named,
            )


def _is_error(step: Mapping[str, Any]) -> bool | None:
    if step.get("error"):
        return True
    code = step.get("exit_code")
    return code != 0 if isinstance(code, int) and not isinstance(code, bool) else None


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
