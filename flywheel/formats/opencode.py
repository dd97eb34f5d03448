"""OpenCode: `opencode export` (`{info, messages: [{info, parts}]}`), the storage it keeps, and `run --format json`.

    {info: {id, directory, ...}, messages: [{info: {id, role, ...}, parts: [...]}]}     a session, or one a line
    {type: text | tool_use | step_finish | error, sessionID, timestamp, part}           the events of a run, one a line

Parts of a message become its words, reasoning, calls and their results; every other part is kept beside it. A call's
state holds its result: `completed`, or `error`. Tokens are in disjoint buckets; costs are recorded.
Kilo and other forks write the same.

Not covered: the single files of the storage folder, diffs and snapshots that parts name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.parse import dumps
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import MODEL_ENDS, Session, exit_code, failure, text_of, usage_columns, without, word
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count, money
from flywheel.records import Fragment, Reject

_INFO = {"id", "role", "sessionID", "modelID", "finish", "cost", "error"}
_TOOL = {"type", "callID", "tool", "state"}
_STATE = {"status", "input", "output", "error"}
_EVENTS = {"text", "reasoning", "tool_use", "step_start", "step_finish", "error", "user"}
_PARTS = {"text": "text", "user": "text", "reasoning": "reasoning", "tool_use": "tool"}
_ABORTED = ("MessageAbortedError", "AbortError")
_REJECTED = ("The user rejected", "Tool execution aborted", "user dismissed", "The user has specified a rule")


class OpenCode:
    """The reader."""

    name = "opencode"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        values = [as_dict(value) for value in head.values]
        sessions = [value for value in values if _is_session(value)]
        if sessions:
            return Match(confidence=0.95, version=as_text(as_dict(sessions[0]["info"]).get("version")))
        events = [value for value in values if _is_event(value)]
        return Match(confidence=0.9, version="events") if events and len(events) == len(values) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        runs: dict[str, Session] = {}
        for record in records:
            value = as_dict(record.value)
            if _is_session(value):
                session = _begin(record, as_dict(value["info"]), source)
                _read_session(session, value)
                if session.steps:
                    yield session.fragment()
                else:
                    yield record.reject("no_messages", "the session has no messages")
            elif _is_event(value):
                name = as_text(value.get("sessionID")) or ""
                if name not in runs:
                    runs[name] = _begin(record, {"id": value["sessionID"]}, source)
                _add_event(runs[name], value)
            else:
                yield record.reject("not_opencode", "the record is no session and no event of one")
        yield from (session.fragment() for session in runs.values())


def _is_session(value: Mapping[str, Any]) -> bool:
    """A session has messages that are an info with parts, or none."""
    messages = value.get("messages")
    if not isinstance(value.get("info"), dict) or not isinstance(messages, list):
        return False
    infos = [as_dict(message) for message in messages]
    if not infos:
        return "directory" in value["info"]
    return any(isinstance(m.get("parts"), list) and isinstance(m.get("info"), dict) for m in infos)


def _is_event(value: Mapping[str, Any]) -> bool:
    return word(value.get("type")) in _EVENTS and bool(as_text(value.get("sessionID"))) and "timestamp" in value


def _begin(record: Record, info: Mapping[str, Any], source: Source) -> Session:
    native, first = as_text(info.get("id")), fingerprint(record.value)
    session = Session(OpenCode.name, source, trajectory_id(OpenCode.name, native or first, first), native, record.ix)
    parent, times = as_text(info.get("parentID")), as_dict(info.get("time"))
    session.columns |= {
        "session_id": native,
        "agent_name": "opencode",
        "agent_version": as_text(info.get("version")),
        "parent_trajectory_id": None if parent is None else trajectory_id(OpenCode.name, parent, first),
        "started_at": read_time(times.get("created")).at,
    }
    session.metadata |= {key: item for key, item in info.items() if key not in ("id", "version")}
    return session


def _read_session(session: Session, value: Mapping[str, Any]) -> None:
    session.extra |= {key: item for key, item in value.items() if key not in ("info", "messages")}
    for given in as_list(value["messages"]):
        message, info = as_dict(given), as_dict(as_dict(given).get("info"))
        first = len(session.steps)
        ix = _add_message(session, info, [as_dict(part) for part in as_list(message.get("parts"))])
        odd = [part for part in as_list(message.get("parts")) if not isinstance(part, dict)]
        rest = {key: item for key, item in message.items() if key not in ("info", "parts")}
        odd += [] if isinstance(given, dict) else [given]
        session.more(ix, rest | ({"odd": odd} if odd else {}))
        session.stamp(first, as_dict(info.get("time")).get("created"))


def _add_message(session: Session, info: Mapping[str, Any], parts: list[dict[str, Any]]) -> int:
    role, tokens = word(info.get("role")), as_dict(info.get("tokens"))
    said = [part for part in parts if part.get("type") == "text"]
    texts = [part["text"] for part in said if isinstance(part.get("text"), str)]
    thoughts = [part for part in parts if part.get("type") == "reasoning"]
    other = [part for part in parts if part.get("type") not in ("text", "reasoning", "tool")]
    known = {"type", "text", "id", "messageID", "sessionID"}
    noted = [
        {key: item for key, item in part.items() if key not in ("text", "state", "messageID", "sessionID")}
        for part in parts
        if part not in other
    ]
    rest = {key: item for key, item in info.items() if key not in _INFO}
    rest |= {"noted": noted} if noted else {}
    rest |= {"parts": other} if other else {}
    finish, error = as_text(info.get("finish")), as_dict(info.get("error"))
    is_answer = role == "assistant"
    ix = session.conversation.add(
        native_id=as_text(info.get("id")),
        role=role if role in ("user", "assistant", "system") else "event",
        role_raw=role or None,
        content="\n".join(texts) if texts else None,
        content_state="present" if texts else "missing",
        parts=dumps(said) if any(part.keys() - known for part in said) or len(said) > 1 else None,
        reasoning="\n".join(t for part in thoughts if (t := as_text(part.get("text"))) is not None) or None,
        sampled=True if is_answer else None,
        is_synthetic=True if said and all(part.get("synthetic") is True for part in said) else None,
        model=as_text(info.get("modelID")) or as_text(as_dict(info.get("model")).get("modelID")),
        finish_reason=finish,
        finish_reason_raw=finish,
        ts_end=read_time(as_dict(info.get("time")).get("completed")).at,
        cost_usd=money(info.get("cost")) if is_answer else None,
        extra=dumps(rest) if rest else None,
        **usage_columns(_usage(tokens)),
    )
    session.go_on()
    if is_answer:
        for part in parts:
            if part.get("type") == "tool":
                _add_call(session, ix, part)
        session.columns |= {"end_reason": MODEL_ENDS.get(finish or ""), "end_reason_raw": finish}
        session.columns.setdefault("provider", as_text(info.get("providerID")))
    if error:
        _failed(session, ix, error)
    return ix


def _failed(session: Session, ix: int, error: Mapping[str, Any]) -> None:
    name = as_text(error.get("name")) or "error"
    message = text_of(as_dict(error.get("data")).get("message") or error.get("message"))
    session.set(ix, error_type=name, error_message=message)
    session.more(ix, {"error": dict(error)})
    session.fail(name, message, "user_abort" if name in _ABORTED else "model_error")
    if name == "MessageOutputLengthError":
        session.columns["end_reason"] = "max_tokens"
    elif name == "ContextOverflowError":
        session.columns["end_reason"] = "context_overflow"


def _add_call(session: Session, ix: int, part: Mapping[str, Any]) -> None:
    state, call_id = as_dict(part.get("state")), as_text(part.get("callID"))
    times, status = as_dict(state.get("time")), word(state.get("status"))
    nth = session.steps[ix].n_tool_calls
    rest = {key: item for key, item in part.items() if key not in _TOOL and key not in ("messageID", "sessionID")}
    rest |= {"state": without(state, *_STATE)} if without(state, *_STATE) else {}
    session.conversation.call(
        ix,
        call_id=call_id,
        name=as_text(part.get("tool")),
        kind="function",
        arguments=state.get("input"),
        started_at=read_time(times.get("start")).at,
        ended_at=read_time(times.get("end")).at,
        extra=rest | {"status": state.get("status")},
    )
    if status not in ("completed", "error"):
        return
    text = text_of(state.get("output") if status == "completed" else state.get("error"))
    shown = session.conversation.add(
        role="tool",
        role_raw="tool",
        name=as_text(part.get("tool")),
        content=text,
        content_state="missing" if text is None else "present",
        tool_call_id=call_id or f"call_{ix}_{nth}",
        ts=read_time(times.get("end")).at,
        ts_raw=read_time(times.get("end")).raw,
    )
    metadata = as_dict(state.get("metadata"))
    code = metadata.get("exit") if isinstance(metadata.get("exit"), int) else exit_code(text)
    session.conversation.result(shown, is_error=status == "error")
    columns = failure(code) if code else {}
    if status == "error" and (text or "").startswith(_REJECTED):
        columns |= {"result_state": "rejected", "error_type": "user_rejected"}
    child = as_text(metadata.get("sessionId")) or as_text(metadata.get("sessionID"))
    if child is not None:
        columns["subagent_trajectory_id"] = trajectory_id(OpenCode.name, child, "")
    session.patch(call_id or f"call_{ix}_{nth}", **columns)


def _usage(tokens: Mapping[str, Any]) -> Usage:
    """Disjoint buckets to the normal form."""
    cache = as_dict(tokens.get("cache"))
    fresh, read, write = count(tokens.get("input")), count(cache.get("read")), count(cache.get("write"))
    known = [number for number in (fresh, read, write) if number is not None]
    answer, thoughts = count(tokens.get("output")), count(tokens.get("reasoning"))
    return Usage(
        input_tokens=sum(known) if known else None,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=None if answer is None else answer + (thoughts or 0),
        reasoning_tokens=thoughts,
    )


def _add_event(session: Session, event: Mapping[str, Any]) -> None:
    """One line of a run: the parts of one message come one by one, each becomes a row of its own."""
    kind, part, first = word(event.get("type")), as_dict(event.get("part")), len(session.steps)
    if kind in ("text", "reasoning", "tool_use", "user"):
        role = "user" if kind == "user" else "assistant"
        given = part or {"type": "text", "text": text_of(event.get("text") or event.get("content"))}
        ix = _add_message(session, {"role": role}, [{**given, "type": _PARTS[kind]}])
        session.set(ix, llm_call_id=as_text(part.get("messageID")) if role == "assistant" else None)
    else:
        ix = session.event(kind, {key: item for key, item in event.items() if key != "timestamp"}, is_synthetic=True)
    if kind == "step_finish":
        answer = next((n for n in range(ix - 1, -1, -1) if session.steps[n].role == "assistant"), None)
        finish = as_text(part.get("reason"))
        if answer is not None:
            tokens = usage_columns(_usage(as_dict(part.get("tokens"))))
            session.set(
                answer, cost_usd=money(part.get("cost")), finish_reason=finish, finish_reason_raw=finish, **tokens
            )
        session.columns |= {"end_reason": MODEL_ENDS.get(finish or ""), "end_reason_raw": finish}
    elif kind == "error":
        _failed(session, ix, as_dict(event.get("error")))
    session.stamp(first, event.get("timestamp"))
