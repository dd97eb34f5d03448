"""OpenInference on spans: `openinference.span.kind`, `llm.*`, `tool.*`, `retrieval.*`, `session.id`, `metadata`.

Lists are flat (`llm.input_messages.0.message.role`) on spans, and lists again (`[{"message.role": ...}]`) in Phoenix's
data frames; both are read. Counts that a data frame made floats are counts again.

Not covered: Phoenix's files (`openinference.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.span_messages import Message, messages_of, one_message
from flywheel.formats.span_view import NOTHING, Found, View, loosely, nested, tokens

_KINDS = {
    "LLM": "llm", "TOOL": "tool", "AGENT": "agent", "CHAIN": "chain", "RETRIEVER": "retriever",
    "RERANKER": "reranker", "EMBEDDING": "embedding", "GUARDRAIL": "guardrail", "EVALUATOR": "evaluator",
    "PROMPT": "chain",
}  # fmt: skip

_NOT_SAMPLING = ("messages", "input", "instructions", "tools", "model", "id", "created_at", "metadata", "user")


def read(view: View) -> Found:
    """What OpenInference says of a span; nothing where it says no kind and has no message of its own."""
    kind = _KINDS.get((view.text("openinference.span.kind") or "").upper())
    inputs = _messages(listed(view, "llm.input_messages"))
    said = _messages(listed(view, "llm.output_messages"))
    if kind is None and inputs is None and said is None:
        return NOTHING
    value, result = _value(view, "input"), _value(view, "output")
    settings = as_dict(loosely(view.first("llm.invocation_parameters")))
    return Found(
        kind=kind,
        inputs=inputs or (messages_of(value, "user") if kind == "llm" else None),
        outputs=[said] if said else _answers(result) if kind == "llm" else None,
        input=_arguments(view, value) if kind == "tool" else value,
        output=result,
        tools=_tools(view),
        tool_name=view.text("tool.name") or (view.row.name if kind == "tool" else None),
        tool_call_id=view.text("tool.id", "tool_call.id"),
        usage=_usage(view),
        cost=view.first("llm.cost.total"),
        model=view.text("llm.model_name", "embedding.model_name", "reranker.model_name"),
        provider=view.text("llm.provider", "llm.system"),
        sampling={k: v for k, v in settings.items() if k not in _NOT_SAMPLING} or None,
        response_id=as_text(as_dict(result).get("id")) if kind == "llm" else None,
        finish_reason=view.text("llm.finish_reason"),
        agent_name=view.text("agent.name"),
        session_id=view.text("session.id"),
        user_id=view.text("user.id"),
        metadata=_metadata(view),
        tags=_tags(view),
        documents=_documents(view, kind),
    )


def listed(view: View, prefix: str) -> list[Any]:
    """The items of a list that is flat, nested, or JSON text; each with its dotted keys as objects."""
    value = loosely(view.attributes.get(prefix))
    if not isinstance(value, list):
        value = nested(view.below(prefix + "."))
    return [nested(as_dict(_deep(item))) if isinstance(item, dict) else item for item in as_list(value)]


def _deep(value: Any) -> Any:
    """Dotted keys opened at every level (a data frame has them inside lists)."""
    if isinstance(value, dict):
        return nested({key: _deep(item) for key, item in value.items()})
    return [_deep(item) for item in value] if isinstance(value, list) else value


def _messages(items: list[Any]) -> list[Message] | None:
    found: list[Message] = []
    for item in items:
        body = as_dict(as_dict(item).get("message", item))
        if body:
            found += one_message(_message(body), "user")
    return found or None


def _message(body: Mapping[str, Any]) -> Message:
    message = {key: value for key, value in body.items() if key not in ("contents", "tool_calls") and value is not None}
    parts = [_part(as_dict(as_dict(item).get("message_content", item))) for item in as_list(body.get("contents"))]
    if parts and not (len(parts) == 1 and parts[0] == {"type": "text", "text": message.get("content")}):
        message["content"] = parts
    calls = [as_dict(as_dict(item).get("tool_call", item)) for item in as_list(body.get("tool_calls"))]
    if calls:
        message["tool_calls"] = [
            {**call, "type": "function", "function": as_dict(call.get("function"))} for call in calls if call
        ]
        message.setdefault("content", None)
    name = message.pop("function_call_name", None)
    if name is not None:
        message["function_call"] = {"name": name, "arguments": message.pop("function_call_arguments_json", None)}
    return message


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A content part; images as OpenAI has them."""
    image = as_dict(as_dict(part.get("image")).get("image"))
    if image.get("url"):
        rest = {key: value for key, value in part.items() if key not in ("image", "type")}
        return {"type": "image_url", "image_url": image, **rest}
    return {key: value for key, value in part.items() if value is not None}


def _answers(value: Any) -> list[list[Message]] | None:
    messages = messages_of(value, "assistant")
    return [messages] if messages else None


def _value(view: View, name: str) -> Any:
    """`input.value` or `output.value`, opened where it says that it is JSON."""
    value = view.first(f"{name}.value")
    return loosely(value) if view.text(f"{name}.mime_type") == "application/json" else value


def _arguments(view: View, value: Any) -> Any:
    """What a tool was called with: `tool.parameters` holds it, or (in some instrumentations) the tool's schema."""
    parameters = loosely(view.first("tool.parameters", "tool_call.function.arguments"))
    if parameters is None:
        parameters = nested(view.below("tool.parameters.")) or None
    is_schema = isinstance(parameters, dict) and isinstance(parameters.get("properties"), dict)
    return parameters if value is None or (parameters is not None and not is_schema) else value


def _tools(view: View) -> list[Any] | None:
    found = []
    for item in listed(view, "llm.tools"):
        body = as_dict(as_dict(item).get("tool", item))
        found.append(loosely(body["json_schema"]) if "json_schema" in body else item)
    return found or None


def _usage(view: View) -> Any:
    at = "llm.token_count."
    return tokens(
        input=view.first(at + "prompt"),
        output=view.first(at + "completion"),
        read=view.first(at + "prompt_details.cache_read", at + "prompt_details.cache_input"),
        write=view.first(at + "prompt_details.cache_write"),
        reasoning=view.first(at + "completion_details.reasoning"),
        total=view.first(at + "total"),
    )


def _metadata(view: View) -> dict[str, Any] | None:
    given = loosely(view.first("metadata"))
    return as_dict(given) or as_dict(nested(view.below("metadata."))) or None


def _tags(view: View) -> tuple[str, ...] | None:
    given = loosely(view.first("tag.tags"))
    return tuple(text for item in as_list(given) if (text := as_text(item))) or None


def _documents(view: View, kind: str | None) -> Any:
    prefixes = {
        "retriever": ("retrieval.documents",),
        "reranker": ("reranker.output_documents", "reranker.input_documents"),
        "embedding": ("embedding.embeddings",),
    }.get(kind or "", ())
    return next((found for prefix in prefixes if (found := listed(view, prefix))), None)
