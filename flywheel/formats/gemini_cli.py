"""Gemini CLI: chat recordings of `~/.gemini/tmp/<project>/chats`, one document (to version 0.3x) or JSON lines.

    {sessionId, projectHash, startTime, messages: [...]}                   a document
    {sessionId, projectHash, ...} {id, type, content, ...} {$set} {$rewindTo}     lines: head, messages, changes

A message that is written again with the same id takes the earlier one's place. A rewind begins a branch: what was
taken back stays. Calls stand in the model's message with their results. Tokens: input includes what was cached;
thoughts are counted beside the output and tool prompts beside the input, so they are added.
Qwen Code and other forks write the same.

A checkpoint (`/chat save`) is a bare history of the API: contents with `functionCall` and `functionResponse` parts.

Not covered: logs.json, which has the prompts only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.gemini_contents import is_checkpoint, is_content, messages_of
from flywheel.formats.messages import read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import Session, failure, text_of, usage_columns, word
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count
from flywheel.records import Fragment, Reject

_TYPES = {"user", "gemini", "info", "error", "warning", "qwen", "model"}
_ANSWERS = {"gemini", "qwen", "model"}
_MESSAGE = {"id", "type", "timestamp", "content", "toolCalls", "thoughts", "model"}
_CALL = {"id", "name", "args", "result", "timestamp"}
_EXIT = re.compile(r"^Exit Code: (-?\d{1,5})$", re.MULTILINE)
_STATES = {"error": "error", "cancelled": "rejected"}


class GeminiCli:
    """The reader."""

    name = "gemini_cli"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        values = [as_dict(value) for value in head.values]
        if values and (all(map(is_content, values)) if head.in_array else is_checkpoint(values[0])):
            return Match(confidence=0.9, version="checkpoint", unit="document")
        if any(_is_head(value) for value in values):
            return Match(confidence=0.95)
        typed = [
            value for value in values if word(value.get("type")) in _TYPES and "id" in value and "content" in value
        ]
        return Match(confidence=0.6) if typed and len(typed) == len(values) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        chat: _Chat | None = None
        for record in records:
            value = as_dict(record.value)
            if (saved := messages_of(record.value)) is not None:
                yield from _read_checkpoint(saved, record, source)
                continue
            if not (_is_head(value) or value.keys() & {"$set", "$rewindTo"} or ("id" in value and "type" in value)):
                yield record.reject("not_gemini_cli", "the record is no recording and no line of one")
                continue
            if chat is None or (_is_head(value) and as_text(value.get("sessionId")) != chat.session.native_id):
                yield from [] if chat is None else chat.fragments()
                chat = _Chat(_begin(record, value, source))
            chat.add(value)
        if chat is not None:
            yield from chat.fragments()


def _read_checkpoint(saved: list[dict[str, Any]], record: Record, source: Source) -> Iterator[Fragment | Reject]:
    """A history names no session: it is known by how it begins, which stays when the chat is saved again."""
    document = as_dict(record.value)
    first = fingerprint((document["history"] if document else record.value)[:3])
    session = Session(GeminiCli.name, source, trajectory_id(GeminiCli.name, first, first), None, record.ix)
    session.columns["agent_name"] = "gemini-cli"
    chat = _Chat(session)
    session.metadata |= {key: item for key, item in document.items() if key != "history"}
    for message in saved:
        chat.add(message)
    yield from chat.fragments()


def _is_head(value: Mapping[str, Any]) -> bool:
    return "sessionId" in value and ("projectHash" in value or ("startTime" in value and "messages" in value))


def _begin(record: Record, value: Mapping[str, Any], source: Source) -> Session:
    native, first = as_text(value.get("sessionId")), fingerprint(record.value)
    session = Session(GeminiCli.name, source, trajectory_id(GeminiCli.name, native or first, first), native, record.ix)
    session.columns |= {"session_id": native, "agent_name": "gemini-cli"}
    return session


class _Chat:
    """One recording: its messages, the latest of each id, in the order in which they first came."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.messages: dict[str, tuple[Mapping[str, Any], str | None]] = {}  # id -> message, id of the one it follows
        self.last: str | None = None

    def add(self, value: Mapping[str, Any]) -> None:
        if "$rewindTo" in value:
            target = as_text(value["$rewindTo"]) or ""
            self.session.extra.setdefault("rewinds", []).append(value["$rewindTo"])
            self.last = self.messages[target][1] if target in self.messages else None
        elif "$set" in value or _is_head(value):
            self._describe(as_dict(value.get("$set")) if "$set" in value else value)
        else:
            self._message(value)

    def _describe(self, value: Mapping[str, Any]) -> None:
        for message in as_list(value.get("messages")):
            self._message(as_dict(message))
        self.session.metadata |= {key: item for key, item in value.items() if key not in ("messages", "sessionId")}

    def _message(self, message: Mapping[str, Any]) -> None:
        name = as_text(message.get("id")) or f"\0{len(self.messages)}"
        if name in self.messages:
            self.messages[name] = (message, self.messages[name][1])
        else:
            self.messages[name] = (message, self.last)
        self.last = name

    def fragments(self) -> Iterator[Fragment]:
        session = self.session
        for name, (message, parent) in self.messages.items():
            first = len(session.steps)
            self._add(message)
            session.stamp(first, message.get("timestamp"))
            session.place(first, name, parent, is_root=parent is None)
        session.columns |= {
            "started_at": read_time(session.metadata.get("startTime")).at,
            "ended_at": read_time(session.metadata.get("lastUpdated")).at,
        }
        if session.steps:
            yield session.fragment()

    def _add(self, message: Mapping[str, Any]) -> None:
        session, kind, content = self.session, word(message.get("type")), read_content(message)
        text, state, parts = content.text, content.state, content.parts
        if isinstance(message.get("content"), list):  # parts of the API: {text}, {inlineData}, ...
            pieces = [as_dict(part) for part in message["content"]]
            text = "\n".join(part["text"] for part in pieces if isinstance(part.get("text"), str))
            parts = None if len(pieces) == 1 and pieces[0].keys() == {"text"} else parts
        rest = {key: item for key, item in message.items() if key not in _MESSAGE}
        role = "assistant" if kind in _ANSWERS else "user" if kind == "user" else "event"
        ix = session.conversation.add(
            native_id=as_text(message.get("id")),
            role=role,
            role_raw=kind or None,
            content=text,
            content_state=state,
            parts=parts,
            extra=dumps(rest) if rest else None,
            **(self._said(message) if role == "assistant" else {}),
        )
        if role == "assistant":
            session.go_on()
            self._calls(ix, message)
            if not as_list(message.get("toolCalls")):
                session.columns["end_reason"] = "completed" if text else None
        elif role == "user":
            session.go_on()
        elif kind == "error":
            session.set(ix, error_type="error", error_message=text)
            session.fail("error", text)
        elif kind == "info" and "cancelled" in (text or "").lower():
            session.columns |= {"end_reason": "user_abort", "end_reason_raw": text}

    def _said(self, message: Mapping[str, Any]) -> dict[str, Any]:
        thoughts, tokens = as_list(message.get("thoughts")), as_dict(message.get("tokens"))
        lines = []
        for thought in map(as_dict, thoughts):
            lines.append(": ".join(part for key in ("subject", "description") if (part := as_text(thought.get(key)))))
        return {
            "reasoning": "\n".join(filter(None, lines)) or None,
            "reasoning_opaque": dumps(thoughts) if thoughts else None,
            "sampled": True,
            "model": as_text(message.get("model")),
            **usage_columns(_usage(tokens)),
        }

    def _calls(self, ix: int, message: Mapping[str, Any]) -> None:
        calls = [as_dict(call) for call in as_list(message.get("toolCalls"))]
        for call in calls:
            self.session.conversation.call(
                ix,
                call_id=as_text(call.get("id")),
                name=as_text(call.get("name")),
                kind="function",
                arguments=call.get("args"),
                extra={key: item for key, item in call.items() if key not in _CALL},
            )
        for nth, call in enumerate(calls):
            self._result(ix, nth, call)

    def _result(self, ix: int, nth: int, call: Mapping[str, Any]) -> None:
        session, state, result = self.session, word(call.get("status")), call.get("result")
        call_id, time = as_text(call.get("id")) or f"call_{ix}_{nth}", read_time(call.get("timestamp"))
        session.patch(call_id, ended_at=time.at)
        if result is None and state not in _STATES:
            session.patch(call_id, extra={"timestamp": call.get("timestamp")})
            return
        text, error = _said_by(result)
        shown = session.conversation.add(
            role="tool",
            role_raw="functionResponse",
            name=as_text(call.get("name")),
            content=text,
            content_state="null" if text is None else "present",
            parts=None if result is None else dumps(result),
            tool_call_id=call_id,
            ts=time.at,
            ts_raw=time.raw,
        )
        failed = True if state in _STATES or error else False if state == "success" else None
        session.conversation.result(shown, is_error=failed)
        code = _exit_code(text)
        kind = "user_cancelled" if state == "cancelled" else failure(code).get("error_type")
        columns = {"result_state": _STATES[state]} if state in _STATES else {}
        session.patch(call_id, **columns, **({"error_type": kind} if kind else {}))
        if state == "cancelled":
            session.columns |= {"end_reason": "user_abort", "end_reason_raw": state}


def _said_by(result: Any) -> tuple[str | None, bool]:
    """The text of a result (parts of the API with `functionResponse.response`), and whether it is an error's."""
    texts, failed = [], False
    for part in result if isinstance(result, list) else [result]:
        response = as_dict(as_dict(part).get("functionResponse")).get("response")
        if isinstance(response, dict):
            failed = failed or response.get("error") is not None
            texts.append(text_of(next((response[key] for key in ("output", "error") if key in response), response)))
        else:
            texts.append(text_of(as_dict(part).get("text", part)))
    found = [text for text in texts if text is not None]
    return ("\n".join(found) if found else None), failed


def _exit_code(text: str | None) -> int | None:
    """The exit code that the shell tool writes after what a command printed."""
    found = _EXIT.search(text[-400:]) if text else None
    return None if found is None else int(found[1])


def _usage(tokens: Mapping[str, Any]) -> Usage:
    prompt, tool = count(tokens.get("input")), count(tokens.get("tool"))
    answer, thoughts = count(tokens.get("output")), count(tokens.get("thoughts"))
    return Usage(
        input_tokens=None if prompt is None else prompt + (tool or 0),
        cache_read_tokens=count(tokens.get("cached")),
        output_tokens=None if answer is None else answer + (thoughts or 0),
        reasoning_tokens=thoughts,
    )
