"""One step of an `agent_jsonl` record, of whatever shape, to a row with its calls: the general way.

Every key has a column or goes to `extra`, also where its value is of a type that the column can't take.

Not covered: ordinary records, which `agent_quick.py` takes; the head (`agent_jsonl.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from flywheel.formats.agent_quick import EPOCH, MILLISECONDS
from flywheel.formats.messages import CALLERS, ROLES, Conversation, read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_int32, as_list, as_text
from flywheel.formats.times import read_time
from flywheel.formats.usage import count, money

_STEP: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "id": ("native_id", as_text), "index": ("native_ix", as_int32), "name": ("name", as_text),
    "reasoning": ("reasoning", lambda value: value if isinstance(value, str) else None),
    "tool_call_id": ("tool_call_id", as_text), "tokens_in": ("input_tokens", count),
    "tokens_out": ("output_tokens", count), "cost_usd": ("cost_usd", money), "model": ("model", as_text),
    "finish_reason": ("finish_reason_raw", as_text),
}  # fmt: skip
_STEP_APART = {"role", "ts", "content", "tool_calls", "error"}


def add_step(conversation: Conversation, step: Any, qualities: set[str]) -> None:
    """Append a step and pair or register its calls; the quality of its time is added to `qualities`."""
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
