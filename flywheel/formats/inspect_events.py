"""The events of an Inspect transcript: what the model calls tell of the messages, and events without a log around.

Newer logs write each message once, in a pool (`message_pool`, `events_data.messages`), and events name ranges of it
(`input_refs`: [[from, to), ...]).

    {events: [{event: span_begin|model|tool|score|..., span_id, timestamp, ...}], ...}

Events alone become one trajectory a span that calls a model (an agent, a solver); each call is one path of its graph.
Not covered: events as rows of their own (they stay in `extra` of the first trajectory).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from flywheel.formats.inspect_messages import add, finish
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Record,
    Source,
    as_dict,
    as_int,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count, money
from flywheel.records import Fragment, Step, Trajectory

_PROTOCOLS = ("attachment://", "tc://")


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A model event."""

    event: Mapping[str, Any]
    pool: Sequence[Any]
    attachments: Mapping[str, Any]

    @property
    def output(self) -> Mapping[str, Any]:
        return as_dict(self.event.get("output"))

    @property
    def choice(self) -> Mapping[str, Any]:
        return as_dict(next(iter(as_list(self.output.get("choices"))), None))

    @property
    def answer(self) -> Any:
        """The message that the model gave, None where it gave none."""
        return resolved(self.choice.get("message"), self.attachments, set())

    @property
    def messages(self) -> list[Any]:
        """What the model was given, and its answer."""
        given = list(as_list(self.event.get("input")))
        for pair in as_list(self.event.get("input_refs")):
            start, end = (as_int(bound) for bound in [*as_list(pair), None, None][:2])
            if start is not None and end is not None and 0 <= start <= end:
                given += self.pool[start:end]
        answer = self.choice.get("message")
        return [resolved(item, self.attachments, set()) for item in (given if answer is None else [*given, answer])]

    @property
    def tools(self) -> Any:
        return resolved(self.event.get("tools"), self.attachments, set())

    @property
    def end(self) -> tuple[datetime | None, str | None]:
        """When the answer was there, and as it was written."""
        time = read_time(self.event.get("completed") or self.event.get("timestamp"))
        return time.at, time.raw


def resolved(value: Any, attachments: Mapping[str, Any], used: set[str]) -> Any:
    """The value with references to attachments replaced by what they name; names what it took in `used`."""
    if isinstance(value, str):
        for protocol in _PROTOCOLS:
            key = value.removeprefix(protocol)
            if key != value and key in attachments:
                used.add(key)
                return attachments[key]
        return value
    if isinstance(value, dict):
        return {key: resolved(item, attachments, used) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item, attachments, used) for item in value]
    return value


def calls_of(sample: Mapping[str, Any], attachments: Mapping[str, Any]) -> list[ModelCall]:
    """The model events of a sample in order."""
    events = as_list(sample.get("events")) or as_list(as_dict(sample.get("transcript")).get("events"))
    pool = as_list(sample.get("message_pool")) or as_list(as_dict(sample.get("events_data")).get("messages"))
    return [ModelCall(event, pool, attachments) for event in events if as_dict(event).get("event") == "model"]


def usage_of(value: Any) -> Usage:
    """Inspect's `ModelUsage`: its input tokens are those that came from no cache."""
    usage = as_dict(value)
    read, write = count(usage.get("input_tokens_cache_read")), count(usage.get("input_tokens_cache_write"))
    own = count(usage.get("input_tokens"))
    return Usage(
        input_tokens=None if own is None else own + (read or 0) + (write or 0),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(usage.get("reasoning_tokens")),
    )


def stamp(conversation: Conversation, calls: Sequence[ModelCall]) -> None:
    """Write what the model calls say into the steps that are their answers.

    Tokens only where every answer has its call: a part of them would pass for the whole.
    """
    answers = [step for step in conversation.steps if step.role == "assistant" and step.sampled is not False]
    found = _paired(answers, calls)
    whole = len(found) == len(answers)
    for step_ix, call in found.items():
        step, (at, raw) = conversation.steps[step_ix], call.end
        finish = as_text(call.choice.get("stop_reason"))
        columns: dict[str, Any] = {
            "sampled": True,
            "ts": at,
            "ts_raw": raw,
            "model": step.model or as_text(call.output.get("model")) or as_text(call.event.get("model")),
            "finish_reason": finish,
            "finish_reason_raw": finish,
        }
        if whole:
            said = call.output.get("usage")
            usage = usage_of(said)
            columns |= {name: getattr(usage, name) for name in Usage.__slots__}
            columns["cost_usd"] = money(as_dict(said).get("total_cost"))
        conversation.steps[step_ix] = replace(step, **columns)


def _paired(answers: Sequence[Step], calls: Sequence[ModelCall]) -> dict[int, ModelCall]:
    """The call of each answer: by message id, and in logs without ids the next call that gave the same text."""
    by_id = {as_text(as_dict(call.choice.get("message")).get("id")): call for call in calls}
    by_id.pop(None, None)
    found: dict[int, ModelCall] = {}
    left = [call for call in calls if as_text(as_dict(call.choice.get("message")).get("id")) is None]
    for step in answers:
        if step.native_id is not None and step.native_id in by_id:
            found[step.step_ix] = by_id[step.native_id]
            continue
        for ix, call in enumerate(left if step.native_id is None else ()):
            content = as_dict(call.answer).get("content")
            if content == step.content or (isinstance(content, list) and dumps(content) == step.parts):
                found[step.step_ix] = call
                del left[: ix + 1]
                break
    return found


def event_fragments(value: Mapping[str, Any], record: Record, source: Source, first: str) -> Iterator[Fragment]:
    """Trajectories of a list of events that stands alone; what else stands there goes to the first one's `extra`."""
    spans = {
        as_text(as_dict(event).get("id")): as_dict(event)
        for event in as_list(value["events"])
        if as_dict(event).get("event") == "span_begin"
    }
    attachments = as_dict(value.get("attachments"))
    rest: str | None = dumps(value)
    calls = calls_of(value, attachments)
    callers = {as_text(call.event.get("span_id")) for call in calls}
    for call in calls:
        span_id = as_text(call.event.get("span_id"))
        this = trajectory_id("inspect_log", f"{fingerprint(value)}/{span_id}", first)
        conversation = Conversation(this)
        for message in call.messages:
            add(conversation, message)
        if call.answer is not None:
            stamp(conversation, [call])
        steps, tool_calls = finish(conversation)
        span = spans.get(span_id, {})
        parent = _caller(span, spans, callers)
        trajectory = Trajectory(
            trajectory_id=this,
            content_sha256="",
            native_id=span_id,
            parent_trajectory_id=None
            if parent is None
            else trajectory_id("inspect_log", f"{fingerprint(value)}/{parent}", first),
            source_id=source.source_id,
            source_record_ix=record.ix,
            format="inspect_log",
            agent_name=first_text(span, "name"),
            model=as_text(call.event.get("model")),
            tools=dumps(call.tools) if call.tools else None,
            n_steps=len(steps),
            content_complete=True,
            quality_flags=record.repairs or None,
            extra=rest,
        )
        rest = None
        yield Fragment(
            key=this, record_ix=record.ix, trajectory=trajectory, is_path=True, steps=steps, tool_calls=tool_calls
        )


def _caller(span: Mapping[str, Any], spans: Mapping[str | None, Any], callers: set[str | None]) -> str | None:
    """The nearest span around this one that calls a model."""
    seen: set[str | None] = set()
    parent = first_text(span, "parent_id")
    while parent is not None and parent not in seen:
        if parent in callers:
            return parent
        seen.add(parent)
        parent = first_text(spans.get(parent, {}), "parent_id")
    return None
