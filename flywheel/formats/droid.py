"""Factory's Droid: session files as JSON lines, blocks as Anthropic has them.

    {type: session_start, id, title, cwd, version, ...}     the head
    {type: message, id?, parentId?, timestamp?, message}    a message; entries may form a tree
    {type: todo_state | compaction_state | session_end}     what is no message: events

Not covered: the settings file beside a session (models, tokens).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.anthropic_blocks import add_message
from flywheel.formats.anthropic_call import anthropic_usage
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.session import MODEL_ENDS, Session, exit_code, failure, usage_columns, word
from flywheel.records import Fragment, Reject

_TYPES = {"session_start", "message", "todo_state", "compaction_state", "session_end"}
_LINE = {"type", "id", "parentId", "timestamp", "message"}
_MESSAGE = {"role", "content", "model", "id"}


class Droid:
    """The reader."""

    name = "droid"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        lines = [as_dict(value) for value in head.values]
        kinds = [word(line.get("type")) for line in lines]
        if "session_start" in kinds and kinds.count("message") + kinds.count("session_start") > len(kinds) // 2:
            return Match(confidence=0.95)
        shaped = bool(lines) and all(
            kind in _TYPES and (kind != "message" or _is_message(line)) for kind, line in zip(kinds, lines, strict=True)
        )
        return Match(confidence=0.7) if shaped and "message" in kinds else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        session: Session | None = None
        for record in records:
            line = as_dict(record.value)
            if word(line.get("type")) not in _TYPES and "id" not in line:
                yield record.reject("not_droid", "the line is none that Droid writes")
                continue
            if session is None or (line.get("type") == "session_start" and session.steps):
                if session is not None:
                    yield session.fragment()
                session = _begin(record, source)
            _add(session, line)
        if session is not None and session.steps:
            yield session.fragment()


def _is_message(line: Mapping[str, Any]) -> bool:
    message = as_dict(line.get("message"))
    return message.get("role") in ("user", "assistant", "system") and "content" in message


def _begin(record: Record, source: Source) -> Session:
    line = as_dict(record.value)
    native = as_text(line.get("id")) if line.get("type") == "session_start" else None
    first = fingerprint(record.value)
    session = Session(Droid.name, source, trajectory_id(Droid.name, native or first, first), native, record.ix)
    session.columns |= {"session_id": native, "agent_name": "droid"}
    return session


def _add(session: Session, line: Mapping[str, Any]) -> None:
    kind, first = word(line.get("type")), len(session.steps)
    session.counted(kind)
    if kind == "session_start":
        session.metadata |= {key: item for key, item in line.items() if key not in ("type", "id")}
        parent = first_text(line, "parent", "parentSessionId", "callingSessionId")
        if parent is not None:
            session.columns["parent_trajectory_id"] = trajectory_id(Droid.name, parent, "")
        return
    if kind == "message" and _is_message(line):
        _add_message(session, line)
    else:
        session.event(kind, _timeless(line), line.get("summaryText"), is_synthetic=True)
    session.stamp(first, line.get("timestamp"))
    parent = first_text(line, "parentId")
    session.place(first, as_text(line.get("id")), parent)


def _timeless(line: Mapping[str, Any]) -> dict[str, Any]:
    """The entry but for its time, which has a column."""
    return {key: item for key, item in line.items() if key != "timestamp"}


def _add_message(session: Session, line: Mapping[str, Any]) -> None:
    message = as_dict(line["message"])
    is_answer = message["role"] == "assistant"
    finish = first_text(message, "stop_reason", "stopReason")
    columns = {"sampled": True, "model": as_text(message.get("model")), "llm_call_id": as_text(message.get("id"))}
    rows = add_message(
        session.conversation,
        {"role": message["role"], "content": message["content"]},
        native_id=as_text(line.get("id")),
        **(columns if is_answer else {}),
    )
    session.go_on()
    if is_answer:
        tokens = usage_columns(anthropic_usage(message.get("usage")))
        session.set(rows[-1], finish_reason=finish, finish_reason_raw=finish, **tokens)
        session.columns |= {"end_reason": MODEL_ENDS.get(finish or ""), "end_reason_raw": finish}
    for ix in rows:
        step = session.steps[ix]
        if step.role == "tool" and (code := exit_code(step.content)):
            session.patch(step.tool_call_id, error_type=failure(code)["error_type"])
    known = _MESSAGE if is_answer else {"role", "content"}
    told = {key: item for key, item in message.items() if key not in known}
    parent = first_text(line, "parentId")
    rest = {key: item for key, item in line.items() if key not in _LINE}
    rest |= {"parentId": parent} if parent is not None and parent not in session.rows else {}
    session.more(rows[-1], rest | ({"message": told} if told else {}))
