"""Events of OpenHands 0.x to rows: actions of the user and the agent, and observations.

An action that the model asked for has `tool_call_metadata` with the whole response: its calls, verbatim, its usage and
id. The response stands at each action and observation that came of it, so it is taken once. An action without it is a
call by its name with its arguments. An observation answers the action that is its `cause`, else the last one.

Not covered: packings and order (`openhands.py`), runs of evaluations (`openhands_output.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.messages import read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_int, as_int32, as_list, as_text, fingerprint
from flywheel.formats.session import Session, failure, text_of, usage_columns
from flywheel.formats.usage import openai_usage

_SOURCES = ("agent", "user", "environment")
_SAYS = {"message", "system"}
_STATES = {"finished": "completed", "stopped": "user_abort", "error": "agent_error", "rejected": "agent_error"}
_EVENT = {
    "id", "timestamp", "source", "action", "observation", "args", "extras", "content", "cause", "tool_call_metadata",
}  # fmt: skip
_SILENT = {"null", "agent_state_changed", "recall", "loop_detection_alert"}
_NO_CALLS = {"change_agent_state", "null", "recall", "condensation", "condensation_request", "start", "pause", "resume"}
_FAILED = ("error", "agent_error")


def is_event(event: Mapping[str, Any]) -> bool:
    """Whether it is an event of these versions: an action or an observation with where it came from, or its parts."""
    kind = event.get("action", event.get("observation"))
    if not isinstance(kind, str) or "kind" in event or ("action" in event and "observation" in event):
        return False
    if event.get("source") in _SOURCES:
        return "args" in event or "content" in event or "extras" in event
    return (
        "role" not in event
        and {
            "action_risk",
            "is_confirmed",
            "wait_for_response",
            "command_id",
            "exit_code",
            "thought",
            "keep_prompt",
            "kernel_init_code",
            "outputs",
            "code",
        }
        & event.keys()
        != set()
    )


def add_events(session: Session, events: list[dict[str, Any]]) -> None:
    """Append the events to a session, in order."""
    writer = _Writer(session)
    for event in events:
        writer.add(event)


class _Writer:
    """The events of one conversation."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.responses: dict[str, int] = {}  # id of a response -> its row
        self.seen: set[str] = set()
        self.callers: dict[str, str] = {}  # id of an action -> its call
        self.last_call: str | None = None
        self.ended = "end_reason" in session.columns

    def add(self, event: dict[str, Any]) -> None:
        session, first = self.session, len(self.session.steps)
        if "args" not in event and "extras" not in event:  # before 0.9 they stood in the event itself
            key = "args" if "action" in event else "extras"
            inner = {name: item for name, item in event.items() if name not in _EVENT}
            event = {name: item for name, item in event.items() if name in _EVENT} | {key: inner}
            event |= {"args": {"content": event["content"], **inner}} if key == "args" and "content" in event else {}
        if isinstance(event.get("action"), str):
            self._action(event, event["action"], as_dict(event.get("args")))
        elif isinstance(event.get("observation"), str):
            self._observation(event, event["observation"], as_dict(event.get("extras")))
        else:
            session.event(None, event)
        ix = first if len(session.steps) > first else None
        if ix is not None:
            native = as_text(event.get("id"))
            session.set(ix, native_id=session.steps[ix].native_id or native, native_ix=as_int32(event.get("id")))
            session.stamp(ix, event.get("timestamp"))

    def _rest(self, event: Mapping[str, Any], content: str | None) -> dict[str, Any]:
        """What an event says besides; its `message` is made from the rest, so it is kept where it differs."""
        rest = {key: item for key, item in event.items() if key not in _EVENT and item is not None}
        if rest.get("message") in ("", content):
            rest.pop("message", None)
        return rest

    # --- Actions ----------------------------------------------------------------------------------------------

    def _action(self, event: Mapping[str, Any], kind: str, args: Mapping[str, Any]) -> None:
        session, source = self.session, as_text(event.get("source")) or "agent"
        given = event.get("tool_call_metadata")
        metadata = as_dict(given)
        if metadata:
            self._asked(event, kind, args, metadata)
        elif kind in _SAYS:
            self._said(event, kind, args, source)
        elif kind in _NO_CALLS or source == "environment":
            told = {key: item for key, item in event.items() if key != "timestamp"}
            session.event(kind, told, args.get("summary"), is_synthetic=True)
        else:
            self._called(event, kind, args, source)

    def _said(self, event: Mapping[str, Any], kind: str, args: Mapping[str, Any], source: str) -> None:
        session, content = self.session, read_content(args)
        role = "system" if kind == "system" else "assistant" if source == "agent" else "user"
        rest = {key: item for key, item in args.items() if key not in ("content", "tools")}
        ix = session.conversation.add(
            role=role,
            role_raw=source,
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            sampled=True if role == "assistant" else None,
            is_synthetic=True if source == "environment" else None,
        )
        if kind == "system" and as_list(args.get("tools")):
            session.columns["tools"] = dumps(args["tools"])
        session.more(ix, {"action": kind, **self._rest(event, content.text)} | ({"args": rest} if rest else {}))
        if not self.ended:
            session.go_on()

    def _called(self, event: Mapping[str, Any], kind: str, args: Mapping[str, Any], source: str) -> None:
        """An action of its own: the model wrote it in words, or the user ran it."""
        session, thought = self.session, args.get("thought")
        rest = {key: item for key, item in args.items() if key != "thought"}
        ix = session.conversation.add(
            role="assistant" if source == "agent" else "user",
            role_raw=source,
            content=text_of(thought),
            content_state="missing" if thought is None else "present",
            sampled=True if source == "agent" else None,
        )
        session.conversation.call(ix, call_id=None, name=kind, kind="builtin", arguments=rest)
        self._register(event, f"call_{ix}_0")
        session.more(ix, self._rest(event, text_of(thought)))
        self._finished(kind, event)

    def _asked(self, event: Mapping[str, Any], kind: str, args: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """An action that a call of a response asked for."""
        session, response = self.session, as_dict(metadata.get("model_response"))
        response_id, call_id = as_text(response.get("id")), as_text(metadata.get("tool_call_id"))
        name = response_id or fingerprint(response or dict(event))
        if name not in self.responses:
            self._answer(name, response, call_id, as_text(metadata.get("function_name")) or kind, args)
        ix = self.responses[name]
        self._register(event, call_id)
        shown = {"action": kind, "args": self._new(args, ix), **self._rest(event, session.steps[ix].content)}
        shown |= {"event_id": event.get("id"), "timestamp": event.get("timestamp")}
        more = {
            key: item
            for key, item in metadata.items()
            if key not in ("model_response", "tool_call_id", "function_name", "total_calls_in_response")
        }
        session.patch(call_id, extra={"event": shown | more})
        self._finished(kind, event)

    def _new(self, args: Mapping[str, Any], ix: int) -> dict[str, Any]:
        """The arguments of an action that are not just what the response's words say."""
        return {key: item for key, item in args.items() if item is not None and item != self.session.steps[ix].content}

    def _answer(
        self, name: str, response: Mapping[str, Any], call_id: str | None, tool: str, args: Mapping[str, Any]
    ) -> None:
        session = self.session
        choice = as_dict(next(iter(as_list(response.get("choices"))), None))
        message, usage = as_dict(choice.get("message")), as_dict(response.get("usage"))
        content, finish = read_content(message), as_text(choice.get("finish_reason"))
        text = content.text if message else text_of(args.get("thought"))
        ix = session.conversation.add(
            role="assistant",
            role_raw="agent",
            llm_call_id=as_text(response.get("id")),
            content=text,
            content_state=content.state if message else "missing" if text is None else "present",
            parts=content.parts,
            reasoning=as_text(message.get("reasoning_content")),
            sampled=True,
            model=as_text(response.get("model")),
            finish_reason=finish,
            finish_reason_raw=finish,
            **usage_columns(openai_usage(usage)),
        )
        self.responses[name] = ix
        calls = [as_dict(call) for call in as_list(message.get("tool_calls"))]
        known = {as_text(call.get("id")) for call in calls}
        for call in calls:
            body = as_dict(call.get("function"))
            self._call(ix, as_text(call.get("id")), as_text(body.get("name")), body.get("arguments"))
        if call_id not in known:
            self._call(ix, call_id, tool, {key: item for key, item in args.items() if key != "thought"})
        rest = {
            key: item for key, item in response.items() if key not in ("id", "model", "choices") and item is not None
        }
        kept = {
            key: item
            for key, item in message.items()
            if key not in ("role", "content", "tool_calls", "reasoning_content") and item is not None
        }
        session.more(ix, {"response": rest | ({"message": kept} if kept else {})})

    def _call(self, ix: int, call_id: str | None, name: str | None, arguments: Any) -> None:
        self.session.conversation.call(ix, call_id=call_id, name=name, kind="function", arguments=arguments)

    def _register(self, event: Mapping[str, Any], call_id: str | None) -> None:
        self.last_call = call_id
        event_id = as_text(event.get("id"))
        if event_id is not None and call_id is not None:
            self.callers[event_id] = call_id

    def _finished(self, kind: str, event: Mapping[str, Any]) -> None:
        if self.ended:
            return
        self.session.go_on()
        if kind in ("finish", "reject"):
            reason = "completed" if kind == "finish" else "agent_error"
            self.session.columns |= {"end_reason": reason, "end_reason_raw": kind}

    # --- Observations -----------------------------------------------------------------------------------------

    def _observation(self, event: Mapping[str, Any], kind: str, extras: Mapping[str, Any]) -> None:
        session, cause = self.session, as_text(event.get("cause"))
        metadata = as_dict(event.get("tool_call_metadata"))
        call_id = as_text(metadata.get("tool_call_id")) or self.callers.get(cause or "")
        if call_id is None and cause is None and "id" not in event:
            call_id = self.last_call
        if kind in _SILENT and not metadata:
            told = {key: item for key, item in event.items() if key != "timestamp"}
            session.event(kind, told, event.get("content") or None, is_synthetic=True)
            self._state(extras)
            return
        content = read_content(event)
        role = "tool" if call_id is not None else "event" if event.get("source") == "environment" else "tool"
        ix = session.conversation.add(
            role=role,
            role_raw=kind,
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=call_id,
        )
        rest = self._rest(event, content.text)
        session.more(
            ix, rest | ({"extras": dict(extras)} if extras else {}) | ({"cause": event["cause"]} if cause else {})
        )
        if role == "tool":
            self._went(ix, event, kind, extras, call_id)

    def _went(
        self, ix: int, event: Mapping[str, Any], kind: str, extras: Mapping[str, Any], call_id: str | None
    ) -> None:
        """How the call went."""
        session, rejected = self.session, kind == "user_rejected"
        metadata = as_dict(extras.get("metadata"))
        code = as_int(extras.get("exit_code", metadata.get("exit_code")))
        succeeded = event.get("success")
        failed = (
            True if kind in _FAILED or rejected or code else None if not isinstance(succeeded, bool) else not succeeded
        )
        failed = False if failed is None and code == 0 else failed
        if call_id is not None or session.steps[ix].content is not None:
            session.conversation.result(ix, is_error=failed)
        error = as_text(extras.get("error_id")) or ("error" if kind in _FAILED else None)
        columns = {"error_type": error} if error else failure(code) if code else {}
        columns = {"error_type": "timeout"} if code == -1 and "timed out" in str(metadata.get("suffix")) else columns
        if rejected:
            columns = {"result_state": "rejected", "error_type": "user_rejected"}
        session.patch(call_id, **columns)

    def _state(self, extras: Mapping[str, Any]) -> None:
        state, reason = as_text(extras.get("agent_state")), text_of(extras.get("reason")) or None
        if state is None or self.ended:
            return
        self.session.go_on()
        if state in _STATES:
            self.session.columns |= {"end_reason": _STATES[state], "end_reason_raw": state}
            if state == "error":
                self.session.fail(state, reason, "agent_error")
                if reason and "maximum iteration" in reason:
                    self.session.columns["end_reason"] = "max_turns"
