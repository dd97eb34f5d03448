"""One call of a model as somebody logged it: the request, the response, and what the application knows beside them.

    {request: {...}, response: {...}, metadata?, ...}     gateways; `body` inside is opened, as JSON text too
    {messages, ..., response}                             LiteLLM; both may be JSON text
    {custom_id, body | response: {body}}                  lines of OpenAI's Batch API
    {custom_id, params | result: {message}}               lines of Anthropic's
    {interactions: [{request, response}, ...]}            cassettes of VCR, pytest-recording, Polly (several calls)
    {status, headers, body}                               one recorded response

A response may be a list of streamed pieces or the text of an event stream; it is merged. What surrounds a body
(headers, status, address) stays in `extra`. Shared by the readers of OpenAI chat and responses and Anthropic messages.

Not covered: bodies in an encoding other than text and base64.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from flywheel.formats import anthropic_stream, envelopes, responses_stream, streams
from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_float, as_list, as_text, first_text
from flywheel.formats.times import Time, read_time

LARGEST_BODY = 64 * 2**20
_REQUESTS = ("request", "request_body", "requestBody", "responses_create_params", "params")
_RESPONSES = ("response", "response_body", "responseBody", "result", "chunks", "response_chunks")
_SESSION = ("session_id", "sessionId", "litellm_session_id", "Helicone-Session-Id")
_CONVERSATION = ("conversation_id", "conversationId", "thread_id", "threadId")
_USER = ("user_id", "user", "end_user", "end_user_id", "userId", "request_user_id", "safety_identifier")
_BESIDE = ("kwargs", "properties", "request_properties")  # LiteLLM, Helicone
_STARTS = ("startTime", "start_time", "started_at", "request_time", "request_created_at")
_ENDS = ("endTime", "end_time", "ended_at", "response_created_at", "timestamp", "created_at", "created")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The parts of a record, wherever its shape keeps them. `response` is empty where there is none."""

    record: Mapping[str, Any]
    request: Mapping[str, Any]
    response: Mapping[str, Any]
    metadata: Mapping[str, Any]
    around: Mapping[str, Any] = field(default_factory=dict)  # what stood beside the bodies that were opened
    taken: frozenset[str] = frozenset()  # the record's keys that are in request, response and metadata
    streamed: bool = False

    def text(self, *keys: str) -> str | None:
        """The first text under the keys, in the record, then its request, then what the application said of it."""
        beside = [self.record[key] for key in _BESIDE if key in self.record]
        asked = (self.request, self.request.get("kwargs")) if self.request is not self.record else ()
        for place in (self.record, *asked, self.metadata, self.metadata.get("requester_metadata"), *beside):
            if not isinstance(place, dict):
                continue
            for key in keys:
                if key in place and (found := as_text(place[key])) is not None:
                    return found
        return None

    @property
    def conversation_id(self) -> str | None:
        """The application's name for the conversation, or the Responses API's."""
        named = self.request.get("conversation") or self.response.get("conversation")
        return self.text(*_CONVERSATION) or as_text(named) or first_text(as_dict(named), "id")

    @property
    def session_id(self) -> str | None:
        """The application's name for the session: it may hold several conversations."""
        return self.text(*_SESSION)

    @property
    def task_id(self) -> str | None:
        """The task that the application says this is."""
        own = first_text(self.metadata, "task_id") or first_text(self.record, "task_id")
        return own or first_text(as_dict(self.metadata.get("requester_metadata")), "task_id")


def exchanges_of(value: Any) -> list[Exchange]:
    """The calls that a record holds: several of a cassette or an envelope, else one; none if it has no such shape."""
    record = as_dict(value)
    if isinstance(record.get("interactions"), list):
        found = [_exchange(as_dict(item)) for item in record["interactions"]]
        return [item for item in found if item is not None]
    calls = [_exchange(item) for item in envelopes.opened(record)]
    return [item for item in calls if item is not None]


def _exchange(given: Mapping[str, Any]) -> Exchange | None:
    record = _with_messages(given)
    taken: dict[str, None] = {}
    around: dict[str, Any] = {}
    request, response, streamed = _parts(record, taken, around)
    if not request and not response and not is_account(record):
        return None
    metadata = as_dict(record.get("metadata")) or as_dict(request.get("metadata"))
    return Exchange(
        record=record,
        request=request,
        response=response,
        metadata=metadata,
        around=around,
        taken=frozenset(taken),
        streamed=streamed,
    )


def is_account(record: Mapping[str, Any]) -> bool:
    """Whether a record tells of a call without its words: a batch's error, a spend log of LiteLLM that keeps none."""
    return ("custom_id" in record and bool(record.get("error"))) or {"call_type", "request_id", "spend"} <= set(record)


def _with_messages(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with its messages opened, where a table keeps them as JSON text."""
    text = record.get("messages")
    decoded = try_loads(text) if isinstance(text, str) and text.lstrip().startswith("[") else None
    return record if decoded is None else {**record, "messages": decoded.value}


def _parts(
    record: Mapping[str, Any], taken: dict[str, None], around: dict[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any], bool]:
    """(request, response, whether it was streamed). Notes which keys of the record they are, and what was around."""
    if "body" in record and "status" in record:
        response, streamed = _opened(record, "response", around)
        taken["body"] = None
        around.clear()  # all of it is in the record itself
        return {}, response, streamed
    key = next((key for key in _RESPONSES if record.get(key)), None)
    response, streamed = ({}, False) if key is None else _opened(record[key], key, around)
    if key is not None and response:
        taken[key] = None
    if isinstance(record.get("messages"), list) or "input" in record:
        return record, response, streamed
    key = next((key for key in (*_REQUESTS, "body") if record.get(key)), None)
    request, _ = ({}, False) if key is None else _opened(record[key], key, around)
    if key is not None and request:
        taken[key] = None
    if not request and not response:
        return {}, record, streams.is_chunk(record)
    return request, response, streamed


def _opened(value: Any, name: str, around: dict[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """A body: as it is, inside `body`, as text, or as a stream (merged). What stands beside it goes to `around`."""
    envelope = as_dict(value)
    inner = envelope.get("body", envelope.get("content") if "status" in envelope else None)
    if envelope.get("type") == "succeeded":  # of Anthropic's batches
        inner = envelope.get("message")
    if inner is not None:
        body, streamed = _body(inner)
        if body:
            beside = {key: item for key, item in envelope.items() if key not in ("body",) and item is not inner}
            around |= {name: beside} if beside else {}
            return body, streamed
    return _body(value)


def _body(value: Any) -> tuple[Mapping[str, Any], bool]:
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, list):
        merged = merge([item for item in value if isinstance(item, dict)])
        return merged or {}, merged is not None
    held = as_dict(value)
    if "base64_string" in held:
        return _from_text(_from_base64(held["base64_string"]))
    if "string" in held and len(held) <= 2:
        return _body(held["string"])
    return held, False


def _from_base64(value: Any) -> str:
    """The text of a body that a cassette keeps as bytes, perhaps as they were compressed; '' where there is none."""
    try:
        data = base64.b64decode(value if isinstance(value, str) else "", validate=True)
        if data.startswith(b"\x1f\x8b"):
            data = zlib.decompressobj(31).decompress(data, LARGEST_BODY)
        return data.decode()
    except (binascii.Error, UnicodeDecodeError, zlib.error):
        return ""


def _from_text(text: str) -> tuple[Mapping[str, Any], bool]:
    events = streams.sse_events(text)
    if events is not None:
        merged = merge(events)
        return merged or {}, merged is not None
    decoded = try_loads(text) if text.lstrip()[:1] in ("{", "[") else None
    if decoded is None or isinstance(decoded.value, str):
        return {}, False
    return _body(decoded.value)


def merge(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The response that the pieces of one stream add up to, of whichever protocol; None where they are no stream."""
    if any(streams.is_chunk(event) for event in events):
        return streams.merge_chunks(events)
    if any(event.get("type") == "message_start" for event in events):
        return anthropic_stream.merge_events(events)
    if any((as_text(event.get("type")) or "").startswith("response.") for event in events):
        return responses_stream.merge_events(events)
    return None


def application(exchange: Exchange) -> dict[str, Any]:
    """Columns: who asked, in which session, about which task, in the application's own words."""
    tags = exchange.record.get("tags", exchange.metadata.get("tags", exchange.record.get("request_tags")))
    return {
        "task_id": exchange.task_id,
        "session_id": exchange.session_id,
        "conversation_id": exchange.conversation_id,
        "trace_id": exchange.text("trace_id", "litellm_trace_id"),
        "user_id": exchange.text(*_USER),
        "tenant": exchange.text("tenant", "tenant_id"),
        "environment": as_text(exchange.metadata.get("environment")),
        "tags": tuple(tag for tag in as_list(tags) if isinstance(tag, str)) or None,
    }


def timing(exchange: Exchange, response: Time) -> dict[str, Any]:
    """Columns: start and end as the gateway stamped them, else the time of the response."""
    starts, ends = (_first_time(exchange.record, keys) for keys in (_STARTS, _ENDS))
    end = ends if ends.at is not None else response
    start, seconds = starts.at, as_float(exchange.record.get("latency_sec"))
    if seconds is not None and not 0 <= seconds < 86400:
        seconds = None
    if start is None and end.at is not None:
        start = end.at - timedelta(seconds=seconds or 0)
    return {
        "started_at": start,
        "ended_at": end.at,
        "duration_ms": None if seconds is None else seconds * 1000,
        "time_quality": end.quality if end.at is not None else starts.quality,
    }


def _first_time(record: Mapping[str, Any], keys: tuple[str, ...]) -> Time:
    times = [read_time(record[key]) for key in keys if key in record]
    return next((time for time in times if time.at is not None), read_time(None))


def rest_of(
    exchange: Exchange, read: frozenset[str], in_request: frozenset[str], in_response: frozenset[str]
) -> dict[str, Any]:
    """What no column holds: keys of the record, its request and its response but those that were read."""
    record = exchange.record
    known = read | exchange.taken | (in_request if exchange.request is record else frozenset())
    if exchange.response is record:
        known |= in_response
    if exchange.metadata and exchange.metadata is record.get("metadata"):
        known |= {"metadata"}
    elif exchange.metadata:
        in_request |= {"metadata"}
    rest = {key: value for key, value in record.items() if key not in known and value is not None}
    places = (("request", exchange.request, in_request), ("response", exchange.response, in_response))
    for name, place, taken in places:
        more = {key: value for key, value in place.items() if key not in taken} if place is not record else {}
        rest |= {name: more} if more else {}
    return rest | ({"around": dict(exchange.around)} if exchange.around else {})
