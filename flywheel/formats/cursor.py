"""Cursor: agent transcripts as JSON lines `{role, message: {content}}`, blocks as Anthropic has them.

A line names no session. The folder and file name do (`agent-transcripts/<session>/<session>.jsonl`, subagents in
`<session>/subagents/<id>.jsonl`); without such a path the session is known by its first line.

Not covered: the SQLite store of the editor, the text transcripts of older versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from flywheel.formats.anthropic_blocks import add_message
from flywheel.formats.anthropic_call import anthropic_usage
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
from flywheel.formats.session import MODEL_ENDS, Session, text_of, usage_columns
from flywheel.records import Fragment, Reject

_LINE = {"id", "role", "message", "timestamp"}
_MESSAGE = {"role", "content", "model", "id"}
_TURNS = {"success": "completed", "error": "model_error", "aborted": "user_abort", "cancelled": "user_abort"}
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class Cursor:
    """The reader."""

    name = "cursor"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if not head.values or not any(map(_is_line, head.values)) or head.in_array:
            return None
        return Match(confidence=0.9 if all(map(_is_line, head.values)) else 0.7)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        session: Session | None = None
        for record in records:
            kind = as_text(as_dict(record.value).get("type"))
            if not _is_line(record.value) and kind is None:
                yield record.reject("not_cursor", "the line has neither a role with a message nor a type")
                continue
            if session is None:
                session = _session(record, source)
            if kind is None:
                _add(session, record.value)
            else:
                _note(session, kind, record.value)
        if session is not None:
            yield session.fragment()


def _note(session: Session, kind: str, line: dict[str, Any]) -> None:
    """A line that is no message: how a turn ended, and whatever newer versions add."""
    first, status = len(session.steps), as_text(line.get("status"))
    session.event(kind, line, as_text(line.get("error")), is_synthetic=True)
    session.stamp(first, line.get("timestamp"))
    if kind == "turn_ended" and status in _TURNS:
        session.columns |= {"end_reason": _TURNS[status], "end_reason_raw": status}
        if status == "error":
            session.fail(kind, text_of(line.get("error")))


def _is_line(value: Any) -> bool:
    line = as_dict(value)
    message = as_dict(line.get("message"))
    return line.get("role") in ("user", "assistant", "system") and "content" in message and "type" not in line


def _session(record: Record, source: Source) -> Session:
    parts = (source.path or source.uri).replace("\\", "/").split("/")
    stem = parts[-1].split(".")[0]
    parent = parts[parts.index("subagents") - 1] if "subagents" in parts[1:] else None
    native = stem if parent or _UUID.fullmatch(stem) else None
    first = fingerprint(record.value)
    key = trajectory_id(Cursor.name, native or first, first)
    session = Session(Cursor.name, source, key, native, record.ix)
    session.columns |= {"session_id": native, "agent_name": "cursor"}
    if parent is not None:
        session.columns["parent_trajectory_id"] = trajectory_id(Cursor.name, parent, first)
    return session


def _add(session: Session, line: dict[str, Any]) -> None:
    message, is_answer = as_dict(line["message"]), line["role"] == "assistant"
    finish, first = first_text(message, "stop_reason", "stopReason"), len(session.steps)
    columns = {"sampled": True, "model": as_text(message.get("model")), "llm_call_id": as_text(message.get("id"))}
    rows = add_message(
        session.conversation,
        {"role": line["role"], "content": message["content"]},
        native_id=as_text(line.get("id")),
        **(columns if is_answer else {}),
    )
    if is_answer:
        session.set(
            rows[-1],
            finish_reason=finish,
            finish_reason_raw=finish,
            **usage_columns(anthropic_usage(message.get("usage"))),
        )
    session.columns |= {"end_reason": MODEL_ENDS.get(finish or "") if is_answer else None, "end_reason_raw": finish}
    session.stamp(first, line.get("timestamp"))
    known = _MESSAGE if is_answer else {"role", "content"}
    told = {key: item for key, item in message.items() if key not in known}
    rest = {key: item for key, item in line.items() if key not in _LINE}
    kinds = [as_dict(block).get("type") for block in as_list(message["content"])]
    rest |= {"block_order": kinds} if len(kinds) > 1 else {}
    session.more(rows[-1], rest | ({"message": told} if told else {}))
