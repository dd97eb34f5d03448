"""What all chat formats share: messages to steps, and tool results paired to their calls.

`Conversation` collects messages, calls and results in the order they were written and pairs them at the end: by id
first (an id that is used again belongs to the latest call that has it), then by order. What doesn't pair stays, marked:
a second result for one call, a result without a call, a result that stands before its call.

Not covered: media out of line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from flywheel.formats.parse import Decoded, dumps, try_loads
from flywheel.records import Step, ToolCall

ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "agent": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "ipython": "tool",
}
CALLERS = ("assistant", "user")  # a simulated user may have tools of its own
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A message's content: its text, whether there was any, and the original where it was no plain string."""

    text: str | None
    state: str
    parts: str | None = None
    refusal: str | None = None


def read_content(message: Mapping[str, Any], key: str = "content") -> Content:
    """Content that is a string, null, missing, a list of parts, or (in the wild) anything else."""
    if key not in message:
        return Content(text=None, state="missing")
    value = message[key]
    if value is None:
        return Content(text=None, state="null")
    if isinstance(value, str):
        return Content(text=value, state="present")
    if not isinstance(value, list):
        return Content(text=dumps(value), state="present", parts=dumps(value))
    texts = [part if isinstance(part, str) else _part_text(part) for part in value]
    refusals = [p["refusal"] for p in value if isinstance(p, dict) and isinstance(p.get("refusal"), str)]
    return Content(
        text="\n".join(text for text in texts if text is not None),
        state="present",
        parts=dumps(value),
        refusal="\n".join(refusals) or None,
    )


def _part_text(part: Any) -> str | None:
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    return None


def read_args(value: Any) -> tuple[str | None, str | None, str]:
    """(args_raw, args, args_state) of arguments that may be a string (verbatim), an object, or anything else."""
    if value is None:
        return None, None, "null"
    if not isinstance(value, str):
        # The model's own text is lost: an object on the wire was parsed by somebody before us.
        return (None, dumps(value), "ok") if isinstance(value, dict) else (None, None, "not_object")
    if not value.strip():
        return value, None, "empty"
    decoded = try_loads(value)
    if decoded is None:
        return value, None, "invalid_json"
    return (value, *_args_of(decoded.value))


def _args_of(value: Any) -> tuple[str | None, str]:
    if isinstance(value, dict):
        return dumps(value), "ok"
    if value is None:
        return None, "null"
    inner = try_loads(value) if isinstance(value, str) else None
    if isinstance(inner, Decoded) and isinstance(inner.value, dict):
        return dumps(inner.value), "double_encoded"
    return None, "not_object"


@dataclass(slots=True)
class _Open:
    """A call that waits for its result."""

    call: ToolCall
    answered: bool = False


@dataclass(slots=True)
class Conversation:
    """Messages in order; `finish` gives the rows."""

    trajectory_id: str
    steps: list[Step] = field(default_factory=list)
    _calls: list[_Open] = field(default_factory=list)
    _named: dict[str | None, list[_Open]] = field(default_factory=dict)  # by call_id
    _early: list[int] = field(default_factory=list)  # results whose id no call had yet

    def add(self, **columns: Any) -> int:
        """Append a step (its columns but trajectory_id and step_ix); gives its step_ix.

        Without a `parent_ix` it follows the step before it; a graph with branches says which step it follows.
        """
        ix = len(self.steps)
        columns.setdefault("parent_ix", ix - 1 if ix else None)
        self.steps.append(Step(trajectory_id=self.trajectory_id, step_ix=ix, **columns))
        return ix

    def call(self, step_ix: int, *, call_id: str | None, arguments: Any, **columns: Any) -> None:
        """Append a call that the step made. `arguments` are as they stood on the wire."""
        raw, args, state = read_args(arguments)
        if state == "not_object" and raw is None:
            columns["extra"] = dumps({**columns.get("extra", {}), "arguments": arguments})
        elif "extra" in columns:
            columns["extra"] = dumps(columns["extra"]) if columns["extra"] else None
        call_ix = self.steps[step_ix].n_tool_calls
        self.steps[step_ix] = replace(self.steps[step_ix], n_tool_calls=call_ix + 1)
        call = ToolCall(
            trajectory_id=self.trajectory_id,
            step_ix=step_ix,
            call_ix=call_ix,
            call_id=call_id or f"call_{step_ix}_{call_ix}",
            call_id_generated=not call_id,
            args_raw=raw,
            args=args,
            args_state=state,
            result_state="missing",
            **columns,
        )
        waiting = _Open(call)
        self._calls.append(waiting)
        self._named.setdefault(call.call_id, []).append(waiting)

    def result(self, step_ix: int, *, is_error: bool | None = None, caller: int | None = None, **columns: Any) -> None:
        """Pair the tool step to the call it answers; without an id, only among the calls of step `caller` if given.

        `columns` go to that call (`error_type`, `ended_at`, ...).
        """
        step = self.steps[step_ix]
        found = self._by_id(step.tool_call_id) if step.tool_call_id else self._by_order(step.name, caller)
        if found is not None:
            self._answer(found, step_ix, "id" if step.tool_call_id else "order", is_error, columns)
            return
        same = self._named.get(step.tool_call_id, []) if step.tool_call_id else []
        if same:
            same[-1].call = replace(same[-1].call, result_state="duplicate")
            self.flag(step_ix, "duplicate_result")
        elif step.tool_call_id:
            self._early.append(step_ix)
        elif self._calls:
            self.flag(step_ix, "orphan_result")

    def knows_tool(self, name: str) -> bool:
        """Whether a call of that name was made so far."""
        return any(c.call.name == name for c in self._calls)

    def flag(self, step_ix: int, name: str) -> None:
        """Add a quality flag to a step."""
        step = self.steps[step_ix]
        self.steps[step_ix] = replace(step, quality_flags=(*(step.quality_flags or ()), name))

    def finish(self) -> tuple[tuple[Step, ...], tuple[ToolCall, ...]]:
        """The rows, with results that came before their call paired at last."""
        for step_ix in self._early:
            found = next((c for c in self._calls if not c.answered and self._matches(c, step_ix)), None)
            if found is None:
                self.flag(step_ix, "orphan_result")
                continue
            self._answer(found, step_ix, "id", None, {})
            found.call = replace(found.call, result_state="orphan_repaired")
            self.flag(step_ix, "result_before_call")
        return tuple(self.steps), tuple(c.call for c in self._calls)

    def _matches(self, waiting: _Open, step_ix: int) -> bool:
        return waiting.call.call_id == self.steps[step_ix].tool_call_id and waiting.call.step_ix > step_ix

    def _by_id(self, call_id: str | None) -> _Open | None:
        waiting = [c for c in self._named.get(call_id, ()) if not c.answered]
        latest = max((c.call.step_ix for c in waiting), default=None)
        return next((c for c in waiting if c.call.step_ix == latest), None)

    def _by_order(self, name: str | None, caller: int | None) -> _Open | None:
        """The first call that waits and has that name, one without an id of its own before one with."""
        waiting = [
            c
            for c in self._calls
            if not c.answered
            and (caller is None or c.call.step_ix == caller)
            and (name is None or c.call.name in (None, name))
        ]
        waiting.sort(key=lambda c: not c.call.call_id_generated)
        return waiting[0] if waiting else None

    def _answer(
        self, found: _Open, step_ix: int, paired_by: str, is_error: bool | None, columns: Mapping[str, Any]
    ) -> None:
        step = self.steps[step_ix]
        found.answered = True
        found.call = replace(
            found.call,
            result_step_ix=step_ix,
            result_text=step.content,
            result_parts=step.parts,
            result_state="error" if is_error else "ok",
            is_error=is_error,
            paired_by=paired_by,
            **columns,
        )
