"""Attributes of single vendors on OTLP spans: Langfuse, LangSmith, Vercel's AI SDK, Pydantic AI and Logfire.

    langfuse.observation.*, langfuse.trace.*      langsmith.span.kind, langsmith.trace.*, langsmith.metadata.*
    ai.operationId, ai.prompt.*, ai.response.*    tool_arguments, tool_response, all_messages, agent_name

They complete the standard ones (`genai.py`): ids of sessions and users, metadata, and content where it's only there.

Not covered: the vendors' own exports (readers of their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.span_messages import Message, messages_of, one_message, opened
from flywheel.formats.span_view import NOTHING, Found, View, loosely, tokens
from flywheel.formats.usage import count

_LANGFUSE = {
    "generation": "llm", "tool": "tool", "agent": "agent", "retriever": "retriever", "embedding": "embedding",
    "evaluator": "evaluator", "guardrail": "guardrail", "chain": "chain", "span": "chain", "event": "chain",
}  # fmt: skip
_LANGSMITH = {"llm": "llm", "tool": "tool", "retriever": "retriever", "chain": "chain", "embedding": "embedding"}
_PYDANTIC = {
    "tool_arguments", "tool_response", "final_result", "agent_name", "pydantic_ai.all_messages", "all_messages_events",
    "gen_ai.aggregated_usage.input_tokens", "gen_ai.aggregated_usage.output_tokens", "model_request_parameters",
}  # fmt: skip
_VERCEL_CALLS = ("doGenerate", "doStream")


def read(view: View) -> Found:
    """What the vendors say of a span."""
    found = NOTHING
    for dialect in (_langfuse, _langsmith, _vercel, _pydantic):
        found = found.over(dialect(view))
    return found


def _langfuse(view: View) -> Found:
    if not any(key.startswith("langfuse.") for key in view.attributes):
        return NOTHING
    at = "langfuse.observation."
    kind = _LANGFUSE.get((view.text(at + "type") or "").lower())
    given, said = loosely(view.first(at + "input")), loosely(view.first(at + "output"))
    usage, cost = as_dict(loosely(view.first(at + "usage_details"))), as_dict(loosely(view.first(at + "cost_details")))
    metadata = {
        **as_dict(loosely(view.first("langfuse.trace.metadata"))),
        **view.below("langfuse.trace.metadata."),
        **view.below("langfuse.observation.metadata."),
    }
    return Found(
        kind=kind,
        inputs=messages_of(given, "user") if kind == "llm" else None,
        outputs=_answer(said) if kind == "llm" else None,
        input=given if given is not None else loosely(view.first("langfuse.trace.input")),
        output=said if said is not None else loosely(view.first("langfuse.trace.output")),
        tool_name=view.row.name if kind == "tool" else None,
        usage=_buckets(usage),
        cost=cost.get("total"),
        model=view.text(at + "model.name"),
        sampling=as_dict(loosely(view.first(at + "model.parameters"))) or None,
        agent_name=view.row.name if kind == "agent" else None,
        session_id=view.text("langfuse.session.id", "langfuse.trace.session_id"),
        user_id=view.text("langfuse.user.id", "langfuse.trace.user_id"),
        environment=view.text("langfuse.environment"),
        metadata={key: loosely(value) for key, value in metadata.items()} or None,
        tags=tuple(t for t in map(as_text, as_list(loosely(view.first("langfuse.trace.tags")))) if t) or None,
    )


def _buckets(usage: Mapping[str, Any]) -> Any:
    """Langfuse counts in disjoint buckets named `input...` and `output...`."""
    sums: dict[str, int | None] = {"input": None, "output": None, "cache_read": None, "reasoning": None}
    for key, value in usage.items():
        number = count(value)
        if number is None:
            continue
        for side in ("input", "output"):
            if key.startswith(side):
                sums[side] = (sums[side] or 0) + number
        if "cache" in key and "creation" not in key:
            sums["cache_read"] = (sums["cache_read"] or 0) + number
        if "reasoning" in key:
            sums["reasoning"] = (sums["reasoning"] or 0) + number
    whole = None if sums["input"] is None else sums["input"] + (sums["output"] or 0)
    return tokens(
        input=sums["input"], output=sums["output"], read=sums["cache_read"], reasoning=sums["reasoning"], total=whole
    )


def _langsmith(view: View) -> Found:
    if not any(key.startswith("langsmith.") for key in view.attributes):
        return NOTHING
    kind = _LANGSMITH.get(view.text("langsmith.span.kind") or "")
    metadata = {key: loosely(value) for key, value in view.below("langsmith.metadata.").items()}
    given, said = loosely(view.first("gen_ai.prompt", "inputs")), loosely(view.first("gen_ai.completion", "outputs"))
    tags = view.first("langsmith.span.tags")
    return Found(
        kind=kind,
        input=given,
        output=said,
        tool_name=view.row.name if kind == "tool" else None,
        session_id=first_text(metadata, "session_id", "thread_id", "conversation_id")
        or view.text("langsmith.trace.session_id"),
        user_id=first_text(metadata, "user_id"),
        metadata=metadata or None,
        tags=tuple(t.strip() for t in tags.split(",") if t.strip()) if isinstance(tags, str) else None,
    )


def _vercel(view: View) -> Found:
    if not any(key.startswith("ai.") for key in view.attributes) and not (view.row.name or "").startswith("ai."):
        return NOTHING
    operation = view.text("ai.operationId") or view.row.name or ""
    kind = _vercel_kind(view, operation)
    flags: list[str] = []
    prompt = opened(view.first("ai.prompt.messages", "ai.prompt"), flags)
    metadata = view.below("ai.telemetry.metadata.")
    tools = loosely(view.first("ai.prompt.tools"))
    return Found(
        kind=kind,
        inputs=_prompt(prompt) if kind == "llm" else None,
        outputs=_vercel_answer(view) if kind == "llm" else None,
        input=loosely(view.first("ai.toolCall.args")) if kind == "tool" else _prompt(prompt),
        output=view.first("ai.toolCall.result") if kind == "tool" else view.first("ai.response.text"),
        tools=[loosely(tool) for tool in as_list(tools)] or None,
        tool_name=view.text("ai.toolCall.name"),
        tool_call_id=view.text("ai.toolCall.id"),
        usage=tokens(
            input=view.first("ai.usage.promptTokens", "ai.usage.inputTokens"),
            output=view.first("ai.usage.completionTokens", "ai.usage.outputTokens"),
            read=view.first("ai.usage.cachedInputTokens"),
            reasoning=view.first("ai.usage.reasoningTokens"),
            total=view.first("ai.usage.totalTokens"),
        ),
        model=view.text("ai.response.model", "ai.model.id"),
        provider=view.text("ai.model.provider"),
        response_id=view.text("ai.response.id"),
        finish_reason=view.text("ai.response.finishReason"),
        agent_name=view.text("ai.telemetry.functionId"),
        session_id=first_text(metadata, "sessionId", "session_id", "threadId"),
        user_id=first_text(metadata, "userId", "user_id"),
        metadata=metadata or None,
        flags=tuple(flags),
    )


def _vercel_kind(view: View, operation: str) -> str | None:
    """The outer span of a generation repeats what its calls say; it is a call only where it holds the messages."""
    if operation == "ai.toolCall":
        return "tool"
    if "embed" in operation:
        return "embedding"
    if operation.endswith(_VERCEL_CALLS) or view.first("ai.prompt.messages") is not None:
        return "llm"
    return "agent" if operation.startswith("ai.") else None


def _prompt(prompt: Any) -> list[Message] | None:
    if isinstance(prompt, str) and prompt.lstrip()[:1] in ("[", "{"):
        return [{"role": "user", "content": prompt, "truncated": True}]
    return None if prompt is None else messages_of(prompt, "user")


def _vercel_answer(view: View) -> list[list[Message]] | None:
    calls = [as_dict(call) for call in as_list(loosely(view.first("ai.response.toolCalls")))]
    text, thoughts = view.first("ai.response.text", "ai.response.object"), view.first("ai.response.reasoning")
    if text is None and not calls:
        return None
    parts: list[Any] = [{"type": "text", "text": text}] if isinstance(text, str) and text else []
    parts += [{"type": "tool-call", **call} for call in calls]
    message: Message = {"role": "assistant", "content": parts or text}
    if thoughts is not None:
        message["reasoning_content"] = thoughts
    return [one_message(message, "assistant")]


def _pydantic(view: View) -> Found:
    """Logfire's names before the conventions had some, and what they still lack."""
    if not view.attributes.keys() & _PYDANTIC:
        return NOTHING
    said = view.first("tool_response", "final_result")
    all_messages = loosely(view.first("pydantic_ai.all_messages", "all_messages_events"))
    return Found(
        input=loosely(view.first("tool_arguments")),
        output=said if said is not None else _last(all_messages),
        agent_name=view.text("agent_name"),
        usage=tokens(
            input=view.first("gen_ai.aggregated_usage.input_tokens"),
            output=view.first("gen_ai.aggregated_usage.output_tokens"),
            read=view.first("gen_ai.aggregated_usage.cache_read.input_tokens"),
        ),
        tools=as_list(as_dict(loosely(view.first("model_request_parameters"))).get("function_tools")) or None,
    )


def _last(messages: Any) -> str | None:
    """The text of the last message, where a run records all its messages and no result."""
    last = next(iter(as_list(messages)[-1:]), None)
    found = messages_of(last, "assistant") if last is not None else None
    return as_text(found[-1].get("content")) if found else None


def _answer(value: Any) -> list[list[Message]] | None:
    messages = messages_of(value, "assistant")
    return [messages] if messages else None
