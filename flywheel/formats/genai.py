"""OpenTelemetry's GenAI conventions on spans and their log events, all that are alive, and Traceloop's flat attributes.

    <= 1.36   messages as events gen_ai.{system,user,assistant,tool}.message and gen_ai.choice, `gen_ai.system`
    >= 1.37   gen_ai.input.messages, output.messages, system_instructions, tool.definitions: JSON text or structured
    Traceloop gen_ai.prompt.N.*, gen_ai.completion.N.*, llm.request.functions.N.*, traceloop.*

Events of spans and log records are the same to it. Content that was not captured is None: that is the default of most
instrumentations. JSON that an attribute limit cut stays text, and is flagged.

Not covered: conventions of single vendors (`vendor_spans.py`), OpenInference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.span_messages import Message, choices_of, messages_of, one_message, opened
from flywheel.formats.span_view import Event, Found, View, loosely, nested, tokens

_OPERATIONS = {
    "chat": "llm", "generate_content": "llm", "text_completion": "llm", "completion": "llm", "embeddings": "embedding",
    "execute_tool": "tool", "invoke_agent": "agent", "create_agent": "agent", "invoke_workflow": "chain",
    "plan": "chain", "agent_step": "chain", "retrieval": "retriever",
}  # fmt: skip
_REQUEST_TYPES = {"chat": "llm", "completion": "llm", "embedding": "embedding", "rerank": "reranker"}
_TRACELOOP = {"tool": "tool", "agent": "agent", "workflow": "chain", "task": "chain"}
_EVENTS = ("system", "user", "assistant", "tool")
_SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "seed", "stop_sequences", "frequency_penalty", "presence_penalty",
    "choice.count",
)  # fmt: skip


def read(view: View) -> Found:
    """What the conventions say of a span."""
    flags: list[str] = []
    inputs, outputs = _messages(view, flags)
    request = {key: view.attributes.get(f"gen_ai.request.{key}") for key in _SAMPLING}
    tools = view.first("gen_ai.tool.definitions")
    return Found(
        kind=_kind(view),
        inputs=inputs,
        outputs=outputs,
        input=view.first("gen_ai.tool.call.arguments", "traceloop.entity.input"),
        output=view.first("gen_ai.tool.call.result", "traceloop.entity.output"),
        tools=opened(tools, flags) if tools is not None else _functions(view),
        tool_name=view.text("gen_ai.tool.name") or _traceloop_name(view, "tool"),
        tool_call_id=view.text("gen_ai.tool.call.id"),
        tool_kind=view.text("gen_ai.tool.type"),
        usage=_usage(view),
        cost=view.first("gen_ai.usage.cost", "gen_ai.cost.total_cost", "operation.cost"),
        model=view.text("gen_ai.response.model", "gen_ai.request.model"),
        provider=view.text("gen_ai.provider.name", "gen_ai.system"),
        sampling={key: value for key, value in request.items() if value is not None} or None,
        response_id=view.text("gen_ai.response.id"),
        finish_reason=_finish_reason(view),
        agent_name=view.text("gen_ai.agent.name") or _traceloop_name(view, "agent"),
        agent_version=view.text("gen_ai.agent.version"),
        conversation_id=view.text("gen_ai.conversation.id"),
        session_id=view.text("session.id", "traceloop.association.properties.session_id"),
        user_id=view.text("user.id", "enduser.id", "traceloop.association.properties.user_id"),
        metadata=view.below("traceloop.association.properties.") or None,
        flags=tuple(dict.fromkeys(flags)),
    )


def _kind(view: View) -> str | None:
    operation = view.text("gen_ai.operation.name")
    if operation is not None:
        return _OPERATIONS.get(operation, "chain")
    for key, kinds in (("llm.request.type", _REQUEST_TYPES), ("traceloop.span.kind", _TRACELOOP)):
        named = view.text(key)
        if named is not None:
            return kinds.get(named, "chain")
    if view.first("gen_ai.tool.call.id", "gen_ai.tool.name") is not None:
        return "tool"
    spoke = any(event.name.startswith("gen_ai.") for event in view.events)
    if spoke or view.first("gen_ai.request.model", "gen_ai.response.model", "gen_ai.prompt.0.role") is not None:
        return "llm"
    return None


def _traceloop_name(view: View, kind: str) -> str | None:
    return view.text("traceloop.entity.name") if view.text("traceloop.span.kind") == kind else None


def _finish_reason(view: View) -> str | None:
    given = loosely(view.first("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"))
    return as_text(given) or next((text for item in as_list(given) if (text := as_text(item))), None)


def _usage(view: View) -> Any:
    at = "gen_ai.usage."
    return tokens(
        input=view.first(at + "input_tokens", at + "prompt_tokens", "llm.usage.prompt_tokens"),
        output=view.first(at + "output_tokens", at + "completion_tokens", "llm.usage.completion_tokens"),
        read=view.first(
            at + "cache_read.input_tokens", at + "cache_read_input_tokens", at + "input_tokens.cached",
            at + "details.cache_read_tokens", at + "cached_input_tokens",
        ),
        write=view.first(
            at + "cache_creation.input_tokens", at + "cache_creation_input_tokens", at + "details.cache_write_tokens"
        ),
        reasoning=view.first(
            at + "reasoning.output_tokens", at + "reasoning_tokens", at + "details.reasoning_tokens",
            at + "output_tokens.reasoning",
        ),
        total=view.first(at + "total_tokens", "llm.usage.total_tokens"),
    )  # fmt: skip


def _messages(view: View, flags: list[str]) -> tuple[list[Message] | None, list[list[Message]] | None]:
    inputs, outputs = _structured(view, flags)
    event_inputs, event_outputs = _from_events(view, flags)
    flat_inputs, flat_outputs = _flat(view)
    return inputs or event_inputs or flat_inputs, outputs or event_outputs or flat_outputs


# --- >= 1.37: attributes ----------------------------------------------------------------------------------


def _structured(view: View, flags: list[str]) -> tuple[list[Message] | None, list[list[Message]] | None]:
    given = opened(view.first("gen_ai.input.messages", "gen_ai.prompt"), flags)
    said = opened(view.first("gen_ai.output.messages", "gen_ai.completion"), flags)
    system = opened(view.first("gen_ai.system_instructions"), flags)
    inputs = _or_text(given, "user")
    outputs: list[list[Message]] | None
    if isinstance(said, list):  # one message a choice
        outputs = [messages for item in said if (messages := messages_of(item, "assistant"))] or None
    else:
        whole = _or_text(said, "assistant")
        outputs = [whole] if whole else None
    instructions = _or_text(system, "system")
    if instructions and not any(message.get("role") == "system" for message in inputs or []):
        inputs = [*instructions, *(inputs or [])]
    return inputs, outputs


def _or_text(value: Any, role: str) -> list[Message] | None:
    """The messages in a value; one that is cut JSON is a message by itself, marked."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        return [{"role": role, "content": value, "truncated": True}]
    return None if value is None else messages_of(value, role)


# --- <= 1.36: events --------------------------------------------------------------------------------------


def _from_events(view: View, flags: list[str]) -> tuple[list[Message] | None, list[list[Message]] | None]:
    inputs: list[Message] = []
    outputs: list[list[Message]] = []
    for event in view.events:
        name = event.name.removeprefix("gen_ai.")
        if event.name in ("gen_ai.choice", "gen_ai.assistant.choice"):
            outputs += _choice(event)
        elif name == "content.prompt":
            inputs += _or_text(opened(event.attributes.get("gen_ai.prompt"), flags), "user") or []
        elif name == "content.completion":
            said = _or_text(opened(event.attributes.get("gen_ai.completion"), flags), "assistant")
            outputs += [said] if said else []
        elif name.removesuffix(".message") in _EVENTS and name.endswith(".message"):
            inputs += _event_message(event, name.removesuffix(".message"))
    return inputs or None, outputs or None


def _event_message(event: Event, role: str) -> list[Message]:
    body = _body(event)
    message = {**body, "role": as_text(body.get("role")) or role}
    if role == "tool" and "tool_call_id" not in message:
        message["tool_call_id"] = message.pop("id", None)
    if isinstance(message.get("tool_calls"), str):
        message["tool_calls"] = loosely(message["tool_calls"])
    return one_message(message, role)


def _body(event: Event) -> dict[str, Any]:
    """The event's body; some write its members as attributes instead."""
    body = loosely(event.body)
    if isinstance(body, dict):
        return dict(body)
    own = {key: loosely(value) for key, value in event.attributes.items() if not key.startswith("gen_ai.")}
    return {"content": body, **own} if isinstance(body, str) else own


def _choice(event: Event) -> list[list[Message]]:
    body = _body(event)
    message = loosely(body.get("message"))
    if not isinstance(message, dict):
        message = {key: value for key, value in body.items() if key in ("role", "content", "tool_calls")}
        if isinstance(body.get("message"), str):
            message["content"] = body["message"]
    message.setdefault("role", "assistant")
    if isinstance(body.get("tool_calls"), list):
        message.setdefault("tool_calls", body["tool_calls"])
    return choices_of([{"message": message, "finish_reason": body.get("finish_reason")}])


# --- Traceloop --------------------------------------------------------------------------------------------


def _flat(view: View) -> tuple[list[Message] | None, list[list[Message]] | None]:
    inputs = _flat_messages(view.below("gen_ai.prompt."), "user")
    outputs: list[list[Message]] = []
    thoughts: str | None = None
    for message in _flat_messages(view.below("gen_ai.completion."), "assistant"):
        if message.get("role") in ("thinking", "reasoning"):
            thoughts = as_text(message.get("content"))
            continue
        if thoughts is not None:
            message.setdefault("reasoning_content", thoughts)
        outputs.append([message])
    return inputs or None, outputs or None


def _flat_messages(flat: Mapping[str, Any], role: str) -> list[Message]:
    found: list[Message] = []
    for item in as_list(nested(flat)):
        body = {"role": role, **as_dict(item)}
        content = loosely(body.get("content"))
        if isinstance(content, list) and all(as_text(as_dict(part).get("type")) for part in content):
            body["content"] = content  # parts are written as JSON
        body.pop("tool_calls", None)
        calls = [as_dict(call) for call in as_list(as_dict(item).get("tool_calls"))]
        if calls:
            body["tool_calls"] = [
                {
                    "id": call.get("id"),
                    "type": "function",
                    "function": {"name": call.get("name"), "arguments": call.get("arguments")},
                    **{k: v for k, v in call.items() if k not in ("id", "name", "arguments")},
                }
                for call in calls
            ]
            body.setdefault("content", None)
        found += one_message(body, role)
    return found


def _functions(view: View) -> list[Any] | None:
    functions = [as_dict(item) for item in as_list(nested(view.below("llm.request.functions.")))]
    return [
        {"type": "function", "function": {**function, "parameters": loosely(function.get("parameters"))}}
        for function in functions
        if first_text(function, "name")
    ] or None
