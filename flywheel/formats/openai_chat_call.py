"""A call of OpenAI chat completions as rows: the request's messages, the answer, what the response says of it.

Not covered: choices beyond the first (kept in `extra`), the envelopes that gateways put around (`exchange.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from flywheel.formats.exchange import Exchange, is_account
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.protocol import Built, error_columns, stamp
from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, money, openai_usage

SAMPLING = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "n", "presence_penalty",
    "frequency_penalty", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "logit_bias",
)  # fmt: skip
_END_REASONS = {
    "stop": "completed", "eos": "completed", "end_turn": "completed", "length": "max_tokens",
    "content_filter": "model_error", "error": "model_error", "insufficient_system_resource": "model_error",
}  # fmt: skip
_COSTS = ("cost", "cost_usd", "response_cost", "spend")
_CHOICE = {"message", "delta", "finish_reason", "index", "text"}


class OpenAIChatCall:
    """The protocol."""

    name = "openai_chat"

    def claims(self, exchange: Exchange) -> float:
        messages, choice = exchange.request.get("messages"), _choice(exchange)
        if isinstance(choice.get("message"), dict) or isinstance(choice.get("text"), str):
            return 0.9
        if isinstance(messages, list):
            return 0.5 if not messages or is_message(messages[0]) else 0.1
        if _prompt(exchange) is not None and _asks(exchange, "/completions"):
            return 0.5
        failed = "custom_id" in exchange.record and bool(as_dict(exchange.response.get("error")))
        if failed or is_account(exchange.record):
            return 0.2  # only what was sent would say more
        return 0.1 if isinstance(exchange.response.get("choices"), list) else 0.0

    def said(self, exchange: Exchange) -> tuple[Sequence[Any], Sequence[Any]]:
        messages, answer = _messages(exchange), _answer(exchange)
        if answer is None:
            return messages, ()
        return messages[:-1] if messages[-1:] == [answer] else messages, (answer,)

    def build(self, exchange: Exchange, conversation: Conversation) -> Built:
        messages = _messages(exchange)
        for message in messages:
            add_message(conversation, message)
        choice, response, answer = _choice(exchange), exchange.response, _answer(exchange)
        answer_ix = None if answer is None else _add_answer(conversation, exchange, messages, answer)
        others = as_list(response.get("choices"))[1:]
        finish = as_text(choice.get("finish_reason"))
        cut = exchange.streamed and answer is not None and finish is None
        silent = answer is None and not messages and "spend" in exchange.record
        flags = [name for name, is_so in (("incomplete_stream", cut), ("content_not_captured", silent)) if is_so]
        return Built(
            columns={
                **_model(exchange),
                **_ending(exchange, finish),
                **(asdict(_usage(exchange)) if answer is None else {}),
                "content_complete": not flags,
            },
            answer_ix=answer_ix,
            time=read_time(response.get("created")),
            extra={"other_choices": others} if others else {},
            flags=tuple(flags),
            in_record=frozenset({"messages", "tools", "choices"}),
            in_request=frozenset({"messages", "tools"} | ({"prompt"} if _prompt(exchange) is not None else set())),
            in_response=frozenset({"choices"}),
        )


def is_message(value: Any) -> bool:
    """Whether a value has the shape of a chat message."""
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and ("content" in value or "parts" not in value)
    )


def _choice(exchange: Exchange) -> Mapping[str, Any]:
    return as_dict(next(iter(as_list(exchange.response.get("choices"))), None))


def _answer(exchange: Exchange) -> Any:
    choice = _choice(exchange)
    if "message" not in choice and isinstance(choice.get("text"), str):
        return {"role": "assistant", "content": choice["text"]}
    return choice.get("message")


def _asks(exchange: Exchange, path: str) -> bool:
    """Whether a line of a batch says that it goes to that path."""
    url = exchange.record.get("url")
    return isinstance(url, str) and url.endswith(path)


def _prompt(exchange: Exchange) -> str | None:
    """The prompt of the legacy completions API."""
    prompt = exchange.request.get("prompt")
    return prompt if isinstance(prompt, str) and "messages" not in exchange.request else None


def _messages(exchange: Exchange) -> list[Any]:
    prompt = _prompt(exchange)
    return as_list(exchange.request.get("messages")) if prompt is None else [{"role": "user", "content": prompt}]


def _add_answer(conversation: Conversation, exchange: Exchange, messages: list[Any], answer: Any) -> int:
    """Append the first choice, unless the messages hold it already; gives its step."""
    response, choice = exchange.response, _choice(exchange)
    step_ix = len(conversation.steps) - 1 if messages[-1:] == [answer] else add_message(conversation, answer)
    finish, time = as_text(choice.get("finish_reason")), read_time(response.get("created"))
    more = {key: value for key, value in choice.items() if key not in _CHOICE and value is not None}
    stamp(
        conversation,
        step_ix,
        _usage(exchange),
        llm_call_id=as_text(response.get("id")),
        model=as_text(response.get("model")),
        ts=time.at,
        ts_raw=time.raw,
        finish_reason=finish,
        finish_reason_raw=finish,
        cost_usd=money(_cost(exchange)),
    )
    if more:
        step = conversation.steps[step_ix]
        extra = f'{step.extra[:-1]},"choice":{dumps(more)}}}' if step.extra else dumps({"choice": more})
        conversation.steps[step_ix] = replace(step, extra=extra)
    return step_ix


def _usage(exchange: Exchange) -> Usage:
    """What the response counts, else what the gateway wrote beside it."""
    own = exchange.response.get("usage")
    return openai_usage(own if as_dict(own) else exchange.record)


def _model(exchange: Exchange) -> dict[str, Any]:
    request = exchange.request
    settings = {**as_dict(request.get("model_parameters")), **as_dict(request.get("kwargs")), **request}
    sampling = {key: settings[key] for key in SAMPLING if settings.get(key) is not None}
    tools = settings.get("tools") or settings.get("functions")
    cost = money(_cost(exchange))
    return {
        "model": as_text(exchange.response.get("model")) or exchange.text("model"),
        "provider": exchange.text("provider", "custom_llm_provider"),
        "sampling": dumps(sampling) if sampling else None,
        "tools": (tools if isinstance(tools, str) else dumps(tools)) if tools else None,
        "cost_usd": cost,
        "cost_source": None if cost is None else "recorded",
    }


def _cost(exchange: Exchange) -> Any:
    found = (exchange.record[key] for key in _COSTS if exchange.record.get(key) is not None)
    return next(found, as_dict(exchange.response.get("usage")).get("cost"))


def _is_told(error: Any) -> bool:
    """Whether an error says anything: LiteLLM keeps an object of nulls for calls that went well."""
    return any(error.values()) if isinstance(error, dict) else bool(error)


def _ending(exchange: Exchange, finish: str | None) -> dict[str, Any]:
    record = exchange.record
    places = (
        record.get("error"),
        exchange.response.get("error"),
        record.get("error_information"),  # LiteLLM, and below
        exchange.metadata.get("error_information"),
        record.get("error_str"),
        _choice(exchange).get("error"),  # OpenRouter: the provider died in the middle of its answer
    )
    error = next((error for error in places if _is_told(error)), None)
    if error is not None:
        return {**error_columns(error), "end_reason_raw": finish}
    return {"end_reason": _END_REASONS.get(finish or ""), "end_reason_raw": finish}
