"""Ordinary records of `agent_jsonl` in straight lines: the same rows as its general way gives, in a third of the time.

Gives up (None) on the first thing that is not as usual: another type than the column's, a step that is no object, a
result that answers no call made before it, an id that is used twice, content that is no text.

Not covered: everything else; `agent_jsonl.py` takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from flywheel.formats.messages import read_args
from flywheel.formats.parse import dumps
from flywheel.records import Step, ToolCall

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = range(9 * 10**11, 4 * 10**12)  # 1998 to 2096: no other unit puts a number of this size there
_ROLES = {"system": None, "user": None, "assistant": True, "tool": None}  # and whether the policy said it
_PLACES = range(2**31)
_USUAL = {
    "index", "role", "ts", "content", "reasoning", "tool_calls", "tool_call_id", "tokens_in", "tokens_out", "error",
}  # fmt: skip
_UNUSUAL = {"id", "name", "model", "finish_reason", "cost_usd"}  # have columns, which only the general way fills
_CALL = {"id", "name", "arguments"}
_ERROR = {"type", "message"}


def quick_rows(values: Sequence[Any], this: str) -> tuple[tuple[Step, ...], tuple[ToolCall, ...]] | None:
    """Steps and calls of the trajectory `this`, or None. Every step has a time in milliseconds, or none has one."""
    steps: list[Step] = []
    calls: list[dict[str, Any]] = []
    waiting: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for ix, value in enumerate(values):
        if type(value) is not dict or not _UNUSUAL.isdisjoint(value):
            return None
        get = value.get
        role, content, ts, error, call_id = get("role"), get("content"), get("ts"), get("error"), get("tool_call_id")
        if role not in _ROLES or type(content) is not str or not _is_usual(value, ts, error, call_id):
            return None
        made = get("tool_calls")
        if made is not None and not _take_calls(this, ix, role, made, calls, waiting, seen):
            return None
        failed = (None, None) if error is None else (error["type"], error["message"])
        if role == "tool":
            call = waiting.pop(call_id, None) if call_id is not None else None
            if call is None:
                return None
            _answer(call, ix, content, failed[0], error is not None, get("exit_code"))
        rest = {key: item for key, item in value.items() if key not in _USUAL and item is not None}
        steps.append(
            Step(
                trajectory_id=this,
                step_ix=ix,
                parent_ix=ix - 1 if ix else None,
                native_ix=get("index"),
                role=role,
                role_raw=role,
                content=content,
                content_state="truncated" if get("truncated") is True else "present",
                reasoning=get("reasoning"),
                n_tool_calls=0 if made is None else len(made),
                tool_call_id=call_id,
                sampled=_ROLES[role],
                ts=None if ts is None else EPOCH + timedelta(milliseconds=ts),
                ts_raw=None if ts is None else str(ts),
                input_tokens=get("tokens_in"),
                output_tokens=get("tokens_out"),
                error_type=failed[0],
                error_message=failed[1],
                extra=dumps(rest) if rest else None,
            )
        )
    return tuple(steps), tuple(ToolCall(**call) for call in calls)


def _is_usual(value: Mapping[str, Any], ts: Any, error: Any, call_id: Any) -> bool:
    """Whether what the columns take as it stands is of the usual types."""
    for key in ("index", "tokens_in", "tokens_out"):
        number = value.get(key)
        if number is not None and not (type(number) is int and number in _PLACES):
            return False
    reasoning = value.get("reasoning")
    return (
        (ts is None or (type(ts) is int and ts in MILLISECONDS))
        and (reasoning is None or type(reasoning) is str)
        and (call_id is None or (type(call_id) is str and call_id != ""))
        and (error is None or (type(error) is dict and error.keys() == _ERROR and all(map(_is_word, error.values()))))
    )


def _is_word(value: Any) -> bool:
    return type(value) is str and value != ""


def _take_calls(
    this: str,
    ix: int,
    role: str,
    made: Any,
    calls: list[dict[str, Any]],
    waiting: dict[str, dict[str, Any]],
    seen: set[str],
) -> bool:
    """Append the calls of a step; whether all of them are as usual."""
    if type(made) is not list or role not in ("assistant", "user"):
        return False
    for call_ix, call in enumerate(made):
        if type(call) is not dict or call.keys() != _CALL:
            return False
        call_id, name, arguments = call["id"], call["name"], call["arguments"]
        if not _is_word(call_id) or not _is_word(name) or type(arguments) not in (dict, str) or call_id in seen:
            return False
        raw, args, state = read_args(arguments)
        row = {
            "trajectory_id": this, "step_ix": ix, "call_ix": call_ix, "call_id": call_id, "name": name,
            "kind": "function", "args_raw": raw, "args": args, "args_state": state, "result_state": "missing",
        }  # fmt: skip
        seen.add(call_id)
        waiting[call_id] = row
        calls.append(row)
    return True


def _answer(call: dict[str, Any], ix: int, content: str, error_type: Any, failed: bool, code: Any) -> None:
    is_error = True if failed else code != 0 if type(code) is int else None
    call["result_step_ix"] = ix
    call["result_text"] = content
    call["result_state"] = "error" if is_error else "ok"
    call["is_error"] = is_error
    call["error_type"] = error_type
    call["paired_by"] = "id"
