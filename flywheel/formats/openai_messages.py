"""One OpenAI chat message to a step with its calls; shared by every format that stores such messages.

Takes what gateways and trainers add: reasoning in five spellings, marks of what to train on (`weight`, `loss_mask`,
`train`, ...: 1 or true is to be learnt), legacy function calls, roles of other frameworks. The rest goes to `extra`.

Not covered: streamed deltas, media out of line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.messages import CALLERS, ROLES, Conversation, read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.times import read_time

_TEXTS = {"role", "name", "tool_call_id", "refusal", "id"}  # have a column if they're text
_KNOWN = {
    "content", "tool_calls", "function_call", "reasoning_content", "reasoning", "reasoning_details",
    "thinking_blocks", "timestamp", "is_error",
}  # fmt: skip
_LEARNT = ("weight", "loss_mask", "train", "training", "trainable", "loss")
_KNOWN_CALL = {"id", "type", "function", "index", "name", "arguments"}
_CALL = {"name", "arguments"}
_MARKS = frozenset(_LEARNT)
_REASONINGS = frozenset({"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"})
_PLAIN = frozenset({"role", "content", "name", "tool_call_id", "tool_calls"})  # what most messages have and no more


def add_message(conversation: Conversation, message: Any, **columns: Any) -> int:
    """Append one message, pair its result or register its calls; gives its step_ix. Never raises on data.

    `columns` are step columns that the message itself doesn't have (`sampled`, tokens, `llm_call_id`, ...).
    """
    if not isinstance(message, dict):
        return conversation.add(
            role="event", content_state="missing", raw=dumps(message), quality_flags=("not_a_message",), **columns
        )
    role, flags = _role(conversation, message)
    content = read_content(message)
    time = read_time(message.get("timestamp"))
    reasoning, opaque = _reasoning(message)
    call_id = as_text(message.get("tool_call_id"))
    step_ix = conversation.add(
        **{
            "native_id": as_text(message.get("id")),
            "role": role,
            "role_raw": as_text(message.get("role")),
            "name": as_text(message.get("name")),
            "content": content.text,
            "content_state": content.state,
            "parts": content.parts,
            "refusal": as_text(message.get("refusal")) or content.refusal,
            "reasoning": reasoning,
            "reasoning_opaque": opaque,
            "tool_call_id": call_id,
            "trainable": _trainable(message),
            "ts": time.at,
            "ts_raw": time.raw,
            "quality_flags": flags or None,
            "extra": _rest(message, role),
            **columns,
        }
    )
    if role == "tool":
        conversation.result(step_ix, is_error=_is_error(message))
    if role in CALLERS:
        _add_calls(conversation, step_ix, message)
    return step_ix


def _role(conversation: Conversation, message: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    raw = message.get("role")
    if isinstance(raw, str) and raw.lower() in ROLES:
        return ROLES[raw.lower()], ()
    if message.get("tool_calls") or message.get("function_call"):
        return "assistant", ("odd_role",)
    # Some frameworks store a tool's message under the tool's own name.
    if message.get("tool_call_id") or (isinstance(raw, str) and conversation.knows_tool(raw)):
        return "tool", ("odd_role",)
    return "event", ("odd_role",)


def _reasoning(message: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(plain text, opaque JSON) of the spellings of DeepSeek and vLLM, OpenRouter, LiteLLM."""
    if _REASONINGS.isdisjoint(message):
        return None, None
    blocks = {key: message[key] for key in ("reasoning_details", "thinking_blocks") if message.get(key)}
    plain = message.get("reasoning_content")
    if plain is None:
        plain = message.get("reasoning")
    if not isinstance(plain, str):
        if plain is not None:
            blocks["reasoning"] = plain
        texts = [first_text(as_dict(b), "text", "thinking", "summary") for v in blocks.values() for b in as_list(v)]
        plain = "\n".join(text for text in texts if text) or None
    return plain, dumps(blocks) if blocks else None


def _trainable(message: Mapping[str, Any]) -> bool | None:
    """What the first mark says that is 0, 1 or a boolean; a weight between them is kept, and is neither."""
    if _MARKS.isdisjoint(message):
        return None
    for key in _LEARNT:
        if key in message and _is_mark(message[key]):
            return bool(message[key])
    return None


def _is_mark(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def _is_error(message: Mapping[str, Any]) -> bool | None:
    value = message.get("is_error")
    return value if isinstance(value, bool) else None


def _add_calls(conversation: Conversation, step_ix: int, message: Mapping[str, Any]) -> None:
    calls, legacy = message.get("tool_calls"), message.get("function_call")
    for position, item in enumerate(as_list(calls)):
        call = as_dict(item)
        body = as_dict(call.get("function")) or call
        conversation.call(
            step_ix,
            call_id=as_text(call.get("id")),
            name=as_text(body.get("name")),
            kind=as_text(call.get("type")),
            arguments=body.get("arguments"),
            extra=_rest_of_call(item, body, position),
        )
    if isinstance(legacy, dict):
        conversation.call(
            step_ix,
            call_id=None,
            name=as_text(legacy.get("name")),
            kind="function",
            arguments=legacy.get("arguments"),
            extra={key: value for key, value in legacy.items() if key not in _CALL},
        )


def _rest_of_call(item: Any, body: Mapping[str, Any], position: int) -> dict[str, Any]:
    if not isinstance(item, dict):
        return {} if item is None else {"call": item}
    rest = {key: value for key, value in item.items() if key not in _KNOWN_CALL}
    if item.get("index") not in (None, position):
        rest["index"] = item["index"]
    if body is not item:
        more = {key: value for key, value in body.items() if key not in _CALL}
        rest |= {"function": more} if more else {}
    return rest


def _rest(message: Mapping[str, Any], role: str) -> str | None:
    """What no column took: unknown keys, known ones of a type nobody expects, calls of one who can't make any."""
    if message.keys() <= _PLAIN and role in CALLERS and isinstance(message.get("tool_calls", []), list):
        texts = (message.get("name"), message.get("tool_call_id"), message.get("role"))
        if all(text is None or isinstance(text, str) for text in texts):
            return None
    rest = {
        key: value
        for key, value in message.items()
        if key not in _KNOWN and not (key in _TEXTS and (value is None or value == "" or as_text(value) is not None))
    }
    for key, kind in (("tool_calls", list), ("function_call", dict), ("is_error", bool)):
        no_caller = key != "is_error" and role not in CALLERS
        if message.get(key) and (no_caller or not isinstance(message[key], kind)):
            rest[key] = message[key]
    mark = next((key for key in _LEARNT if key in message and _is_mark(message[key])), None)
    rest.pop(mark or "", None)
    if message.get("timestamp") is not None and read_time(message["timestamp"]).raw is None:
        rest["timestamp"] = message["timestamp"]
    plain, other = message.get("reasoning_content"), message.get("reasoning")
    if isinstance(plain, str) and isinstance(other, str) and other != plain:
        rest["reasoning"] = other
    return dumps(rest) if rest else None
