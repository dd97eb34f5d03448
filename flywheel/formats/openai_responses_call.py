"""A call of OpenAI responses as rows: instructions and input, the output's items, what the response says of them.

A response that holds outputs of the client's tools too is a whole run in one (NeMo-Gym): its rows share no call id.

Not covered: what the server kept of earlier responses (`response_chain.py` adds it where the source has it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flywheel.formats.exchange import Exchange
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_response_items import CALLS, OUTPUTS, add_items, is_item
from flywheel.formats.parse import dumps
from flywheel.formats.protocol import Built, error_columns, stamp
from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count

_SAMPLING = (
    "temperature", "top_p", "max_output_tokens", "max_tool_calls", "tool_choice", "parallel_tool_calls", "reasoning",
    "text", "truncation", "service_tier", "top_logprobs",
)  # fmt: skip
_STATUS = {"completed": "completed", "failed": "model_error", "cancelled": "cancelled"}
_INCOMPLETE = {"max_output_tokens": "max_tokens", "max_tool_calls": "max_turns", "content_filter": "model_error"}
_OPEN = [kind for kind, (_, _, results) in CALLS.items() if results is None]  # the client has to run these


class OpenAIResponsesCall:
    """The protocol."""

    name = "openai_responses"

    def claims(self, exchange: Exchange) -> float:
        request, response = exchange.request, exchange.response
        if isinstance(response.get("output"), list):
            return 1.0 if response.get("object") == "response" else 0.9 if _are_items(response["output"]) else 0.0
        given = request.get("input")
        if "messages" in request or response.get("choices") or response.get("content"):
            return 0.0
        if isinstance(given, list) and given and _are_items(given):
            return 0.95 if any(map(is_item, given)) else 0.6
        asked = isinstance(given, str) and "model" in request
        url = exchange.record.get("url")
        if asked and isinstance(url, str) and url.endswith("/responses"):
            return 0.85
        own = request.keys() & {"instructions", "previous_response_id", "reasoning", "store", "max_output_tokens"}
        return 0.85 if asked and own else 0.5 if asked and _flat_tools(request.get("tools")) else 0.0

    def said(self, exchange: Exchange) -> tuple[Sequence[Any], Sequence[Any]]:
        history = input_items(exchange)
        output = [item for item in as_list(exchange.response.get("output")) if as_dict(item).get("type") != "reasoning"]
        return [item for item in history if as_dict(item).get("type") != "reasoning"], output

    def build(self, exchange: Exchange, conversation: Conversation) -> Built:
        response = exchange.response
        add_items(conversation, input_items(exchange))
        output = as_list(response.get("output"))
        whole_run = any(as_text(as_dict(item).get("type")) in OUTPUTS for item in output)
        shared = {"sampled": True, "model": as_text(response.get("model"))}
        call_id = None if whole_run else as_text(response.get("id"))
        rows = add_items(conversation, output, llm_call_id=call_id, **shared)
        time, raw = read_time(response.get("created_at")), _ended(exchange)
        if rows:
            stamp(
                conversation,
                rows[-1],
                responses_usage(response.get("usage")),
                ts=time.at,
                ts_raw=time.raw,
                finish_reason=raw,
                finish_reason_raw=raw,
            )
        cut = exchange.streamed and response.get("status") in (None, "in_progress", "queued")
        return Built(
            columns={**_model(exchange), **_ending(exchange, raw, output), "content_complete": not cut},
            answer_ix=rows[-1] if rows else None,
            time=time,
            flags=("incomplete_stream",) if cut else (),
            in_record=frozenset(),
            in_request=frozenset({"input", "tools", "instructions"}),
            in_response=frozenset({"output"} | _repeated(exchange)),
        )


def responses_usage(value: Any) -> Usage:
    """`usage` of a response: totals include their parts."""
    usage = as_dict(value)
    details = as_dict(usage.get("input_tokens_details"))
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        cache_read_tokens=count(details.get("cached_tokens")),
        cache_write_tokens=count(details.get("cache_write_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(as_dict(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )


def _are_items(items: Sequence[Any]) -> bool:
    return all(is_item(item) or (isinstance(item, dict) and isinstance(item.get("role"), str)) for item in items)


def _flat_tools(tools: Any) -> bool:
    return any("name" in as_dict(tool) and "type" in as_dict(tool) for tool in as_list(tools))


def input_items(exchange: Exchange) -> list[Any]:
    """Instructions (a system message, or items), then the input."""
    request = exchange.request
    told = request.get("instructions") or exchange.response.get("instructions")
    first = [{"role": "system", "content": told}] if isinstance(told, str) else as_list(told)
    given = request.get("input")
    return [*first, *([{"role": "user", "content": given}] if isinstance(given, str) else as_list(given))]


def _repeated(exchange: Exchange) -> set[str]:
    """Keys of the response that only repeat the request, as the service does with all settings."""
    same = {key for key in ("tools", *_SAMPLING) if exchange.response.get(key) == exchange.request.get(key)}
    told = exchange.request.get("instructions") or exchange.response.get("instructions")
    same |= {"instructions"} if exchange.response.get("instructions") == told else set()
    return same | ({"tools"} if "tools" not in exchange.request else set())


def _model(exchange: Exchange) -> dict[str, Any]:
    request, response = exchange.request, exchange.response
    places = (request, response)
    sampling = {key: place[key] for place in reversed(places) for key in _SAMPLING if place.get(key) is not None}
    tools = request.get("tools") or response.get("tools")
    return {
        "model": as_text(response.get("model")) or exchange.text("model"),
        "provider": exchange.text("provider"),
        "sampling": dumps(sampling) if sampling else None,
        "tools": dumps(tools) if tools else None,
    }


def _ended(exchange: Exchange) -> str | None:
    why = as_text(as_dict(exchange.response.get("incomplete_details")).get("reason"))
    return why or as_text(exchange.response.get("status"))


def _ending(exchange: Exchange, raw: str | None, output: Sequence[Any]) -> dict[str, Any]:
    error = exchange.record.get("error") or exchange.response.get("error")
    if error:
        return {**error_columns(error), "end_reason_raw": raw}
    reason = _INCOMPLETE.get(raw or "") or _STATUS.get(raw or "")
    waits = bool(output) and as_dict(output[-1]).get("type") in _OPEN
    return {"end_reason": None if waits and reason == "completed" else reason, "end_reason_raw": raw}
