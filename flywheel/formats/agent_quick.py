"""Ordinary records of `agent_jsonl` in straight lines: the same rows as its general way gives, in a third of the time.

`decoded` gives a record as structs, `rows_of` its steps and calls. Both give up (None) on the first thing that is not
as usual: a key that the format doesn't name, another type than the column's, equal keys, content that is no text, a
result that answers no call made before it, an id that is used twice.

Not covered: everything else; `agent_jsonl.py` takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from flywheel.formats.equal_keys import agrees, count_keys
from flywheel.formats.messages import read_args
from flywheel.formats.parse import MAX_DEPTH, dumps, number
from flywheel.records import Step, ToolCall

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = range(9 * 10**11, 4 * 10**12)  # 1998 to 2096: no other unit puts a number of this size there
_PLACES = range(2**31)
_Number = int | UnsetType | None
_Text = str | UnsetType | None


class Call(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A tool call with an id, a name and arguments."""

    id: str
    name: str
    arguments: Any


class Error(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Of a step."""

    type: str
    message: str


class QuickStep(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A step whose content is text. UNSET: the key isn't there."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    index: _Number = UNSET
    ts: _Number = UNSET
    reasoning: _Text = UNSET
    tool_calls: list[Call] | UnsetType | None = UNSET
    tool_call_id: _Text = UNSET
    tokens_in: _Number = UNSET
    tokens_out: _Number = UNSET
    error: Error | UnsetType | None = UNSET
    exit_code: Any = UNSET  # from here on: goes to `extra` as it is
    truncated: Any = UNSET
    latency_ms: Any = UNSET
    logprob_mean: Any = UNSET


class QuickLine(msgspec.Struct, gc=False):
    """A record: its steps, and everything else by key."""

    head: dict[str, Any]
    steps: list[QuickStep]


_DEEPER = 3  # levels that arguments are deeper in their record than in the list they're counted in
_FIELDS = len(QuickStep.__struct_fields__)
_HEAD = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STEPS = msgspec.json.Decoder(list[QuickStep], float_hook=number)
_VALUE = msgspec.json.Decoder(float_hook=number)


def decoded(data: bytes) -> QuickLine | None:
    """One line as structs, or None."""
    try:
        found = _HEAD.decode(data)
        steps = _STEPS.decode(found.pop("steps"))
        head = {key: _VALUE.decode(raw) for key, raw in found.items()}
    except (msgspec.MsgspecError, RecursionError, KeyError):
        return None
    calls = [call for step in steps if step.tool_calls for call in step.tool_calls]
    free = [head, [call.arguments for call in calls if type(call.arguments) in (dict, list)]]
    keys = count_keys(free, MAX_DEPTH - _DEEPER)
    if keys is None:
        return None
    keys += 1 + 3 * len(calls)
    for step in steps:
        keys += _FIELDS - astuple(step).count(UNSET) + (2 if step.error else 0)
    return QuickLine(head, steps) if agrees(keys, data, free) else None


def rows_of(given: Sequence[QuickStep], this: str) -> tuple[tuple[Step, ...], tuple[ToolCall, ...]] | None:
    """Steps and calls of the trajectory `this`, or None. Every step has a time in milliseconds, or it has none."""
    steps: list[Step] = []
    calls: list[dict[str, Any]] = []
    waiting: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    for ix, step in enumerate(given):
        role, content, error = step.role, step.content, step.error or None
        ts, index = step.ts or None, None if step.index is UNSET else step.index
        tokens_in, tokens_out = step.tokens_in, step.tokens_out
        call_id, made = step.tool_call_id or None, step.tool_calls or None
        if (
            (ts is not None and ts not in MILLISECONDS)
            or (index is not None and index not in _PLACES)
            or (tokens_in and tokens_in not in _PLACES)
            or (tokens_out and tokens_out not in _PLACES)
            or (error is not None and not (error.type and error.message))
            or (step.ts == 0 or step.tool_call_id == "")
            or (made is not None and not _take_calls(this, ix, role, made, calls, waiting, seen))
        ):
            return None
        if role == "tool":
            call = waiting.pop(call_id, None) if call_id is not None else None
            if call is None:
                return None
            _answer(call, ix, step)
        rest = _rest(step)
        steps.append(
            Step(
                trajectory_id=this,
                step_ix=ix,
                parent_ix=ix - 1 if ix else None,
                native_ix=index,
                role=role,
                role_raw=role,
                content=content,
                content_state="truncated" if step.truncated is True else "present",
                reasoning=None if step.reasoning is UNSET else step.reasoning,
                n_tool_calls=0 if made is None else len(made),
                tool_call_id=call_id,
                sampled=True if role == "assistant" else None,
                ts=None if ts is None else EPOCH + timedelta(milliseconds=ts),
                ts_raw=None if ts is None else str(ts),
                input_tokens=None if tokens_in is UNSET else tokens_in,
                output_tokens=None if tokens_out is UNSET else tokens_out,
                error_type=None if error is None else error.type,
                error_message=None if error is None else error.message,
                extra=dumps(rest) if rest else None,
            )
        )
    return tuple(steps), tuple(ToolCall(**call) for call in calls)


def _rest(step: QuickStep) -> dict[str, Any]:
    rest = {}
    for key in ("exit_code", "truncated", "latency_ms", "logprob_mean"):
        value = getattr(step, key)
        if value is not UNSET and value is not None:
            rest[key] = value
    return rest


def _take_calls(
    this: str,
    ix: int,
    role: str,
    made: Sequence[Call],
    calls: list[dict[str, Any]],
    waiting: dict[str, dict[str, Any]],
    seen: set[str],
) -> bool:
    """Append the calls of a step; whether all of them are as usual."""
    if role not in ("assistant", "user"):
        return False
    for call_ix, call in enumerate(made):
        if not call.id or not call.name or type(call.arguments) not in (dict, str) or call.id in seen:
            return False
        raw, args, state = read_args(call.arguments)
        row = {
            "trajectory_id": this, "step_ix": ix, "call_ix": call_ix, "call_id": call.id, "name": call.name,
            "kind": "function", "args_raw": raw, "args": args, "args_state": state, "result_state": "missing",
        }  # fmt: skip
        seen.add(call.id)
        waiting[call.id] = row
        calls.append(row)
    return True


def _answer(call: dict[str, Any], ix: int, step: QuickStep) -> None:
    code = step.exit_code
    is_error = True if step.error else code != 0 if type(code) is int else None
    call["result_step_ix"] = ix
    call["result_text"] = step.content
    call["result_state"] = "error" if is_error else "ok"
    call["is_error"] = is_error
    call["error_type"] = step.error.type if step.error else None
    call["paired_by"] = "id"
