"""ATOF (NVIDIA NeMo Agent Toolkit's event stream, beside its ATIF): one event a line, scopes that start and end, marks.

    {kind: scope|mark, scope_category: start|end, category: agent|llm|tool|..., uuid, parent_uuid, name, data, ...}

An agent's scope is a trajectory, one inside another its subagent. What a model is told, as far as the conversation does
not hold it yet, and what it says become messages, whichever protocol `data_schema` names; the end of a tool is the
result of the call it answers (by `tool_call_id`, else by name). Marks are events. The stream stays in `extra`, without
the answers and results that became messages.

Not covered: agents whose scope ends in another file (each file tells its part).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flywheel.formats.messages import Conversation
from flywheel.formats.observed_messages import said, told
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.times import read_time
from flywheel.formats.usage import openai_usage
from flywheel.records import Fragment, Reject, Trajectory

_SAID = ("messages", "contents", "content", "choices", "candidates", "system")  # of `data`: what messages hold


class Atof:
    """The reader."""

    name = "atof"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        events = [as_dict(value) for value in head.values if _is_event(value)]
        if not events:
            return None
        version = first_text(events[0], "atof_version")
        return Match(confidence=round(0.97 * len(events) / len(head.values), 3), version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        runs: dict[str, _Run] = {}
        owners: dict[str, str] = {}
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            if not _is_event(record.value):
                yield record.reject("not_atof", "the record is no event of an ATOF stream")
                continue
            event = record.value
            uuid, parent = str(as_text(event["uuid"])), first_text(event, "parent_uuid")
            around = owners.get(parent or "")
            is_agent = event.get("category") == "agent" or around is None
            owner = uuid if event["kind"] == "scope" and is_agent else around or parent or uuid
            owners[uuid] = owner
            if owner not in runs:
                above = around if around != owner else None
                runs[owner] = _Run(owner, record, source, first, above)
            runs[owner].add(event)
            if owner == uuid and event.get("scope_category") == "end":
                yield runs.pop(owner).fragment()
        for run in runs.values():
            yield run.fragment()


def _is_event(value: Any) -> bool:
    event = as_dict(value)
    known = event.get("kind") in ("scope", "mark") and as_text(event.get("uuid")) is not None
    return known and bool({"atof_version", "scope_category", "category"} & event.keys())


@dataclass(slots=True)
class _Run:
    """An agent's scope while its events come in."""

    uuid: str
    record: Record
    source: Source
    first: str
    parent: str | None
    conversation: Conversation = field(init=False)
    events: list[dict[str, Any]] = field(default_factory=list)
    started: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # scopes of tools, by uuid
    call_ids: set[str] = field(default_factory=set)
    agent: str | None = None
    version: str | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self.conversation = Conversation(self._id(self.uuid))

    def _id(self, uuid: str) -> str:
        return trajectory_id("atof", uuid, self.first)

    def add(self, event: Mapping[str, Any]) -> None:
        category, end = event.get("category"), event.get("scope_category") == "end"
        self.version = self.version or first_text(event, "atof_version")
        taken = True
        if event["kind"] == "mark":
            self._mark(event)
        elif category == "llm":
            taken = end and self._answer(event)
            if not end:
                self._question(event)
        elif category == "tool" and end:
            self._result(event)
        elif category == "tool":  # what it is given stands in the call already, if a model asked for it
            self.started[str(event["uuid"])] = event
        else:
            taken = False
            if str(as_text(event["uuid"])) == self.uuid:
                self.agent = self.agent or first_text(event, "name")
                self.ended |= end
        self.events.append(_left(event) if taken else dict(event))

    def _mark(self, event: Mapping[str, Any]) -> None:
        time, data = read_time(event.get("timestamp")), event.get("data")
        self.conversation.add(
            role="event",
            role_raw=as_text(event.get("category")),
            name=first_text(event, "name"),
            content=data if isinstance(data, str) else None if data is None else dumps(data),
            content_state="null" if data is None else "present",
            span_id=as_text(event["uuid"]),
            ts=time.at,
            ts_raw=time.raw,
        )

    def _question(self, event: Mapping[str, Any]) -> None:
        """Add what the model is told beyond what was said so far; nothing where it is told another history."""
        given = told(event.get("data")) or []
        held = [step for step in self.conversation.steps if step.role != "event"]
        roles = [as_text(as_dict(message).get("role")) for message in given]
        if any(step.role != role for step, role in zip(held, roles, strict=False)):
            return
        time = read_time(event.get("timestamp"))
        for message in given[len(held) :]:
            add_message(self.conversation, message, ts=time.at, ts_raw=time.raw)
            self._note_calls(message)

    def _answer(self, event: Mapping[str, Any]) -> bool:
        data, time = as_dict(event.get("data")), read_time(event.get("timestamp"))
        bare = "content" in data and "role" not in data  # NeMo's own answers name nobody
        choices = said({"role": "assistant", **data} if bare else event.get("data")) or []
        choice = as_dict(next(iter(as_list(data.get("choices")) or as_list(data.get("candidates"))), None))
        usage = openai_usage(data.get("usage"))
        finish = first_text(choice, "finish_reason", "finishReason") or first_text(data, "stop_reason")
        model = first_text(as_dict(event.get("category_profile")), "model_name") or first_text(event, "name")
        for message in choices[0] if choices else ():
            self._note_calls(message)
            step_ix = add_message(self.conversation, message)
            self.conversation.steps[step_ix] = replace(
                self.conversation.steps[step_ix],
                sampled=True,
                model=model,
                llm_call_id=first_text(data, "id"),
                span_id=as_text(event["uuid"]),
                finish_reason=finish,
                finish_reason_raw=finish,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                ts=time.at,
                ts_raw=time.raw,
            )
        return len(choices) == 1

    def _note_calls(self, message: Any) -> None:
        calls = as_list(as_dict(message).get("tool_calls"))
        self.call_ids |= {call_id for call in calls if (call_id := as_text(as_dict(call).get("id")))}

    def _result(self, event: Mapping[str, Any]) -> None:
        name, data = first_text(event, "name"), event.get("data")
        call_id = first_text(as_dict(event.get("category_profile")), "tool_call_id")
        start, time = self.started.pop(str(event["uuid"]), {}), read_time(event.get("timestamp"))
        if call_id not in self.call_ids and not (name and self.conversation.knows_tool(name)):
            self._unasked(event, start, name, call_id)
        body = as_dict(data)
        held = body["result"] if body.keys() == {"result"} else data
        content = held if held is None or isinstance(held, str) else dumps(held)
        message = {"role": "tool", "name": name, "content": content}
        message |= {"tool_call_id": call_id} if call_id in self.call_ids else {}
        add_message(self.conversation, message, span_id=as_text(event["uuid"]), ts=time.at, ts_raw=time.raw)

    def _unasked(
        self, event: Mapping[str, Any], start: Mapping[str, Any], name: str | None, call_id: str | None
    ) -> None:
        """A tool that no model asked for: the workflow called it."""
        time = read_time(start.get("timestamp", event.get("timestamp")))
        step_ix = self.conversation.add(
            role="assistant", content_state="null", sampled=False, is_synthetic=True, ts=time.at, ts_raw=time.raw
        )
        self.conversation.call(step_ix, call_id=call_id, name=name, kind="function", arguments=start.get("data"))
        self.call_ids |= {call_id} if call_id else set()

    def fragment(self) -> Fragment:
        steps, tool_calls = self.conversation.finish()
        this = self.conversation.trajectory_id
        flags = (*(() if self.ended else ("unfinished",)), *(() if steps else ("no_steps",)))
        trajectory = Trajectory(
            trajectory_id=this,
            content_sha256="",
            native_id=self.uuid,
            parent_trajectory_id=None if self.parent is None else self._id(self.parent),
            source_id=self.source.source_id,
            source_record_ix=self.record.ix,
            format="atof",
            format_version=self.version,
            agent_name=self.agent,
            n_steps=len(steps),
            end_reason="completed" if self.ended else None,
            content_complete=True,
            quality_flags=(*self.record.repairs, *flags) or None,
            extra=dumps({"events": self.events}),
        )
        return Fragment(key=this, record_ix=self.record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls)


def _left(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event without the messages that it became."""
    data = event.get("data")
    if event["kind"] == "mark" or event.get("category") == "tool":
        rest: Any = {}
    else:
        rest = {key: item for key, item in as_dict(data).items() if key not in _SAID}
    return {key: item for key, item in event.items() if key != "data"} | ({"data": rest} if rest else {})
