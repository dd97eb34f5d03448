"""Codex CLI: rollout files of `~/.codex/sessions` as JSON lines `{timestamp, type, payload}`.

    session_meta      the head (a fork or resume repeats its ancestor's)      turn_context    model, sandbox, approvals
    response_item     an item of the Responses API: the conversation         event_msg       what the client showed
    compacted         a summary in place of the history: a new root            world_state ... events

Older files have the items bare, one a line, after a head `{id, timestamp, instructions}`; the first versions wrote one
document `{session, items}`. Items are the truth: an `event_msg` that repeats one adds nothing and is left out, except
for what items don't have (tokens, exit codes, errors, interrupts). A rollback makes a branch.

Not covered: the stream of `codex exec --json`, `history.jsonl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.codex_rows import Rollout
from flywheel.formats.openai_response_items import is_item
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import Session, word
from flywheel.records import Fragment, Reject

_TYPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}


class CodexCli:
    """The reader."""

    name = "codex_cli"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        lines = [as_dict(value) for value in head.values]
        enveloped = [line for line in lines if _is_enveloped(line)]
        if enveloped:
            meta = next((line["payload"] for line in enveloped if line["type"] == "session_meta"), None)
            return Match(confidence=0.95, version=as_text(as_dict(meta).get("cli_version")))
        if lines and _is_document(lines[0]):
            return Match(confidence=0.95, version="document")
        old = bool(lines) and _is_old_head(lines[0]) and all(_enveloped(line) is not None for line in lines[1:])
        return Match(confidence=0.95, version="bare") if old else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        rollout: Rollout | None = None
        for record in records:
            line = _enveloped(as_dict(record.value))
            if line is None:
                yield record.reject("not_codex", "the line is none that Codex writes")
            elif _is_document(line):
                yield from _read_document(record, source)
            else:
                if rollout is None:
                    rollout = Rollout(_begin(record, line, source))
                rollout.add(line)
        if rollout is not None and (session := rollout.finish()).steps:
            yield session.fragment()


def _is_enveloped(line: Mapping[str, Any]) -> bool:
    return word(line.get("type")) in _TYPES and isinstance(line.get("payload"), dict)


def _is_old_head(line: Mapping[str, Any]) -> bool:
    return line.keys() >= {"id", "timestamp"} and line.keys() <= {"id", "timestamp", "instructions", "git", "cwd"}


def _is_message(line: Mapping[str, Any]) -> bool:
    return line.get("type") == "message" and "role" in line and isinstance(line.get("content"), list)


def _is_document(line: Mapping[str, Any]) -> bool:
    return isinstance(line.get("session"), dict) and isinstance(line.get("items"), list) and "messages" not in line


def _enveloped(line: dict[str, Any]) -> dict[str, Any] | None:
    """A line as newer versions write it; None for one that is no line of a rollout."""
    if (word(line.get("type")) and isinstance(line.get("payload"), dict)) or _is_document(line):
        return line
    if _is_old_head(line):
        return {"type": "session_meta", "timestamp": line["timestamp"], "payload": line}
    if is_item(line) or _is_message(line):
        return {"type": "response_item", "payload": line}
    return {"type": "state", "payload": line} if "record_type" in line else None


def _begin(record: Record, line: Mapping[str, Any], source: Source) -> Session:
    payload = as_dict(line.get("payload"))
    native = as_text(payload.get("id")) if line.get("type") == "session_meta" else None
    first = fingerprint(record.value)
    session = Session(CodexCli.name, source, trajectory_id(CodexCli.name, native or first, first), native, record.ix)
    session.columns |= {"session_id": native, "agent_name": "codex"}
    return session


def _read_document(record: Record, source: Source) -> Iterator[Fragment | Reject]:
    document = as_dict(record.value)
    head = {"type": "session_meta", "payload": document["session"]}
    rollout = Rollout(_begin(record, head, source))
    rollout.add(head)
    for item in as_list(document["items"]):
        rollout.add(_enveloped(as_dict(item)) or {"type": "unknown", "payload": item})
    session = rollout.finish()
    rest = {key: value for key, value in document.items() if key not in ("session", "items")}
    session.extra |= rest
    if session.steps:
        yield session.fragment()
    else:
        yield record.reject("no_messages", "the session has no items")
