"""The events of a streamed OpenAI response, merged into the response they make.

The last `response.completed`, `.incomplete` or `.failed` event brings the whole response. A stream that was cut before
has the items that `response.output_item.done` brought, and the texts and arguments that arrived in pieces for the rest.

Not covered: partial images, audio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.formats.reader import as_dict, as_int, as_list, as_text

_WHOLE = ("response.completed", "response.incomplete", "response.failed", "response.done")
_DELTAS = {
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
    "response.mcp_call_arguments.delta": "arguments",
    "response.mcp_call.arguments_delta": "arguments",
    "response.code_interpreter_call_code.delta": "code",
    "response.code_interpreter_call.code.delta": "code",
}
_PARTS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
}


def is_event(value: Any) -> bool:
    """Whether it is an event of a streamed response."""
    return isinstance(value, dict) and (as_text(value.get("type")) or "").startswith("response.")


def merge_events(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The response; one that was cut keeps the status of its last event (`in_progress`)."""
    response: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        kind = as_text(event.get("type")) or ""
        response |= as_dict(event.get("response"))
        if kind in _WHOLE and as_list(response.get("output")):
            return response
        if kind == "error":
            response["error"] = {key: value for key, value in event.items() if key != "type"}
        index = as_int(event.get("output_index"))
        if index is None:
            continue
        if kind in ("response.output_item.added", "response.output_item.done"):
            items[index] = dict(as_dict(event.get("item")))
        elif kind in _DELTAS:
            item = items.setdefault(index, {})
            item[_DELTAS[kind]] = _joined(item.get(_DELTAS[kind]), event.get("delta"))
        elif kind in _PARTS:
            _add_part(items.setdefault(index, {"type": "message", "role": "assistant"}), event, *_PARTS[kind])
    response["output"] = [items[index] for index in sorted(items)]
    return response


def _add_part(item: dict[str, Any], event: Mapping[str, Any], place: str, kind: str, key: str) -> None:
    at = as_int(event.get("summary_index" if place == "summary" else "content_index")) or 0
    parts = item[place] = list(as_list(item.get(place)))
    if at >= len(parts):
        at = len(parts)
        parts.append({"type": kind, key: ""})
    part = as_dict(parts[at])
    parts[at] = {**part, key: _joined(part.get(key), event.get("delta"))}


def _joined(held: Any, more: Any) -> str:
    return (held if isinstance(held, str) else "") + (more if isinstance(more, str) else "")
