"""A call of Anthropic messages as rows: the request's system and messages, the answer, what the response says of it.

Usage comes in disjoint buckets: input is the sum of `input_tokens` and both cache counts; output includes thinking.

Not covered: batches of results, files that blocks name by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.formats.anthropic_blocks import add_message, blocks_of, is_block
from flywheel.formats.exchange import Exchange
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.protocol import Built, error_columns, stamp
from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.usage import Usage, count

_SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "stop_sequences", "tool_choice", "thinking", "output_config",
)  # fmt: skip
_END_REASONS = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_overflow",
    "refusal": "completed",
    "expired": "timeout",
    "canceled": "cancelled",
}
_BATCH = ("errored", "expired", "canceled")
_RESPONSE = {"id", "content", "model", "stop_reason"}


class AnthropicCall:
    """The protocol."""

    name = "anthropic_messages"

    def claims(self, exchange: Exchange) -> float:
        request, response = exchange.request, exchange.response
        if response.get("type") == "message" and isinstance(response.get("content"), list):
            return 1.0 if "stop_reason" in response else 0.9
        if response.get("type") in _BATCH and "custom_id" in exchange.record:
            return 0.95
        messages = request.get("messages")
        if not isinstance(messages, list) or "choices" in response or response.get("object"):
            return 0.0
        if any(as_dict(message).get("tool_calls") or as_dict(message).get("role") == "tool" for message in messages):
            return 0.0  # OpenAI's words for what Anthropic has blocks for: a gateway translated
        if "anthropic_version" in request or any(map(is_block, as_list(request.get("system")))):
            return 1.0
        if any(is_block(block) for message in messages for block in blocks_of(message)):
            return 0.95
        has_schema = any("input_schema" in as_dict(tool) for tool in as_list(request.get("tools")))
        named = (as_text(request.get("model")) or "").startswith("claude") and "max_tokens" in request
        return 0.9 if has_schema or named or ("system" in request and "max_tokens" in request) else 0.0

    def said(self, exchange: Exchange) -> tuple[Sequence[Any], Sequence[Any]]:
        system, content = exchange.request.get("system"), exchange.response.get("content")
        first = [] if system is None else [{"role": "system", "content": system}]
        answer = [] if content is None else [{"role": "assistant", "content": content}]
        return [*first, *as_list(exchange.request.get("messages"))], answer

    def build(self, exchange: Exchange, conversation: Conversation) -> Built:
        request, response = exchange.request, exchange.response
        if request.get("system") is not None:
            add_message(conversation, {"role": "system", "content": request["system"]})
        for message in as_list(request.get("messages")):
            add_message(conversation, message)
        answer_ix = _add_answer(conversation, response) if "content" in response else None
        cut = exchange.streamed and response.get("stop_reason") is None
        return Built(
            columns={**_model(exchange), **_ending(exchange), "content_complete": not cut},
            answer_ix=answer_ix,
            flags=("incomplete_stream",) if cut else (),
            in_record=frozenset({"messages"}),
            in_request=frozenset({"messages", "tools", "system"}),
            in_response=frozenset(_RESPONSE),
        )


def anthropic_usage(value: Any) -> Usage:
    """`usage` of an Anthropic message: three disjoint counts make the input, thinking is part of the output."""
    usage = as_dict(value)
    read, write = count(usage.get("cache_read_input_tokens")), count(usage.get("cache_creation_input_tokens"))
    fresh = count(usage.get("input_tokens"))
    known = [number for number in (fresh, read, write) if number is not None]
    return Usage(
        input_tokens=sum(known) if known else None,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(as_dict(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _add_answer(conversation: Conversation, response: Mapping[str, Any]) -> int:
    """The answer's rows, its usage on the last of them; gives that one's step."""
    message = {"role": response.get("role") or "assistant", "content": response["content"]}
    call_id, finish = as_text(response.get("id")), as_text(response.get("stop_reason"))
    shared = {"llm_call_id": call_id, "model": as_text(response.get("model")), "sampled": True}
    rows = add_message(conversation, message, **shared)
    own = [ix for ix in rows if conversation.steps[ix].role == "assistant"] or list(rows)
    stamp(
        conversation,
        own[-1],
        anthropic_usage(response.get("usage")),
        finish_reason=finish,
        finish_reason_raw=finish,
    )
    return own[-1]


def _model(exchange: Exchange) -> dict[str, Any]:
    request = exchange.request
    sampling = {key: request[key] for key in _SAMPLING if request.get(key) is not None}
    tools = request.get("tools")
    return {
        "model": as_text(exchange.response.get("model")) or exchange.text("model"),
        "provider": exchange.text("provider") or "anthropic",
        "sampling": dumps(sampling) if sampling else None,
        "tools": dumps(tools) if tools else None,
    }


def _ending(exchange: Exchange) -> dict[str, Any]:
    raw = as_text(exchange.response.get("stop_reason"))
    error = exchange.record.get("error") or exchange.response.get("error")
    if error:
        return {**error_columns(error), "end_reason_raw": raw}
    ended = raw or as_text(exchange.response.get("type"))  # a batch tells what became of each request
    reason = _END_REASONS.get(ended or "")
    return {"end_reason": reason, "end_reason_raw": raw if raw or reason is None else ended}
