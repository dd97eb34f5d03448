"""Sessions of Anthropic's managed agents: their events, as the API lists them or a client recorded them.

    {type: "user.message" | "agent.message" | "agent.tool_use" | "session.*" | ..., id, processed_at}
    {data: [event, ...]}                                     a page of the list
    ["client.beta.sessions.create", {...}], ["client.beta.sessions.events.stream", event]   recorded calls, one a record

Events that follow one another are one session until a record names another. What was sent and comes back as an event
is one message. Usage comes with `span.model_request_end` and belongs to what the agent said in that request. Status
events make the end; everything else that has no row of its own is an event row.

Not covered: previews of events (`event_start`, `event_delta`), threads of subagents as trajectories of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flywheel.formats.anthropic_call import anthropic_usage
from flywheel.formats.messages import Conversation, read_content
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
from flywheel.records import Fragment, Reject, Trajectory

_KINDS = ("user.", "agent.", "session.", "span.", "system.")
_CALLS = {"agent.tool_use": "builtin", "agent.mcp_tool_use": "mcp", "agent.custom_tool_use": "custom"}
_RESULTS = {"agent.tool_result", "agent.mcp_tool_result", "user.custom_tool_result", "user.tool_result"}
_SAID = {
    "user.message": "user",
    "agent.message": "assistant",
    "agent.thinking": "assistant",
    "system.message": "system",
}
_RESULT_OF = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")
_EVENT = {"type", "id", "processed_at", "content", "name", "input", "is_error", *_RESULT_OF}
_ENDS = {"end_turn": "completed", "retries_exhausted": "model_error", "requires_action": None}


class AnthropicSessions:
    """The reader."""

    name = "anthropic_sessions"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        found = sum(1 for value in head.values if _opened(value) is not None)
        return Match(confidence=round(0.93 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first: str | None = None
        session: _Session | None = None
        for record in records:
            first = first or fingerprint(record.value)
            opened = _opened(record.value)
            if opened is None:
                yield record.reject("not_anthropic_sessions", "the record is no event of a session and holds none")
                continue
            session_id, about, events = opened
            if session is None or (session_id is not None and session.id not in (None, session_id)):
                if session is not None:
                    yield session.fragment(source)
                session = _Session(first, record)
            session.id = session.id or session_id
            session.about |= about
            session.events += events
            if isinstance(record.value, list):
                name = str(record.value[0])
                session.recorded[name] = session.recorded.get(name, 0) + 1
        if session is not None:
            yield session.fragment(source)


def _is_event(value: Any) -> bool:
    kind = as_dict(value).get("type")
    return isinstance(kind, str) and kind.startswith(_KINDS)


def _opened(value: Any) -> tuple[str | None, dict[str, Any], list[dict[str, Any]]] | None:
    """(session id, what is said of the session, events) of a record in any of the shapes."""
    if _is_event(value):
        return first_text(value, "session_id"), {}, [value]
    if isinstance(value, list) and value and "sessions" in (as_text(value[0]) or ""):
        return _recorded(value)
    given = as_dict(value)
    if given.get("type") == "session" and isinstance(given.get("agent"), dict):
        return first_text(given, "id"), given, []
    events = as_list(given.get("data")) or as_list(given.get("events"))
    if events and all(map(_is_event, events)):
        rest = {key: item for key, item in given.items() if key not in ("data", "events")}
        return first_text(given, "session_id"), rest, events
    return None


def _recorded(value: list[Any]) -> tuple[str | None, dict[str, Any], list[dict[str, Any]]] | None:
    """A recorded call: its name, then what went in or came out, the session's id perhaps in front."""
    for item in value[1:]:
        parts = item if isinstance(item, list) else [item]
        session_id = next((part for part in parts if isinstance(part, str)), None)
        found = [opened for part in parts if isinstance(part, dict) and (opened := _opened(part)) is not None]
        if found:
            return session_id or found[0][0], found[0][1], found[0][2]
    return None


@dataclass(slots=True)
class _Session:
    """A session whose events are being gathered."""

    first: str
    begun: Record
    id: str | None = None
    about: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)  # how often which call of the client was recorded

    def fragment(self, source: Source) -> Fragment:
        agent = as_dict(self.about.get("agent"))
        native_id = self.id or fingerprint(self.events)
        this = trajectory_id("anthropic_sessions", native_id, self.first)
        rows = _Rows(Conversation(this))
        if agent.get("system") is not None:
            system = read_content(agent, "system")
            rows.conversation.add(role="system", content=system.text, content_state=system.state, parts=system.parts)
        for event in self._distinct():
            rows.add(event)
        steps, tool_calls = rows.conversation.finish()
        metadata = as_dict(self.about.get("metadata"))
        known = ("id", "metadata", "agent", "type")
        rest = {key: item for key, item in self.about.items() if key not in known and item not in (None, [], {})}
        about = {key: item for key, item in agent.items() if key not in ("system", "tools", "name")}
        rest |= {"agent": about} if about else {}
        rest |= {"events": rows.other} if rows.other else {}
        rest |= {"recorded": self.recorded} if self.recorded else {}
        trajectory = Trajectory(
            trajectory_id=this,
            content_sha256="",
            native_id=native_id,
            session_id=self.id,
            source_id=source.source_id,
            source_record_ix=self.begun.ix,
            format="anthropic_sessions",
            agent_name=as_text(agent.get("name")),
            agent_version=as_text(agent.get("version")),
            model=as_text(agent.get("model")) or first_text(as_dict(agent.get("model")), "id"),
            provider="anthropic",
            tools=dumps(agent["tools"]) if agent.get("tools") else None,
            n_steps=len(steps),
            end_reason=_ENDS.get(rows.stopped or "", "agent_error" if rows.error else None),
            end_reason_raw=rows.stopped,
            error_type=first_text(rows.error, "type"),
            error_message=first_text(rows.error, "message"),
            content_complete=True,
            quality_flags=self.begun.repairs or None,
            metadata=dumps(metadata) if metadata else None,
            extra=dumps(rest) if rest else None,
        )
        return Fragment(key=this, record_ix=self.begun.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls)

    def _distinct(self) -> list[dict[str, Any]]:
        """Each event once: what was sent has no id yet, and comes back with one."""
        back = {_said(event) for event in self.events if event.get("id") is not None}
        seen: set[str] = set()
        found = []
        for event in self.events:
            event_id = as_text(event.get("id"))
            if event_id in seen or (event_id is None and _said(event) in back):
                continue
            seen |= {event_id} if event_id is not None else set()
            found.append(event)
        return found


def _said(event: Mapping[str, Any]) -> str:
    return fingerprint([event.get("type"), event.get("content"), *(event.get(key) for key in _RESULT_OF)])


class _Rows:
    """The events of one session, in order."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.other: list[Any] = []  # starts and ends of requests and of the session's work
        self.stopped: str | None = None
        self.error: dict[str, Any] = {}
        self._answer: int | None = None  # the first row that the agent said in the request that runs

    def add(self, event: Mapping[str, Any]) -> None:
        kind = str(event["type"])
        if kind in _CALLS:
            self._call(event, kind)
        elif kind in _RESULTS:
            self._result(event)
        elif kind in _SAID:
            self._message(event, _SAID[kind])
        elif kind.startswith(("session.", "span.")):
            self._status(event, kind)
        else:
            self._row(event, role="event", content_state="missing", raw=dumps(event))

    def _row(self, event: Mapping[str, Any], **columns: Any) -> int:
        time = read_time(event.get("processed_at"))
        rest = {key: item for key, item in event.items() if key not in _EVENT and item is not None}
        return self.conversation.add(
            **{
                "native_id": as_text(event.get("id")),
                "role_raw": as_text(event.get("type")),
                "ts": time.at,
                "ts_raw": time.raw,
                "extra": dumps(rest) if rest else None,
                **columns,
            }
        )

    def _message(self, event: Mapping[str, Any], role: str) -> int:
        content = read_content(event)
        said = {"content": content.text, "content_state": content.state, "parts": content.parts}
        if event["type"] == "agent.thinking":
            said = {"reasoning": content.text, "content_state": "missing", "reasoning_opaque": content.parts}
        step_ix = self._row(event, role=role, sampled=True if role == "assistant" else None, **said)
        if role == "assistant":
            self._answer = step_ix if self._answer is None else self._answer
        return step_ix

    def _call(self, event: Mapping[str, Any], kind: str) -> None:
        step_ix = self._row(event, role="assistant", content_state="missing", sampled=True)
        self._answer = step_ix if self._answer is None else self._answer
        self.conversation.call(
            step_ix,
            call_id=as_text(event.get("id")),
            name=as_text(event.get("name")),
            kind=_CALLS[kind],
            arguments=event.get("input"),
        )

    def _result(self, event: Mapping[str, Any]) -> None:
        content, failed = read_content(event), event.get("is_error")
        step_ix = self._row(
            event,
            role="tool",
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=first_text(event, *_RESULT_OF),
        )
        self.conversation.result(step_ix, is_error=failed if isinstance(failed, bool) else None)

    def _status(self, event: Mapping[str, Any], kind: str) -> None:
        self.other.append(event)
        if kind == "span.model_request_start":
            self._answer = None
        if kind == "span.model_request_end" and self._answer is not None:
            self._spent(event, self._answer)
        if "stop_reason" in event:
            self.stopped = as_text(event["stop_reason"]) or first_text(as_dict(event["stop_reason"]), "type")
        if kind == "session.error":
            self.error = as_dict(event.get("error"))

    def _spent(self, event: Mapping[str, Any], answer: int) -> None:
        usage, call_id = anthropic_usage(event.get("model_usage")), as_text(event.get("model_request_start_id"))
        for step_ix in range(answer, len(self.conversation.steps)):
            step = self.conversation.steps[step_ix]
            if step.role == "assistant":
                self.conversation.steps[step_ix] = replace(step, llm_call_id=call_id)
        self.conversation.steps[answer] = replace(
            self.conversation.steps[answer],
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
        )
