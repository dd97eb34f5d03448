"""OpenAI chat completions: fine-tuning files, gateway logs, LiteLLM logs, and a bare list of messages.

    {messages, tools?, metadata?, feedback?, ...}          one conversation; `weight` on messages is the loss mask
    {request: {...}, response: {...}, metadata?, ...}      one call as a gateway logged it; `body` inside is opened
    {messages, tools, kwargs, response, cost, timestamp}   LiteLLM and OpenHands
    {choices: [...], usage, model}                         a response alone
    [message, message, ...]                                a document that is one conversation

The application's own data: `metadata.task_id` (names the task to re-run), user, session, `feedback` (see feedback.py).
Success is what feedback says and nothing else.

Not covered: streamed chunks, DPO pairs, merging the growing histories of one conversation into one graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.times import Time, read_time
from flywheel.formats.usage import money, openai_usage
from flywheel.records import Fragment, Reject, Trajectory

_SAMPLING = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "stop", "n", "presence_penalty",
    "frequency_penalty", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "logit_bias",
)  # fmt: skip
_END_REASONS = {"stop": "completed", "length": "max_tokens", "content_filter": "model_error", "end_turn": "completed"}
_SESSION = ("session_id", "sessionId", "thread_id")
_USER = ("user_id", "user", "end_user", "end_user_id", "userId")


@dataclass(frozen=True, slots=True)
class _Call:
    """The parts of a record, wherever its shape keeps them."""

    record: Mapping[str, Any]
    request: Mapping[str, Any]
    response: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, value: Any) -> _Call | None:
        """None where the value is no shape of this format."""
        if isinstance(value, list):
            value = {"messages": value}
        record = as_dict(value)
        request = as_dict(record.get("request"))
        request = as_dict(request.get("body")) or request
        response = as_dict(record.get("response"))
        response = as_dict(response.get("body")) or response
        if isinstance(record.get("messages"), list):
            request = record
        elif isinstance(record.get("choices"), list):
            request, response = {}, record
        elif not isinstance(request.get("messages"), list):
            return None
        metadata = as_dict(record.get("metadata")) or as_dict(request.get("metadata"))
        return cls(record, request, response, metadata)

    def text(self, *keys: str) -> str | None:
        """The first text under the keys, in the record, then its request, then its metadata."""
        for place in (self.record, self.request, as_dict(self.request.get("kwargs")), self.metadata):
            found = first_text(place, *keys)
            if found is not None:
                return found
        return None

    @property
    def choice(self) -> Mapping[str, Any]:
        return as_dict(next(iter(as_list(self.response.get("choices"))), None))


class OpenAIChat:
    """The reader."""

    name = "openai_chat"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if not head.values:
            return None
        if head.in_array and all(_is_message(value) for value in head.values):
            return Match(confidence=0.8, unit="document")
        chats = sum(1 for value in head.values if isinstance(value, dict) and _looks_like_chat(value))
        return Match(confidence=round(0.8 * chats / len(head.values), 3)) if chats else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            call = _Call.of(record.value)
            if call is None:
                yield record.reject("not_openai_chat", "the record has no list of messages and no choices")
            else:
                yield _fragment(call, record, source, first)


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("role"), str) and ("content" in value or "parts" not in value)
    )


def _looks_like_chat(value: Any) -> bool:
    call = _Call.of(value)
    if call is None:
        return False
    messages = call.request.get("messages")
    if isinstance(messages, list):
        return not messages or _is_message(messages[0])
    return isinstance(call.choice.get("message"), dict)


def _fragment(call: _Call, record: Record, source: Source, first: str) -> Fragment:
    native_id, attempt = _native_id(call), as_int32(call.record.get("attempt"))
    identity = {key: value for key, value in call.record.items() if key != "feedback"}
    key = f"{native_id}/{attempt}" if native_id and attempt is not None else native_id or fingerprint(identity)
    this = trajectory_id("openai_chat", key, first)
    conversation = Conversation(this)
    for message in as_list(call.request.get("messages")):
        add_message(conversation, message)
    time = _add_response(conversation, call)
    steps, tool_calls = conversation.finish()
    outcomes = feedback.read_feedback(call.record.get("feedback", call.metadata.get("feedback")), this)
    summary = feedback.headline(outcomes)
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        attempt=attempt,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="openai_chat",
        n_steps=len(steps),
        success=summary.success,
        reward=summary.reward,
        success_source=summary.source,
        content_complete=True,
        quality_flags=record.repairs if steps else (*record.repairs, "no_steps"),
        **_application(call),
        **_model(call),
        **_timing(call, time),
        **_ending(call),
        metadata=dumps(call.metadata) if call.metadata else None,
        extra=_extra(call),
    )
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _native_id(call: _Call) -> str | None:
    own = first_text(call.record, "id", "trace_id", "request_id", "trajectory_id", "custom_id")
    return (
        own or first_text(call.response, "id") or first_text(call.metadata, "trace_id", "request_id", "trajectory_id")
    )


def _add_response(conversation: Conversation, call: _Call) -> Time:
    """Append the first choice, unless the messages hold it already; gives the time of the response."""
    time = read_time(call.response.get("created"))
    message = call.choice.get("message")
    if message is None:
        return time
    last = as_list(call.request.get("messages"))[-1:]
    if last == [message]:
        return time
    usage = openai_usage(call.response.get("usage"))
    step_ix = add_message(conversation, message)
    finish = as_text(call.choice.get("finish_reason"))
    conversation.steps[step_ix] = replace(
        conversation.steps[step_ix],
        sampled=True,
        llm_call_id=as_text(call.response.get("id")),
        model=as_text(call.response.get("model")),
        ts=time.at,
        ts_raw=time.raw,
        finish_reason=finish,
        finish_reason_raw=finish,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=money(_cost(call)),
    )
    return time


def _application(call: _Call) -> dict[str, Any]:
    """Who asked, in which session, about which task: the application's own words."""
    tags = call.record.get("tags", call.metadata.get("tags"))
    return {
        "task_id": first_text(call.metadata, "task_id") or first_text(call.record, "task_id"),
        "session_id": call.text(*_SESSION),
        "conversation_id": call.text("conversation_id"),
        "trace_id": call.text("trace_id"),
        "user_id": call.text(*_USER),
        "tenant": call.text("tenant", "tenant_id"),
        "environment": as_text(call.metadata.get("environment")),
        "tags": tuple(tag for tag in as_list(tags) if isinstance(tag, str)) or None,
    }


def _model(call: _Call) -> dict[str, Any]:
    settings = {**as_dict(call.request.get("kwargs")), **call.request}
    sampling = {key: settings[key] for key in _SAMPLING if settings.get(key) is not None}
    tools = settings.get("tools") or settings.get("functions")
    return {
        "model": as_text(call.response.get("model")) or call.text("model"),
        "provider": call.text("provider"),
        "sampling": dumps(sampling) if sampling else None,
        "tools": dumps(tools) if tools else None,
        "cost_usd": money(_cost(call)),
        "cost_source": None if money(_cost(call)) is None else "recorded",
    }


def _cost(call: _Call) -> Any:
    return call.record.get("cost", call.record.get("cost_usd", as_dict(call.response.get("usage")).get("cost")))


def _timing(call: _Call, response: Time) -> dict[str, Any]:
    """Start and end: what the gateway stamped, else the time of the response."""
    stamped = read_time(call.record.get("timestamp", call.record.get("created_at", call.record.get("created"))))
    end = stamped if stamped.at is not None else response
    seconds = as_float(call.record.get("latency_sec"))
    start: datetime | None = end.at
    if end.at is not None and seconds is not None and 0 <= seconds < 86400:
        start = end.at - timedelta(seconds=seconds)
    return {
        "started_at": start,
        "ended_at": end.at,
        "duration_ms": None if seconds is None else seconds * 1000,
        "time_quality": end.quality,
    }


def _ending(call: _Call) -> dict[str, Any]:
    raw = as_text(call.choice.get("finish_reason"))
    error = call.record.get("error") or call.response.get("error")
    if error:
        detail = as_dict(error)
        return {
            "end_reason": "model_error",
            "end_reason_raw": raw,
            "error_type": first_text(detail, "type", "code"),
            "error_message": as_text(error) or first_text(detail, "message") or dumps(error),
        }
    return {"end_reason": _END_REASONS.get(raw or ""), "end_reason_raw": raw}


_READ = {"messages", "request", "response", "metadata", "feedback", "tools", "choices", "usage"}


def _extra(call: _Call) -> str | None:
    """What no column holds. A choice beyond the first is kept here."""
    rest = {key: value for key, value in call.record.items() if key not in _READ and value is not None}
    kwargs = as_dict(rest.get("kwargs"))
    if kwargs and kwargs.get("tools") == call.request.get("tools"):
        rest["kwargs"] = {key: value for key, value in kwargs.items() if key != "tools"}
    others = as_list(call.response.get("choices"))[1:]
    if others:
        rest["other_choices"] = others
    if call.response and call.response is not call.record:
        rest["response"] = {key: v for key, v in call.response.items() if key not in ("choices", "usage", "error")}
    if call.request and call.request is not call.record:
        rest["request"] = {key: v for key, v in call.request.items() if key not in ("messages", "tools", "metadata")}
    return dumps(rest) if rest else None
