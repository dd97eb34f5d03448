"""Events of OpenHands' agent SDK (1.x) to rows.

Actions with one `llm_response_id` came of one response: one assistant row with their calls. Newer events
name the event before them: a fork makes a branch. Tokens and costs come as sums (`openhands_usage.py`).
A result that comes twice for one call is kept and flagged.

Not covered: packings and order (`openhands.py`), the base state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.messages import read_content
from flywheel.formats.openai_messages import add_message
from flywheel.formats.openhands_usage import CONDENSER, STATES, Meter
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_int, as_list, as_text
from flywheel.formats.session import Session, failure, text_of

_KINDS = {
    "SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "UserRejectObservation",
    "Condensation", "CondensationRequest", "CondensationSummaryEvent", "ConversationStateUpdateEvent", "PauseEvent",
    "ConversationErrorEvent", "LLMCompletionLogEvent", "TokenEvent", "InterruptEvent", "HookExecutionEvent",
}  # fmt: skip
_ACTION = {
    "id", "timestamp", "source", "kind", "thought", "reasoning_content", "thinking_blocks", "tool_name", "tool_call_id",
    "tool_call", "llm_response_id", "action", "parent_id",
}  # fmt: skip
_RESULT = {
    "id",
    "timestamp",
    "source",
    "kind",
    "tool_name",
    "tool_call_id",
    "observation",
    "error",
    "rejection_reason",
    "parent_id",
}
_LIMITS = (("MaxIterations", "max_turns"), ("maximum iterations", "max_turns"), ("ContextWindow", "context_overflow"))


def is_event(event: Mapping[str, Any]) -> bool:
    """Whether it is an event of the SDK."""
    kind = event.get("kind")
    return isinstance(kind, str) and (
        kind in _KINDS or (kind.endswith("Event") and {"id", "timestamp"} <= event.keys())
    )


def add_events(session: Session, events: list[dict[str, Any]]) -> None:
    """Append the events to a session, in order."""
    writer = _Writer(session)
    for event in events:
        writer.add(event)
    writer.settle()


class _Writer:
    """The events of one conversation."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.responses: dict[str, int] = {}  # llm_response_id -> its row
        self.calls: dict[str, str] = {}  # id of an action -> its call
        self.meter = Meter(session)
        self.answer: int | None = None  # the last one

    def add(self, event: dict[str, Any]) -> None:
        session, first, kind = self.session, len(self.session.steps), as_text(event.get("kind")) or ""
        if kind == "ActionEvent":
            self._action(event)
        elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            self._result(event, kind)
        elif kind == "MessageEvent":
            self._message(event)
        elif kind == "SystemPromptEvent":
            self._system(event)
        else:
            self._other(event, kind)
        for ix in range(first, len(session.steps)):
            session.set(ix, native_id=session.steps[ix].native_id or as_text(event.get("id")))
        session.stamp(first, event.get("timestamp"))
        self._place(first, event)

    def _place(self, first: int, event: Mapping[str, Any]) -> None:
        """Newer events name the event before them: after a fork it is not the row before."""
        session, name, parent = self.session, as_text(event.get("id")), as_text(event.get("parent_id"))
        if len(session.steps) > first:
            session.place(first, name, parent)
            session.more(first, {} if parent is None or parent in session.rows else {"parent_id": parent})
        elif name is not None and self.answer is not None:
            session.rows[name] = self.answer

    def settle(self) -> None:
        """Tokens that no answer followed belong to the last one."""
        if self.answer is not None:
            self.meter.count(self.answer, *self.meter.due)

    # --- Messages and actions ---------------------------------------------------------------------------------

    def _system(self, event: Mapping[str, Any]) -> None:
        session, tools = self.session, event.get("tools")
        content = read_content({"content": as_dict(event.get("system_prompt")).get("text", event.get("system_prompt"))})
        ix = session.conversation.add(
            role="system", role_raw="SystemPromptEvent", content=content.text, content_state=content.state
        )
        if tools:
            session.columns["tools"] = dumps(tools)
        prompt = {key: item for key, item in as_dict(event.get("system_prompt")).items() if key != "text"}
        rest = self._rest(event, {*_ACTION, "system_prompt", "tools"})
        session.more(ix, rest | ({"system_prompt": prompt} if prompt else {}))

    def _message(self, event: Mapping[str, Any]) -> None:
        session, message = self.session, as_dict(event.get("llm_message"))
        is_answer = (as_text(message.get("role")) or as_text(event.get("source"))) in ("assistant", "agent")
        response_id = as_text(event.get("llm_response_id"))
        given = {key: item for key, item in message.items() if (item is not None and item != []) or key == "content"}
        given["role"] = "assistant" if is_answer else message.get("role") or "user"
        columns = {"sampled": True, "llm_call_id": response_id} if is_answer else {}
        ix = add_message(session.conversation, given, **columns)
        session.set(ix, role_raw="MessageEvent")
        session.more(
            ix, self._rest(event, {"id", "timestamp", "source", "kind", "llm_message", "llm_response_id", "parent_id"})
        )
        session.go_on()
        if is_answer:
            self._answered(ix)
            session.columns["end_reason"] = "completed"

    def _action(self, event: Mapping[str, Any]) -> None:
        session, response_id = self.session, as_text(event.get("llm_response_id"))
        call = as_dict(event.get("tool_call"))
        ix = self.responses.get(response_id or "")
        if ix is None:
            ix = self._begin(event, response_id)
        call_id = as_text(event.get("tool_call_id")) or as_text(call.get("id"))
        arguments = call["arguments"] if "arguments" in call else event.get("action")
        name = as_text(event.get("tool_name")) or as_text(call.get("name"))
        nth = session.steps[ix].n_tool_calls
        shown = self._rest(event, _ACTION) | {"action": event.get("action"), "event_id": event.get("id")}
        shown |= {"timestamp": event.get("timestamp"), "tool_call": self._rest(call, {"id", "name", "arguments"})}
        extra = {key: item for key, item in shown.items() if item not in (None, {}, [])}
        session.conversation.call(ix, call_id=call_id, name=name, kind="function", arguments=arguments, extra=extra)
        made = call_id or f"call_{ix}_{nth}"
        if (event_id := as_text(event.get("id"))) is not None:
            self.calls[event_id] = made
        session.go_on()
        if as_text(as_dict(event.get("action")).get("kind")) == "FinishAction" or name == "finish":
            session.columns |= {"end_reason": "completed", "end_reason_raw": "finish"}

    def _begin(self, event: Mapping[str, Any], response_id: str | None) -> int:
        """The row of a response, at its first action."""
        content = read_content(event, "thought")
        parts = [as_dict(part) for part in as_list(event.get("thought"))]
        plain = all(part.keys() <= {"type", "text", "cache_prompt"} for part in parts)
        opaque = {key: event[key] for key in ("thinking_blocks", "responses_reasoning_item") if event.get(key)}
        ix = self.session.conversation.add(
            role="assistant",
            role_raw="ActionEvent",
            llm_call_id=response_id,
            content=content.text
            if content.text or not content.parts
            else "\n".join(text for part in parts if (text := as_text(part.get("text")))),
            content_state=content.state,
            parts=None if plain and len(parts) < 2 else content.parts,
            reasoning=as_text(event.get("reasoning_content")),
            reasoning_opaque=dumps(opaque) if opaque else None,
            sampled=True,
        )
        if response_id is not None:
            self.responses[response_id] = ix
        self._answered(ix)
        return ix

    def _result(self, event: Mapping[str, Any], kind: str) -> None:
        """A result, an error of the scaffold in its place, or the user's refusal."""
        session, inner = self.session, as_dict(event.get("observation"))
        call_id = as_text(event.get("tool_call_id")) or self.calls.get(as_text(event.get("action_id")) or "")
        said = {"ObservationEvent": inner.get("content", inner.get("output")), "AgentErrorEvent": event.get("error")}
        content = read_content({"content": said.get(kind, event.get("rejection_reason"))})
        ix = session.conversation.add(
            role="tool" if call_id is not None or kind != "ObservationEvent" else "event",
            role_raw=kind,
            name=as_text(event.get("tool_name")),
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=call_id,
        )
        known = {key: item for key, item in inner.items() if key != "content"}
        session.more(ix, self._rest(event, _RESULT) | ({"observation": known} if known else {}))
        session.go_on() if kind != "ObservationEvent" or session.columns.get("end_reason_raw") != "finish" else None
        if session.steps[ix].role != "tool":
            return
        metadata, code = as_dict(inner.get("metadata")), as_int(inner.get("exit_code"))
        code = as_int(metadata.get("exit_code")) if code is None else code
        flag = inner.get("is_error")
        failed = (
            True if kind != "ObservationEvent" or code not in (None, 0) else flag if isinstance(flag, bool) else None
        )
        session.conversation.result(ix, is_error=failed)
        columns = failure(code) if code not in (None, 0) else {}
        columns = {"error_type": "timeout"} if inner.get("timeout") is True else columns
        if kind == "AgentErrorEvent":
            columns = {"error_type": "agent_error"}
            session.set(ix, error_type="agent_error", error_message=text_of(event.get("error")))
        elif kind == "UserRejectObservation":
            columns = {"result_state": "rejected", "error_type": "user_rejected"}
        session.patch(call_id, **columns)

    # --- What is no message -----------------------------------------------------------------------------------

    def _other(self, event: Mapping[str, Any], kind: str) -> None:
        session = self.session
        told = {key: item for key, item in event.items() if key not in ("timestamp", "id")}
        said = text_of(event.get("summary") or event.get("detail") or event.get("error"))
        ix = session.event(kind, told, said, is_synthetic=True)
        if kind == "Condensation":
            session.set(ix, llm_call_id=as_text(event.get("llm_response_id")))
            self.meter.count(ix, CONDENSER)
        elif kind == "ConversationStateUpdateEvent":
            self._state(as_text(event.get("key")), event.get("value"))
        elif kind == "PauseEvent" or kind == "InterruptEvent":
            session.columns |= {"end_reason": "user_abort", "end_reason_raw": kind}
        elif kind == "ConversationErrorEvent":
            name, message = as_text(event.get("code")) or kind, text_of(event.get("detail"))
            session.set(ix, error_type=name, error_message=message)
            session.fail(name, message, "agent_error")
            for words, reason in _LIMITS:
                if words in f"{name} {message}":
                    session.columns["end_reason"] = reason

    def _state(self, key: str | None, value: Any) -> None:
        session = self.session
        if key == "execution_status":
            self._status(as_text(value))
        elif key == "stats":
            self.meter.read(as_dict(as_dict(value).get("usage_to_metrics")))
        elif key == "full_state":
            self._status(as_text(as_dict(value).get("execution_status")))
            self.meter.read(as_dict(as_dict(as_dict(value).get("stats")).get("usage_to_metrics")))
            model = as_text(as_dict(as_dict(as_dict(value).get("agent")).get("llm")).get("model"))
            if model is not None:
                session.columns["model"] = model

    def _status(self, status: str | None) -> None:
        if status in STATES and "error_message" not in self.session.columns:
            self.session.columns |= {"end_reason": STATES[status], "end_reason_raw": status}
        elif status == "running":
            self.session.go_on()

    def _answered(self, ix: int) -> None:
        self.answer = ix
        self.meter.count(ix, *(name for name in self.meter.due if name != CONDENSER))

    @staticmethod
    def _rest(value: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
        return {key: item for key, item in value.items() if key not in known and item is not None and item != []}
