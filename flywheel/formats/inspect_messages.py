"""One chat message of Inspect as a step: its calls name the function directly, its arguments are parsed already.

    {role, content: text | parts, source: input|generate, tool_calls: [{id, function, arguments, parse_error}],
     tool_call_id, function, error: {type, message}}

Content parts of kind `reasoning` become the step's reasoning; all parts are kept as they stood.
Not covered: the model's own text of a call whose arguments it wrote wrongly, of which Inspect keeps the error only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.records import Step, ToolCall

_REASONING = {"type", "reasoning", "summary", "internal"}


def add(conversation: Conversation, message: Any) -> int:
    """Append one message; gives its step. Never raises on data."""
    if not isinstance(message, dict):
        return add_message(conversation, message)
    columns: dict[str, Any] = {"model": as_text(message.get("model"))}
    if message.get("role") == "assistant" and message.get("source") in ("input", "generate"):
        columns["sampled"] = message["source"] == "generate"
    columns |= _reasoning(message)
    error = _error(message) if message.get("role") == "tool" else {}
    return add_message(conversation, _plain(message, bool(error)), **columns, **error)


def _plain(message: Mapping[str, Any], failed: bool) -> dict[str, Any]:
    """The message in OpenAI's shape. What has columns that OpenAI's messages have not is left out."""
    left_out = {"model"} if as_text(message.get("model")) else set()
    left_out |= {"source"} if message.get("source") in ("input", "generate") else set()
    plain = {key: item for key, item in message.items() if key not in left_out and item is not None}
    if isinstance(plain.get("tool_calls"), list):
        plain["tool_calls"] = [_call(call) for call in plain["tool_calls"]]
    if message.get("role") == "tool":
        plain |= {"is_error": failed}
        function = as_text(plain.pop("function", None))
        plain |= {"name": function} if function else {}
        if failed:
            for key in ("error", "tool_error"):
                plain.pop(key, None)
            rest = {key: item for key, item in as_dict(message.get("error")).items() if key not in ("type", "message")}
            plain |= {"error": rest} if rest else {}
    return plain


def _call(call: Any) -> Any:
    given = as_dict(call)
    if not isinstance(given.get("function"), str):
        return call
    rest = {key: item for key, item in given.items() if key not in ("function", "arguments") and item is not None}
    return {**rest, "function": {"name": given["function"], "arguments": given.get("arguments")}}


def _error(message: Mapping[str, Any]) -> dict[str, Any]:
    error = message.get("error") or message.get("tool_error")
    if not error:
        return {}
    kind, text = first_text(as_dict(error), "type"), first_text(as_dict(error), "message")
    return {"error_type": kind, "error_message": as_text(error) or text or dumps(error)}


def finish(conversation: Conversation) -> tuple[tuple[Step, ...], tuple[ToolCall, ...]]:
    """The rows; a call failed in the way that the step which answers it says."""
    steps, calls = conversation.finish()
    told = (
        call if call.result_step_ix is None else replace(call, error_type=steps[call.result_step_ix].error_type)
        for call in calls
    )
    return steps, tuple(told)


def _reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = [as_dict(part) for part in as_list(message.get("content"))]
    parts = [part for part in parts if part.get("type") == "reasoning"]
    if not parts:
        return {}
    texts = [as_text(part.get("summary" if part.get("redacted") else "reasoning")) for part in parts]
    opaque = [{key: item for key, item in part.items() if key not in _REASONING and item} for part in parts]
    opaque = [
        {**item, "reasoning": part["reasoning"]} if part.get("redacted") and "reasoning" in part else item
        for item, part in zip(opaque, parts, strict=True)
    ]
    return {
        "reasoning": "\n".join(text for text in texts if text) or None,
        "reasoning_opaque": dumps(opaque) if any(opaque) else None,
    }
