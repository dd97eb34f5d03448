"""What coding agents print when nobody sits at the terminal: streams of events, one a line, of one session.

    Cursor  `--output-format stream-json`   system/init, user, thinking, assistant, tool_call started|completed, result
    Gemini  `--output-format stream-json`   init, message, tool_use, tool_result, error, result
    Droid   `exec --output-format debug`    system/init, message, tool_call, tool_result, error, completion

Pieces of a text are joined to one row; a text that stands in pieces and whole counts once. Tokens stand in the last
event, for the whole run. Any event of another kind is kept as one.

Not covered: Claude Code's stream (`claude_code.py`), Codex' (`codex_exec.py`), OpenCode's (`opencode.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import read_content
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.session import Session, text_of, word
from flywheel.formats.usage import count
from flywheel.records import Fragment, Reject

_EVENT = {"type", "subtype", "session_id", "timestamp", "timestamp_ms"}
_AGENTS = {"cursor": "cursor", "gemini": "gemini-cli", "droid": "droid"}
_FAILED = {"error": "error", "failure": "error", "timeout": "timeout", "rejected": "user_rejected"}


class HeadlessStream:
    """The reader."""

    name = "headless_stream"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        agent = next((found for value in head.values if (found := _agent(as_dict(value)))), None)
        return Match(confidence=0.97, version=agent) if agent else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        run: _Run | None = None
        for record in records:
            event = as_dict(record.value)
            if not word(event.get("type")):
                yield record.reject("not_headless_stream", "the line is no event of a stream")
                continue
            begins = event["type"] == "init" or (event["type"] == "system" and event.get("subtype") == "init")
            if run is None or (begins and run.session.steps and _named(event) != run.session.native_id):
                yield from [] if run is None else [run.fragment()]
                run = _Run(record, source)
            run.add(event)
        if run is not None:
            yield run.fragment()


def _named(event: Mapping[str, Any]) -> str | None:
    return first_text(event, "session_id", "sessionId")


def _agent(event: Mapping[str, Any]) -> str | None:
    """Whose stream an event is of; None for one that says nothing of it."""
    kind, keys = word(event.get("type")), event.keys()
    if kind == "system" and event.get("subtype") == "init" and "uuid" not in keys:
        if "reasoning_effort" in keys:
            return "droid"
        return "cursor" if "apiKeySource" in keys and "tools" not in keys else None
    if kind == "tool_call":
        if isinstance(event.get("tool_call"), dict) and "call_id" in keys:
            return "cursor"
        return "droid" if keys >= {"toolName", "parameters"} else None
    if kind == "thinking" and "session_id" in keys and event.get("subtype") in ("delta", "completed"):
        return "cursor"
    if kind == "completion" and "finalText" in keys:
        return "droid"
    gemini = (kind == "init" and keys >= {"session_id", "model", "timestamp"}) or keys >= {"tool_id", "timestamp"}
    return "gemini" if gemini and kind in ("init", "tool_use", "tool_result") else None


class _Run:
    """The events of one session, in order."""

    def __init__(self, record: Record, source: Source) -> None:
        event, first = as_dict(record.value), fingerprint(record.value)
        native = _named(event)
        key = trajectory_id(HeadlessStream.name, native or first, first)
        self.session = Session(HeadlessStream.name, source, key, native, record.ix)
        self.session.columns["session_id"] = native
        self.agent: str | None = None
        self.thoughts = self.pieces = ""
        self.open: int | None = None  # the row of the answer that is being given
        self.growing = False  # it is: pieces of its text may follow

    def add(self, event: Mapping[str, Any]) -> None:
        session, kind, first = self.session, word(event.get("type")), len(self.session.steps)
        self.agent = self.agent or _agent(event)
        session.counted(":".join(filter(None, (kind, word(event.get("subtype"))))))
        rest = {key: value for key, value in event.items() if key not in _EVENT}
        if kind in ("init", "system"):
            self._begin(event)
        elif kind == "thinking":
            self.thoughts += text_of(event.get("text")) or ""
        elif kind in ("user", "assistant") or (kind == "message" and "role" in event):
            self._message(kind, event, rest)
        elif kind in ("tool_call", "tool_use"):
            self._tool(event, rest)
        elif kind == "tool_result":
            self._result(as_text(event.get("tool_id")) or as_text(event.get("id")), event, rest)
        elif kind in ("result", "completion"):
            self._end(kind, event, rest)
        else:
            ix = session.event(kind, dict(event), event.get("message"))
            session.set(
                ix, **({"error_type": kind, "error_message": text_of(event.get("message"))} if kind == "error" else {})
            )
        session.stamp(first, event.get("timestamp", event.get("timestamp_ms")))

    def fragment(self) -> Fragment:
        """The rows; what was still being said when the stream broke off is kept, cut short."""
        if self.pieces or self.thoughts:
            half = self.pieces or None
            self.session.set(self._answer(half, {}), content_state="missing" if half is None else "truncated")
            self.session.columns["content_complete"] = False
            self.session.flags["cut_off"] = None
        self.session.columns |= {"agent_name": _AGENTS.get(self.agent or ""), "format_version": self.agent}
        return self.session.fragment()

    def _begin(self, event: Mapping[str, Any]) -> None:
        session = self.session
        session.event(word(event.get("subtype")) or "init", dict(event), is_synthetic=True)
        session.columns.setdefault("model", as_text(event.get("model")))

    def _answer(self, text: str | None, rest: Mapping[str, Any], parts: str | None = None) -> int:
        """A row of the model, with what it thought before."""
        ix = self.session.conversation.add(
            role="assistant",
            role_raw="assistant",
            content=text,
            content_state="missing" if text is None else "present",
            parts=parts,
            reasoning=self.thoughts or None,
            sampled=True,
            model=self.session.columns.get("model"),
        )
        self.thoughts = self.pieces = ""
        self.open = ix
        self.session.more(ix, rest)
        self.session.go_on()
        return ix

    def _message(self, kind: str, event: Mapping[str, Any], rest: dict[str, Any]) -> None:
        message = as_dict(event.get("message")) or event
        role = word(message.get("role")) or kind
        content = read_content(message, "text" if "text" in message and "content" not in message else "content")
        rest = {key: value for key, value in rest.items() if key not in ("message", "role", "content", "text", "delta")}
        if message is not event:
            told = {key: value for key, value in message.items() if key not in ("role", "content", "text")}
            rest |= {"message": told} if told else {}
        if role != "assistant":
            self.open, self.growing = None, False
            ix = self.session.conversation.add(
                role=role if role in ("user", "system") else "event",
                role_raw=role,
                native_id=as_text(event.get("id")),
                content=content.text,
                content_state=content.state,
                parts=content.parts,
            )
            self.session.more(ix, {key: value for key, value in rest.items() if key != "id"})
        elif self.agent == "cursor" and "timestamp_ms" in event and "model_call_id" not in event:
            self.pieces += content.text or ""  # the whole text follows
        elif event.get("delta") is True and self.growing and self.open is not None:
            step = self.session.steps[self.open]
            self.session.set(self.open, content=(step.content or "") + (content.text or ""))
        else:
            self._answer(content.text, rest, content.parts)
            self.growing = event.get("delta") is True

    def _tool(self, event: Mapping[str, Any], rest: dict[str, Any]) -> None:
        """A call, which Cursor tells again when it is done, with its result."""
        call_id = first_text(event, "call_id", "tool_id", "id", "toolCallId")
        name, kind, arguments, result = _call(event)
        if call_id is None or call_id not in self.session.rows:
            if self.open is None or self.thoughts or self.pieces:
                self._answer(self.pieces or None, {})
            self.growing = False
            ix = self.open or 0
            told = {key: rest[key] for key in ("messageId", "model_call_id") if key in rest}
            self.session.conversation.call(ix, call_id=call_id, name=name, kind=kind, arguments=arguments, extra=told)
            if call_id is not None:
                self.session.rows[call_id] = ix
        elif call_id is not None and arguments is not None:
            self.session.patch(call_id, extra={"args_when_done": arguments})
        if event.get("subtype") == "completed":
            self._result(call_id, as_dict(result), {"result": result})

    def _result(self, call_id: str | None, told: Mapping[str, Any], rest: dict[str, Any]) -> None:
        session, self.open, self.growing = self.session, None, False
        kind = next((key for key in ("success", *_FAILED) if key in told and "status" not in told), None)
        if kind is not None and "isError" not in told:  # Cursor's: what became of it is the only key
            said, failed = told[kind], _FAILED.get(kind)
        else:
            failed = "error" if told.get("status") == "error" or told.get("isError") is True else None
            said = next((told[key] for key in ("output", "value", "error") if told.get(key) is not None), None)
        body = as_dict(said)
        text = (
            said
            if isinstance(said, str)
            else first_text(body, "content", "errorMessage", "message", "reason", "stdout")
        )
        ix = session.conversation.add(
            role="tool",
            role_raw="tool_result",
            content=text if text is not None else text_of(said),
            content_state="missing" if said is None else "present",
            tool_call_id=call_id,
        )
        session.more(
            ix,
            {
                key: value
                for key, value in rest.items()
                if not (value is said and isinstance(said, str)) and key not in ("id", "tool_id")
            },
        )
        session.conversation.result(ix, is_error=failed is not None)
        if failed is not None:
            columns: dict[str, Any] = {"error_type": failed}
            session.patch(call_id, **columns | ({"result_state": "rejected"} if failed == "user_rejected" else {}))

    def _end(self, kind: str, event: Mapping[str, Any], rest: dict[str, Any]) -> None:
        """How the run ended and what it used."""
        session, usage = self.session, as_dict(event.get("usage")) or as_dict(event.get("stats"))
        raw = first_text(event, "subtype", "status") or kind
        session.columns |= {"end_reason_raw": raw, "end_reason": "completed"}
        if event.get("is_error") is True or raw in ("error", "failure"):
            error = event.get("error")
            session.fail(raw, text_of(as_dict(error).get("message") or error or event.get("result")), "agent_error")
        duration = as_float(event.get("duration_ms", event.get("durationMs", usage.get("duration_ms"))))
        session.columns |= _tokens(usage) | ({} if duration is None else {"duration_ms": duration})
        rest |= {key: event[key] for key in ("timestamp", "timestamp_ms") if key in event}
        said = "".join(step.content or "" for step in session.steps if step.role == "assistant")
        final = text_of(event.get("result", event.get("finalText")))
        repeated = final is not None and final.strip() and final.strip() in said
        session.extra[kind] = {
            key: value for key, value in rest.items() if not (repeated and key in ("result", "finalText"))
        }


def _call(event: Mapping[str, Any]) -> tuple[str | None, str, Any, Any]:
    """(name, kind, arguments, result) of a call."""
    packed = event.get("tool_call")
    if not isinstance(packed, dict):
        return first_text(event, "tool_name", "toolName"), "function", event.get("parameters"), None
    key = next((key for key, value in packed.items() if isinstance(value, dict)), "function")
    body = as_dict(packed.get(key))
    if key == "function":
        return as_text(body.get("name")), key, body.get("arguments"), packed.get("result", body.get("result"))
    args = body.get("args")
    own = first_text(as_dict(args), "toolName", "name") if key == "mcpToolCall" else None
    return own or key.removesuffix("ToolCall"), key, args, body.get("result")


def _tokens(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Cursor's and Droid's buckets are disjoint; Gemini's input has what was cached, its total the thoughts too."""
    if "input_tokens" in usage and "total_tokens" in usage:
        given, total = count(usage.get("input_tokens")), count(usage.get("total_tokens"))
        spoken = count(usage.get("output_tokens"))
        thought = max((total or 0) - (given or 0) - (spoken or 0), 0)
        return {
            "input_tokens": given,
            "cache_read_tokens": count(usage.get("cached")),
            "output_tokens": None if spoken is None else spoken + thought,
            "reasoning_tokens": thought or None,
        }
    buckets = [
        (("inputTokens", "input_tokens"), "fresh"),
        (("cacheReadTokens", "cacheReadInputTokens", "cache_read_input_tokens"), "read"),
        (("cacheWriteTokens", "cacheCreationInputTokens", "cache_creation_input_tokens"), "write"),
        (("outputTokens", "output_tokens"), "out"),
    ]
    found = {name: next((count(usage[key]) for key in keys if key in usage), None) for keys, name in buckets}
    given_all = [found[name] for name in ("fresh", "read", "write") if found[name] is not None]
    return {
        "input_tokens": sum(number for number in given_all if number is not None) if given_all else None,
        "cache_read_tokens": found["read"],
        "cache_write_tokens": found["write"],
        "output_tokens": found["out"],
    }
