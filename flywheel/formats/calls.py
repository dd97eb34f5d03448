"""The reader of logged calls, whatever the chat protocol: OpenAI chat, OpenAI responses, Anthropic messages.

Gateways log all three into one file, so each of the three readers reads the others' records too; a record's own
protocol is its trajectory's `format`. Streamed pieces that are records of their own are gathered and merged.

One conversation is one trajectory. Calls with a conversation id are joined by it; with a session id, those of the
session that open with the same messages; without either, a call that continues an earlier one of the source
(`histories.py`). Each call is a path through that message graph. A call that is numbered as an attempt stands alone.

Not covered: which steps a protocol makes of a call (the modules in `PROTOCOLS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flywheel.formats import anthropic_stream, feedback, responses_stream, streams
from flywheel.formats.anthropic_call import AnthropicCall
from flywheel.formats.exchange import Exchange, application, exchanges_of, merge, rest_of, timing
from flywheel.formats.histories import Histories, opening
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_chat_call import OpenAIChatCall
from flywheel.formats.openai_responses_call import OpenAIResponsesCall
from flywheel.formats.parse import dumps
from flywheel.formats.protocol import Built, CallProtocol
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_int32,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.response_chain import ResponseChain, previous
from flywheel.records import Fragment, Outcome, Reject, Trajectory, content_id

PROTOCOLS: tuple[CallProtocol, ...] = (AnthropicCall(), OpenAIResponsesCall(), OpenAIChatCall())
_RESPONSES = "openai_responses"
OPEN_STREAMS = 256  # answers that may be arriving in pieces at the same time


def protocol_of(exchange: Exchange) -> CallProtocol | None:
    """The protocol that is surest to be the exchange's."""
    best = max(PROTOCOLS, key=lambda protocol: protocol.claims(exchange))
    return best if best.claims(exchange) > 0 else None


def sniff_calls(head: Head, name: str) -> Match | None:
    """A match for the reader of that protocol: by the share of calls, first of all those of its own protocol."""
    if not head.values:
        return None
    sure: dict[str, list[float]] = {}
    for value in head.values:
        found = _claimed(value)
        if found is not None:
            sure.setdefault(found[0], []).append(found[1])
    own, all_calls = sure.get(name, []), [claim for claims in sure.values() for claim in claims]
    if not own:
        return None
    level = 0.8 if name == "openai_chat" else 0.9 if max(own) >= 1 else 0.85
    others = len(all_calls) - len(own)
    return Match(confidence=round((level - 0.001 * others) * len(all_calls) / len(head.values), 3))


def _claimed(value: Any) -> tuple[str, float] | None:
    """(protocol, how sure) of a record that a call can be made of."""
    piece = _piece(value)
    if piece is not None:
        return piece[0], 1.0
    found = [(protocol, exchange) for exchange in exchanges_of(value) if (protocol := protocol_of(exchange))]
    if not found:
        return None
    protocol, exchange = found[0]
    claim = protocol.claims(exchange)
    return (protocol.name, claim) if claim > 0.1 else None


def _piece(value: Any) -> tuple[str, str | None] | None:
    """(protocol, id of the answer) of a record that is a piece of a streamed answer."""
    given = as_dict(value)
    if streams.is_chunk(value):
        return "openai_chat", first_text(given, "id")
    if anthropic_stream.is_event(value):
        return "anthropic_messages", first_text(as_dict(given.get("message")), "id")
    if responses_stream.is_event(value):
        return "openai_responses", first_text(as_dict(given.get("response")), "id")
    return None


def _leads(chunk: Mapping[str, Any]) -> bool:
    """Whether a chunk without an id stands before the answer that it tells of."""
    return not chunk.get("choices") and "prompt_filter_results" in chunk


@dataclass(slots=True)
class _Stream:
    """An answer that arrives in pieces."""

    first: Record
    events: list[dict[str, Any]] = field(default_factory=list)


class CallReader:
    """Reads the calls of one source; made anew for each."""

    def __init__(self, source: Source, refusal: str) -> None:
        self._source = source
        self._refusal = refusal
        self._histories = Histories()
        self._chain = ResponseChain()
        self._streams: dict[str, _Stream] = {}
        self._first: str | None = None
        self._latest = ""
        self._lead: list[dict[str, Any]] = []  # Azure tells of its filters before the answer has an id

    def read(self, records: Iterable[Record]) -> Iterator[Fragment | Reject]:
        """Fragments and refusals in the order of the records; answers in pieces when they are complete, or last."""
        for record in records:
            self._first = self._first or fingerprint(record.value)
            piece = _piece(record.value)
            if piece is None and self._streams and as_dict(record.value).get("type") in ("ping", "error"):
                piece = self._latest.split("/")[0], None  # says nothing of which answer it belongs to
            if piece is not None:
                yield from self._gather(record, *piece)
                continue
            found = [
                self._fragment(exchange, protocol, record)
                for exchange in exchanges_of(record.value)
                if (protocol := protocol_of(exchange)) is not None
            ]
            if not found:
                yield record.reject(f"not_{self._refusal}", "the record has no list of messages, no input, no answer")
            yield from found
        for stream in self._streams.values():
            yield self._merged(stream)

    def _gather(self, record: Record, protocol: str, answer_id: str | None) -> Iterator[Fragment | Reject]:
        """Add a piece to its answer. Pieces that name no answer belong to the latest that was begun."""
        if protocol == "openai_chat" and answer_id is None and _leads(record.value):
            self._lead.append(record.value)
            return
        begins = record.value.get("type") in ("message_start", "response.created")
        key = f"{protocol}/{answer_id}" if answer_id else f"{protocol}/{record.ix}" if begins else self._latest
        if key not in self._streams:
            if len(self._streams) >= OPEN_STREAMS:
                yield self._merged(self._streams.pop(next(iter(self._streams))))
            self._streams[key] = _Stream(record, self._lead)
            self._lead = []
        self._latest = key
        self._streams[key].events.append(record.value)

    def _merged(self, stream: _Stream) -> Fragment | Reject:
        response = merge(stream.events) or {}
        exchange = Exchange(record=response, request={}, response=response, metadata={}, streamed=True)
        protocol = protocol_of(exchange)
        if protocol is None:
            return stream.first.reject(f"not_{self._refusal}", "pieces of a stream that make no answer")
        return self._fragment(exchange, protocol, stream.first)

    def _fragment(self, given: Exchange, protocol: CallProtocol, record: Record) -> Fragment:
        exchange, continues = self._chain.resumed(given) if protocol.name == _RESPONSES else (given, None)
        history, answer = protocol.said(exchange)
        own = self._own(given, protocol)
        native_id, this, is_path = self._identity(given, protocol, own, history, answer)
        if continues is not None:
            this, is_path = continues, True
        if protocol.name == _RESPONSES:
            self._chain.keep(exchange, this)
        conversation = Conversation(this)
        built = protocol.build(exchange, conversation)
        steps, tool_calls = conversation.finish()
        grouped = is_path and this != own
        outcomes = _outcomes(given, this, [*history, *answer] if grouped else None, built.answer_ix)
        before = previous(given) if protocol.name == _RESPONSES and continues is None else None
        columns = {
            "native_id": native_id,
            "continued_from": before and trajectory_id(protocol.name, before, self._first or ""),
            "quality_flags": (*record.repairs, *built.flags, *(() if steps else ("no_steps",))) or None,
        }
        return Fragment(
            key=this,
            record_ix=record.ix,
            trajectory=self._trajectory(this, given, protocol, record, built, len(steps), outcomes, columns),
            is_path=is_path,
            steps=steps,
            tool_calls=tool_calls,
            outcomes=outcomes,
        )

    def _trajectory(
        self,
        this: str,
        exchange: Exchange,
        protocol: CallProtocol,
        record: Record,
        built: Built,
        n_steps: int,
        outcomes: Sequence[Outcome],
        columns: Mapping[str, Any],
    ) -> Trajectory:
        summary = feedback.headline(outcomes)
        return Trajectory(
            **{
                "trajectory_id": this,
                "content_sha256": "",
                "attempt": as_int32(exchange.record.get("attempt")),
                "source_id": self._source.source_id,
                "source_record_ix": record.ix,
                "format": protocol.name,
                "n_steps": n_steps,
                "success": summary.success,
                "reward": summary.reward,
                "success_source": summary.source,
                "content_complete": True,
                **application(exchange),
                **timing(exchange, built.time),
                **built.columns,
                **columns,
                "metadata": dumps(exchange.metadata) if exchange.metadata else None,
                "extra": extra_of(exchange, built),
            }
        )

    def _own(self, exchange: Exchange, protocol: CallProtocol) -> str:
        """The id of the call alone."""
        native_id, attempt = _native_id(exchange), as_int32(exchange.record.get("attempt"))
        identity = {key: value for key, value in exchange.record.items() if key != "feedback"}
        key = f"{native_id}/{attempt}" if native_id and attempt is not None else native_id or fingerprint(identity)
        return trajectory_id(protocol.name, key, self._first or "")

    def _identity(
        self, exchange: Exchange, protocol: CallProtocol, own: str, history: Sequence[Any], answer: Sequence[Any]
    ) -> tuple[str | None, str, bool]:
        """(native id, trajectory id, whether it is a path of a graph that other calls may continue)."""
        native_id = _native_id(exchange)
        if as_int32(exchange.record.get("attempt")) is not None:
            return native_id, own, False
        conversation, session, first = exchange.conversation_id, exchange.session_id, self._first or ""
        if conversation is not None:
            scoped = trajectory_id(protocol.name, conversation, first)
            return conversation, content_id("trajectory", "conversation", scoped, exchange.task_id), True
        if session is not None and history:
            scoped = trajectory_id(protocol.name, session, first)
            begun = opening(history)
            return native_id, content_id("trajectory", "session", scoped, exchange.task_id, begun), True
        if not history or not answer:
            return native_id, own, False
        scope = dumps([exchange.task_id, exchange.text("user_id", "user")])
        return native_id, self._histories.key(history, answer, own, scope), True


def _native_id(exchange: Exchange) -> str | None:
    own = first_text(exchange.record, "id", "trace_id", "request_id", "trajectory_id", "custom_id")
    named = first_text(exchange.metadata, "trace_id", "request_id", "trajectory_id")
    return own or first_text(exchange.response, "id") or named


def _outcomes(exchange: Exchange, this: str, said: Sequence[Any] | None, answer_ix: int | None) -> tuple[Outcome, ...]:
    """The feedback on the call. In a conversation of several calls it is about the answer of this one, which `said`."""
    outcomes = feedback.read_feedback(exchange.record.get("feedback", exchange.metadata.get("feedback")), this)
    if said is None:
        return outcomes
    call = as_text(exchange.response.get("id")) or fingerprint(said)
    return tuple(
        replace(outcome, outcome_id=content_id("outcome", outcome.outcome_id, call), step_ix=answer_ix)
        for outcome in outcomes
    )


def extra_of(exchange: Exchange, built: Built) -> str | None:
    """The trajectory's `extra`: what no column holds of the record, its request and its response."""
    read = built.in_record | {"feedback"}
    rest: Mapping[str, Any] = rest_of(exchange, read, built.in_request, built.in_response)
    kwargs = as_dict(rest.get("kwargs"))
    if kwargs and kwargs.get("tools") == exchange.request.get("tools"):
        rest = {**rest, "kwargs": {key: value for key, value in kwargs.items() if key != "tools"}}
    whole = {**rest, **built.extra}
    return dumps(whole) if whole else None
