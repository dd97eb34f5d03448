"""What Langfuse and LangSmith recorded as a call's input and output, to messages of OpenAI's shape.

Both store whatever the traced library handed over, as objects or as JSON text (once or twice over). Beyond the shapes
of `span_messages.py`:

    {contents, config: {system_instruction}} {candidates} {content: {role, parts}}      Gemini, Google ADK
    {generations: [[{message | text}]]}  {type, data}  {lc, kwargs: {additional_kwargs}}      LangChain
    {args, kwargs}                                                      Python functions under a decorator
    role = name of the tool (LangGraph in JavaScript), calls as JSON inside `content` (Koog), toolCallId (Vercel)

What is none of these stays one message with the value as its content.

Not covered: which field of a record holds what (`langfuse_spans.py`, `langsmith_spans.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.messages import ROLES
from flywheel.formats.parse import Bad, decode, try_loads
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.span_messages import Message, messages_of

_SYSTEM = ("system_instruction", "systemInstruction")
_LOST = {"content": "role"}  # what Langfuse made of the attributes of some Claude agents' turns
_GEMINI_ROLES = {"model": "assistant", "function": "tool"}


def unpacked(value: Any) -> Any:
    """The object or list in a text that is JSON, also JSON inside JSON; any other text as it stands."""
    for _ in range(2):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            return value
        decoded = try_loads(value)
        if decoded is None or not isinstance(decoded.value, (dict, list, str)):
            return value
        value = decoded.value
    return value


def is_cut(value: Any) -> bool:
    """Whether a text begins as JSON and stops before its end, as attribute limits leave it."""
    if not isinstance(value, str) or value.lstrip()[:2] not in ('{"', "[{", '["'):
        return False
    found = decode(value.encode("utf-8", "surrogatepass"))
    return isinstance(found, Bad) and found.code == "truncated_json"


def told(value: Any) -> list[Message] | None:
    """The messages a model was given; None where nothing was recorded."""
    found = _messages(unpacked(value), "user")
    return None if found is None else _with_roles(found)


def said(value: Any) -> list[list[Message]] | None:
    """What a model answered, one list of messages a choice; None where nothing was recorded."""
    value = unpacked(value)
    body = as_dict(value)
    for key, pick in (("choices", _choice), ("candidates", _candidate), ("generations", _generation)):
        if isinstance(body.get(key), list):
            items = (
                body[key][0] if key == "generations" and body[key][:1] and isinstance(body[key][0], list) else body[key]
            )
            found = [messages for item in items if (messages := pick(as_dict(item)))]
            return found or None
    if body.get("object") == "response" and isinstance(body.get("output"), list):
        value = {"output": body["output"]}  # its instructions are what it was told
    messages = _messages(value, "assistant")
    return None if messages is None else [_with_roles(messages)]


def _messages(value: Any, role: str) -> list[Message] | None:
    if value is None or value in ("", [], {}) or value == _LOST:
        return None
    body = as_dict(value)
    if isinstance(body.get("contents"), (list, dict, str)):
        return _gemini_request(body, role)
    if isinstance(body.get("prompts"), list) and all(isinstance(text, str) for text in body["prompts"]):
        return messages_of(body["prompts"], role)
    for key in ("content", "new_message"):
        if isinstance(as_dict(body.get(key)).get("parts"), list):
            return _messages(body[key], role)
    if set(body) and set(body) <= {"args", "kwargs"}:
        return _of_function(body, role)
    found = messages_of(_plain(value), role)
    if found:
        return [_finished(_koog(message)) for message in found]
    return [{"role": role, "content": value}]


def _of_function(body: Mapping[str, Any], role: str) -> list[Message]:
    """The arguments of a traced function: its messages, its one text, or all of them as they are."""
    kwargs, args = as_dict(body.get("kwargs")), as_list(body.get("args"))
    inner = next((kwargs[key] for key in ("messages", "input", "prompt") if kwargs.get(key)), None)
    if inner is None and len(args) == 1 and not kwargs:
        inner = args[0]
    found = None if inner is None else messages_of(_plain(inner), role)
    return found or [{"role": role, "content": dict(body)}]


def _gemini_request(body: Mapping[str, Any], role: str) -> list[Message]:
    config = as_dict(body.get("config"))
    system = next((place[key] for place in (config, body) for key in _SYSTEM if place.get(key)), None)
    contents = body["contents"]
    found = messages_of(_plain(contents if isinstance(contents, list) else [contents]), role)
    before = [] if system is None else messages_of(_plain(system), "system") or []
    for message in before:
        message["role"] = "system"
    return [*before, *(found or [{"role": role, "content": contents}])]


def _plain(value: Any) -> Any:
    """The value with Gemini's, LangChain's and Vercel's own spellings written as the others write them."""
    if isinstance(value, list):
        if value and all({"toolCallId", "toolName"} <= set(as_dict(item)) for item in value):
            return {"role": "assistant", "content": [{"type": "tool-call", **item} for item in value]}
        return [_plain(item) if isinstance(item, (dict, list)) else item for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("parts"), list) and any("type" not in as_dict(part) for part in value["parts"]):
        role = as_text(value.get("role")) or "user"
        return {
            **value,
            "role": _GEMINI_ROLES.get(role, role),
            "parts": [_gemini_part(part) for part in value["parts"]],
        }
    if isinstance(value.get("parts"), list):
        return {**value, "parts": [_one_id(part) for part in value["parts"]]}
    if isinstance(value.get("data"), dict) and isinstance(value.get("type"), str) and "content" in value["data"]:
        return {**value["data"], "type": value["type"]}
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        return {**value, "kwargs": _with_calls(value["kwargs"])}
    if isinstance(value.get("role"), str) and "additional_kwargs" in value:
        return _with_calls(value)
    if "toolCallId" in value and value.get("role") == "tool":
        rest = {key: item for key, item in value.items() if key != "toolCallId"}
        return {**rest, "tool_call_id": value["toolCallId"]}
    for key in ("messages", "input", "output", "prompt", "message"):
        if isinstance(value.get(key), (dict, list)):
            return {**value, key: _plain(value[key])}
    return value


def _gemini_part(part: Any) -> Any:
    body = as_dict(part)
    call = as_dict(body.get("function_call", body.get("functionCall")))
    result = as_dict(body.get("function_response", body.get("functionResponse")))
    if call:
        return {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("args")}
    if result:
        return {"type": "tool_call_response", "id": result.get("id"), "name": result.get("name"),
                "response": result.get("response")}  # fmt: skip
    if isinstance(body.get("text"), str):
        return {"type": "reasoning" if body.get("thought") is True else "text", **body}
    return part


def _one_id(part: Any) -> Any:
    """A part whose id is a run's and its call's together: the call's."""
    ids = as_dict(part).get("id")
    return {**part, "id": ids[-1], "ids": ids} if isinstance(ids, list) and ids else part


def _with_calls(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A LangChain message with its calls as the model wrote them, where OpenAI's answer is still among its words.

    `tool_calls` holds arguments that LangChain parsed, `invalid_tool_calls` the texts that it could not.
    """
    parsed = [*as_list(kwargs.get("tool_calls")), *as_list(kwargs.get("invalid_tool_calls"))]
    added = as_dict(kwargs.get("additional_kwargs"))
    found = {key: added[key] for key in ("tool_calls", "function_call") if added.get(key)}
    ids = [as_dict(call).get("id") for call in parsed]
    written = [as_dict(call).get("id") for call in as_list(found.get("tool_calls"))]
    if parsed and sorted(map(str, ids)) != sorted(map(str, written)):
        rest = {key: item for key, item in kwargs.items() if key != "invalid_tool_calls"}
        return {**rest, "tool_calls": parsed}
    if not found:
        return dict(kwargs)
    kwargs = {key: item for key, item in kwargs.items() if key not in ("tool_calls", "invalid_tool_calls")}
    rest = {key: item for key, item in added.items() if key not in found and item not in (None, {}, [])}
    return {**{k: v for k, v in kwargs.items() if k != "additional_kwargs"}, **found,
            **({"additional_kwargs": rest} if rest else {})}  # fmt: skip


def _koog(message: Message) -> Message:
    """A message whose content is the JSON of its calls."""
    content = message.get("content")
    if not isinstance(content, str) or not content.startswith('[{"') or message.get("tool_calls"):
        return message
    decoded = try_loads(content)
    calls = [as_dict(item) for item in as_list(decoded.value)] if decoded is not None else []
    if not calls or not all(isinstance(call.get("function"), dict) and "id" in call for call in calls):
        return message
    return {**message, "role": "assistant", "content": None, "tool_calls": calls}


def _finished(message: Message) -> Message:
    """A finish reason that is an object (a stream that was merged too far) as the text in it."""
    reason = message.get("finish_reason")
    inner = as_dict(reason).get("finish_reason")
    return message if inner is None else {**message, "finish_reason": inner}


def _choice(choice: Mapping[str, Any]) -> list[Message] | None:
    found = _messages(choice.get("message", choice.get("text")), "assistant")
    if found and choice.get("finish_reason") is not None:
        found[-1] = _finished({**found[-1], "finish_reason": choice["finish_reason"]})
    return found


def _candidate(candidate: Mapping[str, Any]) -> list[Message] | None:
    found = _messages(candidate.get("content"), "assistant")
    reason = first_text(candidate, "finish_reason", "finishReason")
    if found and reason is not None:
        found[-1] = {**found[-1], "finish_reason": reason}
    return found


def _generation(generation: Mapping[str, Any]) -> list[Message] | None:
    found = _messages(generation.get("message", generation.get("text")), "assistant")
    info = as_dict(generation.get("generation_info", generation.get("generationInfo")))
    reason = first_text(info, "finish_reason", "finishReason")
    if found and reason is not None:
        found[-1] = {**found[-1], "finish_reason": reason}
    return found


def _with_roles(messages: list[Message]) -> list[Message]:
    """The messages, with a result that stands under the name of its tool named as the result of that tool's call."""
    waiting: list[tuple[str | None, str | None]] = []
    found: list[Message] = []
    for message in messages:
        role = as_text(message.get("role")) or ""
        if role.lower() not in ROLES:
            call = next((call for call in waiting if call[0] == role), None)
            if call is not None:
                waiting.remove(call)
                rest = {key: value for key, value in message.items() if key != "role"}
                message = {"role": "tool", "name": role, "tool_call_id": call[1], **rest}
        elif message.get("tool_call_id") is not None:
            waiting = [call for call in waiting if call[1] != message["tool_call_id"]]
        for item in as_list(message.get("tool_calls")):
            body = as_dict(as_dict(item).get("function")) or as_dict(item)
            waiting.append((as_text(body.get("name")), as_text(as_dict(item).get("id"))))
        found.append(message)
    return found
