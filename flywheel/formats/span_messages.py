"""Messages as tracing tools record them, in any of their shapes, to messages of OpenAI's shape.

    {role, parts: [{type: text | tool_call | tool_call_response | reasoning | blob | ..., ...}]}    OTel GenAI
    {role, content: [{type: text | tool_use | tool_result | thinking | ...}]}                       Anthropic
    {role, content: [{type: text | tool-call | tool-result | reasoning | ...}]}                      Vercel's AI SDK
    {type: human | ai | tool, content} {lc, kwargs} {type: function_call | message | ...}           LangChain, Responses
    {messages} {choices} {prompt} {system, messages} {input} {output} {generations}                 requests, responses

One message may become several: results of tools that stand among its parts are messages of their own, in their place.
Texts stay as they are; a part that has no place in OpenAI's shape stays in `content` as it was.

Not covered: which attribute holds what (`genai.py` and its neighbours).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.messages import ROLES
from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_list, as_text, first_text

Message = dict[str, Any]
_CALLS = {"tool_call": "function", "tool_use": "function", "tool-call": "function", "function_call": "function"}
_SERVER_CALLS = ("server_tool_call", "server_tool_use", "mcp_tool_use")
_RESULTS = ("tool_call_response", "tool_result", "tool-result", "function_call_output", "server_tool_call_response")
_REASONING = ("reasoning", "thinking")
TEXTS = ("text", "input_text", "output_text")
_BLOCKS = {*TEXTS, "tool_use", "tool-call", "thinking", "redacted_thinking"}  # of one message, never one themselves
_LANGCHAIN = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
_CLASSES = {"HumanMessage": "user", "AIMessage": "assistant", "SystemMessage": "system", "ToolMessage": "tool"}


def messages_of(value: Any, role: str) -> list[Message] | None:
    """The messages in a value of any of those shapes; a bare text is one of `role`. None where it's no message."""
    if isinstance(value, str):
        return [{"role": role, "content": value}] if value else None
    if isinstance(value, list):
        return _of_list(value, role)
    body = as_dict(value)
    if "lc" in body and isinstance(body.get("kwargs"), dict):
        return _of_langchain(body)
    if _is_message(body):
        return one_message(body, role)
    if isinstance(body.get("choices"), list):
        choices = choices_of(body["choices"])
        return choices[0] if choices else None
    for key in ("messages", "input", "output", "contents", "prompt", "generations", "message"):
        found = messages_of(body[key], role) if key in body else None
        if found:
            system = body.get("system", body.get("instructions"))
            return [*(messages_of(system, "system") or []), *found]
    return None


def choices_of(choices: list[Any]) -> list[list[Message]]:
    """Each choice of a chat completion as its messages; the finish reason stays with the message."""
    found = []
    for choice in choices:
        body = as_dict(choice)
        message = body.get("message", body.get("text"))
        messages = messages_of(message, "assistant")
        if messages:
            if body.get("finish_reason") is not None:
                messages[-1].setdefault("finish_reason", body["finish_reason"])
            found.append(messages)
    return found


def _of_list(items: list[Any], role: str) -> list[Message] | None:
    if len(items) == 1 and isinstance(items[0], list):  # LangChain batches: one list of messages a prompt
        items = items[0]
    if items and all(as_text(as_dict(item).get("type")) in _BLOCKS and "role" not in item for item in items):
        return one_message({"role": role, "parts": items}, role)
    found: list[Message] = []
    for item in items:
        part = [{"role": role, "content": item}] if isinstance(item, str) else messages_of(item, role)
        if part is None:
            return None
        found += part
    return found or None


def _is_message(body: Mapping[str, Any]) -> bool:
    if isinstance(body.get("role"), str):
        return bool({"content", "parts", "tool_calls"} & set(body))
    kind = as_text(body.get("type"))
    return kind in (*_CALLS, *_RESULTS, *_REASONING) or (kind in _LANGCHAIN and "content" in body)


def _of_langchain(body: Mapping[str, Any]) -> list[Message] | None:
    name = as_text(next(iter(as_list(body.get("id"))[-1:]), None)) or ""
    role = _CLASSES.get(name.removesuffix("Chunk"))
    if role is None:
        return None
    return one_message({**{k: v for k, v in body["kwargs"].items() if k != "type"}, "role": role}, role)


def one_message(body: Mapping[str, Any], role: str) -> list[Message]:
    """A message of any of the shapes with a role or a type of its own."""
    if "role" not in body:
        kind = as_text(body.get("type"))
        if kind not in _LANGCHAIN or "content" not in body:  # an item of the Responses API
            return _split("assistant", [dict(body)], {})
        body = {**{k: v for k, v in body.items() if k != "type"}, "role": _LANGCHAIN[kind or ""]}
    role = as_text(body.get("role")) or role
    parts, rest = _parts(body)
    if parts is None:
        message = dict(body)
        if "tool_calls" in message:
            message["tool_calls"] = [_langchain_call(call) for call in as_list(body["tool_calls"])]
        return [message]
    return _split(role, parts, rest)


def _parts(body: Mapping[str, Any]) -> tuple[list[Any] | None, Message]:
    """(the parts that have to be sorted, the rest of the message); None where OpenAI's reader takes it as it is."""
    for key in ("parts", "content"):
        value = body.get(key)
        if isinstance(value, list) and (key == "parts" or any(_is_foreign(part) for part in value)):
            return value, {k: v for k, v in body.items() if k not in (key, "role") and v is not None}
    return None, {}


def _is_foreign(part: Any) -> bool:
    return as_text(as_dict(part).get("type")) in (*_CALLS, *_SERVER_CALLS, *_RESULTS, *_REASONING)


def _langchain_call(call: Any) -> Any:
    """`{name, args, id}` as `{id, function}`; others as they are."""
    body = as_dict(call)
    if "args" not in body or "function" in body:
        return call
    rest = {key: value for key, value in body.items() if key not in ("args", "name", "id", "type")}
    return {"id": body.get("id"), "type": "function", "function": _function(body, body["args"]), **rest}


def _split(role: str, parts: list[Any], rest: Message) -> list[Message]:
    """A message by its parts: what it says and calls, and the results among them as messages of their own."""
    out: list[Message] = []
    said: list[Any] = []
    for part in parts:
        if as_text(as_dict(part).get("type")) in _RESULTS or "tool_result" in as_dict(part):
            if said:
                out.append(_message(role, said, {}))
            out.append(_result(as_dict(part)))
            said = []
        else:
            said.append(part)
    if said or not out:
        out.append(_message(role, said, rest))
    elif rest:
        out[-1] = {**rest, **out[-1]}
    return out


def _message(role: str, parts: list[Any], rest: Message) -> Message:
    content: list[Any] = []
    calls: list[Any] = []
    thoughts: list[Any] = []
    for part in parts:
        body = as_dict(part)
        kind = as_text(body.get("type"))
        if kind in _CALLS or kind in _SERVER_CALLS:
            calls.append(_call(body, kind or ""))
        elif kind in _REASONING:
            thoughts.append(body)
        else:
            content.append(_content_part(part))
    message: Message = {"role": role, "content": _content(content), **rest}
    if calls:
        message["tool_calls"] = calls
    if thoughts:
        texts = [first_text(body, "content", "text", "thinking", "reasoning") for body in thoughts]
        message["reasoning_content"] = "\n".join(text for text in texts if text) or None
        if any(set(body) - {"type", "content", "text", "thinking"} for body in thoughts):
            message["thinking_blocks"] = thoughts  # signatures and the like, verbatim
    return message


def _content_part(part: Any) -> Any:
    body = as_dict(part)
    if body.get("type") == "text" and isinstance(body.get("content"), str) and "text" not in body:
        return {"text" if key == "content" else key: value for key, value in body.items()}
    return part


def _content(parts: list[Any]) -> Any:
    """A text where it's one text and nothing else."""
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    return parts or None


def _call(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    known = {"type", "id", "call_id", "toolCallId", "name", "toolName", "arguments", "input", "args", kind}
    arguments = next((body[key] for key in ("arguments", "input", "args", kind) if key in body), None)
    rest = {key: value for key, value in body.items() if key not in known and value is not None}
    if kind == "function_call" and "call_id" in body and body.get("id") is not None:
        rest["item_id"] = body["id"]
    return {
        "id": first_text(body, "call_id", "toolCallId", "id"),
        "type": "server" if kind in _SERVER_CALLS else "function",
        "function": _function(body, arguments),
        **rest,
    }


def _function(body: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    return {"name": first_text(body, "name", "toolName"), "arguments": arguments}


def _result(body: Mapping[str, Any]) -> Message:
    """A result: `response` by the schema of OTel GenAI, `result` by its examples, `content` or `output` elsewhere."""
    ids, values = ("call_id", "tool_use_id", "toolCallId", "id"), ("response", "result", "content", "output")
    value = next((body[key] for key in (*values, "server_tool_call_response") if key in body), None)
    known = {"type", *ids, "name", "toolName", *values, "server_tool_call_response"}
    rest = {key: item for key, item in body.items() if key not in known and item is not None}
    message: Message = {"role": "tool", "tool_call_id": first_text(body, *ids), "content": value, **rest}
    name = first_text(body, "name", "toolName")
    return {**message, "name": name} if name else message


def opened(value: Any, flags: list[str], expected: type | tuple[type, ...] = (dict, list)) -> Any:
    """JSON inside a text, opened (twice at most: then it's flagged); a text that is none, or is cut, stays a text."""
    for level in range(2):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{", '"'):
            return value
        decoded = try_loads(value)
        if decoded is None:
            if level == 0 and value.lstrip()[0] != '"':
                flags.append("truncated_attribute")
            return value
        if not isinstance(decoded.value, (*((expected,) if isinstance(expected, type) else expected), str)):
            return value
        if level == 1:
            flags.append("double_encoded")
        value = decoded.value
    return value


def role_of(value: Any) -> str:
    """The canonical role of a message, `event` for none."""
    return ROLES.get((as_text(value) or "").lower(), "event")
