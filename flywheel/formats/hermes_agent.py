"""Hermes agent: rows of its session store as JSON: `[row, ...]`, `{session, messages: [row, ...]}` or one row a line.

    {id, source, model, started_at, ..., messages: [row, ...]}             `sessions export`, a session a line
    {session_id, session_start, platform, ..., messages: [message, ...]}   the session logs
    {role: session_meta, tools, platform, ...} message message ...         the transcripts of its gateway, lines

A row is an OpenAI message with `session_id`, `timestamp`, `finish_reason`; its order is its id. Content that is no text
stands behind `\\0json:`. `active: 0` marks what the user took back: a branch, not to be learnt from. Calls without ids
take those of the results that follow them.

Not covered: the SQLite file itself, summaries of compacted sessions (a session that names its parent continues it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_int,
    as_list,
    as_text,
    fingerprint,
    trajectory_id,
)
from flywheel.formats.session import MODEL_ENDS, Session, failure
from flywheel.formats.times import read_time
from flywheel.formats.usage import count, money
from flywheel.records import Fragment, Reject

_JSON = "\0json:"
_ROW = {"tool_name", "tool_call_id", "finish_reason", "session_id"}
_NO_ROW: dict[str, Any] = {"session_id": None, "timestamp": None, "content": None}
_ENDS = {
    "cli_close": "completed",
    "completed": "completed",
    "user_exit": "completed",
    "max_iterations": "max_turns",
    "error": "agent_error",
}


class HermesAgent:
    """The reader."""

    name = "hermes_agent"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if not head.values:
            return None
        if _is_meta(head.values[0]):
            return Match(confidence=0.95)
        if all(_is_row(value) for value in head.values):
            return Match(confidence=0.95, unit="document" if head.in_array else "record")
        wrapped = [value for value in head.values if _rows_of(value)]
        return Match(confidence=0.95) if wrapped and len(wrapped) == len(head.values) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        loose: list[dict[str, Any]] = []
        first: Record | None = None
        meta: dict[str, Any] = {}
        for record in records:
            rows = _rows_of(record.value)
            if _is_meta(record.value):
                first, meta = first or record, meta or as_dict(record.value)
                continue
            if rows:
                yield from _sessions(rows, as_dict(record.value), record, source)
            elif _is_row(record.value) or (meta and "role" in as_dict(record.value)):
                first = first or record
                loose.append({**_NO_ROW, **record.value})
            else:
                yield record.reject("not_hermes", "the record is no message of the session store and no list of them")
        if first is not None:
            head = {key: item for key, item in meta.items() if key not in ("role", "timestamp")}
            told = {"session": {**head, "started_at": meta.get("timestamp")}} if meta else {}
            yield from _sessions(loose, told, first, source)


def _is_meta(value: Any) -> bool:
    """The first line of a gateway's transcript."""
    return as_dict(value).get("role") == "session_meta"


def _is_log(value: Mapping[str, Any]) -> bool:
    """A session log: its messages name neither their session nor, mostly, a time."""
    return value.keys() >= {"session_id", "session_start", "messages"}


def _head_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a document says of its session, in the words of the session store."""
    head = document if "session" not in document and ("id" in document or _is_log(document)) else {}
    told = as_dict(document.get("session")) or {key: item for key, item in head.items() if key != "messages"}
    if _is_log(document):
        told |= {"started_at": told.get("session_start"), "ended_at": told.get("last_updated")}
    return told


def _is_row(value: Any) -> bool:
    row = as_dict(value)
    return "session_id" in row and as_text(row.get("role")) is not None and "content" in row and "timestamp" in row


def _rows_of(value: Any) -> list[Any]:
    """The rows that a document holds; some of them may be damaged."""
    rows = value if isinstance(value, list) else as_list(as_dict(value).get("messages"))
    if _is_log(as_dict(value)):
        known = {**_NO_ROW, "session_id": value["session_id"]}
        rows = [{**known, **row} if isinstance(row, dict) else row for row in rows]
    return rows if any(_is_row(row) for row in rows) else []


def _sessions(rows: list[Any], document: Mapping[str, Any], record: Record, source: Source) -> Iterator[Fragment]:
    groups: dict[str, list[dict[str, Any]]] = {}
    damaged = [row for row in rows if not _is_row(row)]
    for row in filter(_is_row, rows):
        groups.setdefault(as_text(row.get("session_id")) or "", []).append(row)
    head = _head_of(document)
    own = ("session", "messages", *(head if "session" not in document else ()))
    for native, mine in groups.items():
        session = _begin(native or None, head, mine[0], record, source)
        session.extra |= {key: item for key, item in document.items() if key not in own}
        session.extra |= {"damaged_rows": damaged} if damaged else {}
        if all(as_int(row.get("id")) is not None for row in mine):
            mine.sort(key=lambda row: as_int(row.get("id")) or 0)
        _add_rows(session, mine)
        yield session.fragment()


def _begin(
    native: str | None, head: Mapping[str, Any], row: Mapping[str, Any], record: Record, source: Source
) -> Session:
    first = fingerprint(row)
    key = trajectory_id(HermesAgent.name, native or first, first)
    session = Session(HermesAgent.name, source, key, native, record.ix)
    parent, raw, prompt = (
        as_text(head.get("parent_session_id")),
        as_text(head.get("end_reason")),
        head.get("system_prompt"),
    )
    cost = money(head.get("actual_cost_usd")) or money(head.get("estimated_cost_usd"))
    known = ("id", "session_id", "model", "system_prompt", "tools")
    session.metadata |= {key: item for key, item in head.items() if key not in known}
    session.columns |= {
        "session_id": native,
        "agent_name": "hermes",
        "user_id": as_text(head.get("user_id")),
        "model": as_text(head.get("model")),
        "tools": dumps(head["tools"]) if head.get("tools") else None,
        "continued_from": None if parent is None else trajectory_id(HermesAgent.name, parent, first),
        "started_at": read_time(head.get("started_at")).at,
        "ended_at": read_time(head.get("ended_at")).at,
        "input_tokens": count(head.get("input_tokens")),
        "cache_read_tokens": count(head.get("cache_read_tokens")),
        "cache_write_tokens": count(head.get("cache_write_tokens")),
        "output_tokens": count(head.get("output_tokens")),
        "reasoning_tokens": count(head.get("reasoning_tokens")),
        "cost_usd": cost,
        "cost_source": None if cost is None else "recorded",
        "end_reason": _ENDS.get(raw or ""),
        "end_reason_raw": raw,
    }
    if isinstance(prompt, str):
        session.conversation.add(role="system", content=prompt, content_state="present")
    return session


def _add_rows(session: Session, rows: list[dict[str, Any]]) -> None:
    """Rows in order. What was taken back hangs where it was; what replaced it follows the last row that stayed."""
    kept: int | None = session.last_ix
    ended = session.columns["end_reason_raw"] is not None
    for nth, row in enumerate(rows):
        active = row.get("active") not in (0, False)
        message = _message(row, rows[nth + 1 :])
        ix = add_message(session.conversation, message)
        step = session.steps[ix]
        finish = as_text(row.get("finish_reason"))
        session.set(ix, name=step.name or as_text(row.get("tool_name")), finish_reason=finish, finish_reason_raw=finish)
        if step.role == "assistant":
            session.set(ix, sampled=True, output_tokens=None)
            if not ended:
                session.columns |= {"end_reason": MODEL_ENDS.get(finish or ""), "end_reason_raw": finish}
        elif step.role == "tool":
            session.patch(step.tool_call_id, **failure(_exit_code(step.content)))
        if active:
            session.set(ix, parent_ix=kept)
            kept = ix
        else:
            session.set(ix, trainable=False)


def _exit_code(text: str | None) -> int | None:
    """The exit code of a terminal's result, which is JSON."""
    opened = try_loads(text) if text is not None and text.startswith("{") else None
    return as_int(as_dict(None if opened is None else opened.value).get("exit_code"))


def _message(row: Mapping[str, Any], later: list[dict[str, Any]]) -> dict[str, Any]:
    """The row as an OpenAI message: JSON that stands in a column opened, a padding that is no reasoning left out."""
    message = {key: item for key, item in row.items() if key not in ("session_id", "finish_reason", "tool_name")}
    content = row.get("content")
    if isinstance(content, str) and content.startswith(_JSON):
        opened = try_loads(content.removeprefix(_JSON))
        message["content"] = content if opened is None else opened.value
    calls = row.get("tool_calls")
    if isinstance(calls, str) and (decoded := try_loads(calls)) is not None:
        message["tool_calls"] = decoded.value
    if isinstance(message.get("tool_calls"), list):
        message["tool_calls"] = _with_ids(message["tool_calls"], later)
    if as_text(row.get("reasoning_content")) in (None, row.get("reasoning")):
        message.pop("reasoning_content", None)
    for key in ("reasoning", "reasoning_content"):
        if isinstance(message.get(key), str) and not message[key].strip():
            del message[key]
    return {key: item for key, item in message.items() if item is not None or key == "content"}


def _with_ids(calls: list[Any], later: list[dict[str, Any]]) -> list[Any]:
    """Calls without ids with those of the results that follow at once, if there are as many."""
    made = [{**call, "id": call.get("id") or call.get("call_id")} if isinstance(call, dict) else call for call in calls]
    nameless = [call for call in made if isinstance(call, dict) and not call["id"]]
    taken = {call["id"] for call in made if isinstance(call, dict) and isinstance(call["id"], str)}
    found: list[str] = []
    for row in sorted(later, key=lambda row: as_int(row.get("id")) or 0):
        if row.get("role") != "tool":
            break
        call_id = as_text(row.get("tool_call_id"))
        found += [call_id] if call_id is not None and call_id not in taken else []
    if len(found) == len(nameless):
        for call, call_id in zip(nameless, found, strict=True):
            call["id"] = call_id
    return made
