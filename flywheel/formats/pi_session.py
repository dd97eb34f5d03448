"""Session files of Pi and of the agents built on it (OMP, OpenClaw): a header, then entries that form a tree.

    {type: session, version, id, timestamp, cwd, parentSession?}      the head
    {type: message, id, parentId, timestamp, message: {role, ...}}    roles user, assistant, toolResult, bashExecution,
                                                                      custom, branchSummary, compactionSummary, ...
    {type: compaction, summary, firstKeptEntryId, ...}                a new root: what followed saw only the summary
    {type: branch_summary | custom_message, ...}                      words that the harness put into the context
    {type: model_change | thinking_level_change | custom | ...}       what is no message: events in the tree

    {type: message_start | message_update | message_end | ...}       `--mode json`: the same messages, as they come

Usage is in disjoint buckets (input, cacheRead, cacheWrite, output); costs are recorded. Version 1 has no ids: a list.

Not covered: entries that the compaction kept (they stand before it; its `firstKeptEntryId` names the first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import Record, Source, as_dict, as_int, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import MODEL_ENDS, Session, failure, text_of, usage_columns, word
from flywheel.formats.usage import Usage, count, money
from flywheel.records import Fragment, Reject

_ENTRY = {"type", "id", "parentId", "timestamp", "message"}
_MESSAGE = {
    "role", "content", "timestamp", "model", "responseId", "stopReason", "errorMessage", "toolCallId", "toolName",
    "isError", "command", "output",
}  # fmt: skip
_HARNESS = {"custom", "hookMessage", "branchSummary", "compactionSummary", "fileMention", "developer"}
_SHELLS = {"bashExecution", "pythonExecution"}
_REPEATED = ("agent_", "turn_", "tool_execution_")  # events that say again what messages say
_SAID = ("text", "thinking", "toolCall")


def heading(values: Iterable[Any]) -> dict[str, Any]:
    """The header of a session among the first entries; empty if there is none."""
    for value in values:
        entry = as_dict(value)
        if entry.get("type") == "session" and "id" in entry and ("cwd" in entry or "timestamp" in entry):
            return entry
    return {}


def looks_like_entries(values: Iterable[Any]) -> bool:
    """Whether entries are of these agents although the header is missing."""
    messages = [as_dict(as_dict(value).get("message")) for value in values if as_dict(value).get("type") == "message"]
    own = ("toolResult", "bashExecution")
    return any(
        message.get("role") in own
        or "stopReason" in message
        or any(as_dict(block).get("type") == "toolCall" for block in as_list(message.get("content")))
        for message in messages
    )


def read_sessions(name: str, agent: str, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
    """The sessions of a source, for the reader of that name."""
    session: _Writer | None = None
    for record in records:
        entry = as_dict(record.value)
        is_head = entry.get("type") == "session"
        if not word(entry.get("type")):
            yield record.reject(f"not_{name}", "the line is no entry of a session")
            continue
        if session is None or (is_head and session.session.steps):
            if session is not None:
                yield session.close()
            session = _Writer(_begin(name, agent, record, source))
        session.add(entry)
    if session is not None and (session.session.steps or session.streamed is not None):
        yield session.close()


def _begin(name: str, agent: str, record: Record, source: Source) -> Session:
    entry = as_dict(record.value)
    native = as_text(entry.get("id")) if entry.get("type") == "session" else None
    first = fingerprint(record.value)
    session = Session(name, source, trajectory_id(name, native or first, first), native, record.ix)
    session.columns |= {"session_id": native, "agent_name": agent}
    return session


class _Writer:
    """The entries of one session, in order."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.model: str | None = None
        self.streamed: Mapping[str, Any] | None = None  # a message of the stream, not ended

    def close(self) -> Fragment:
        """The rows, with the message that the stream broke off in."""
        if self.streamed is not None:
            self.session.event("message_update", self.streamed)
            self.session.columns["content_complete"] = False
            self.session.flags["cut_off"] = None
        return self.session.fragment()

    def _stream(self, kind: str, entry: Mapping[str, Any]) -> bool:
        """Whether it is an event of the stream that adds nothing to messages that have ended."""
        grows = kind in ("message_start", "message_update")
        self.streamed = entry if grows else None if kind == "message_end" else self.streamed
        if grows or kind.startswith(_REPEATED):
            self.session.counted(kind)
        return grows or kind.startswith(_REPEATED)

    def add(self, entry: Mapping[str, Any]) -> None:
        session, kind, first = self.session, word(entry.get("type")), len(self.session.steps)
        message = as_dict(entry.get("message"))
        if kind == "session":
            self._head(entry)
            return
        if self._stream(kind, entry):
            return
        rest = {key: item for key, item in entry.items() if key not in _ENTRY}
        if kind in ("message", "message_end") and "role" in message:
            self._message(message)
            session.more(first, rest)
        elif kind in ("compaction", "branch_summary", "custom_message"):
            self._put_in(kind, entry)
        else:
            self._event(kind, entry)
        session.stamp(first, entry.get("timestamp"))
        session.stamp(first, message.get("timestamp"))
        if message.get("timestamp") is not None and message["timestamp"] != entry.get("timestamp"):
            session.more(first, {"message_timestamp": message["timestamp"]})
        entry_id, parent = as_text(entry.get("id")), as_text(entry.get("parentId"))
        for ix in range(first, len(session.steps)):
            session.set(ix, native_id=session.steps[ix].native_id or entry_id)
        session.place(first, entry_id, parent, is_root=kind == "compaction")
        if parent is not None and parent not in session.rows:
            session.more(first, {"parentId": parent})

    def _head(self, entry: Mapping[str, Any]) -> None:
        session = self.session
        version = as_text(entry.get("version"))
        session.columns["format_version"] = version
        session.metadata |= {key: item for key, item in entry.items() if key not in ("type", "id", "version")}
        parent = as_text(entry.get("parentSession"))
        if parent is not None:  # a path whose file name ends in the id, or an id
            native = parent.replace("\\", "/").split("/")[-1].removesuffix(".jsonl").split("_")[-1]
            session.columns["continued_from"] = trajectory_id(session.format, native, "")

    def _event(self, kind: str, entry: Mapping[str, Any]) -> None:
        session = self.session
        told = {key: item for key, item in entry.items() if key != "timestamp"}
        session.event(kind, told, entry.get("title"), is_synthetic=True)
        if kind == "model_change":
            self.model = as_text(entry.get("modelId")) or as_text(entry.get("model"))
        elif kind == "session_init":
            session.columns["agent_version"] = as_text(entry.get("cliVersion"))
        if entry.get("customType") == "tool_execution":
            code = as_int(entry.get("exitCode"))
            session.patch(as_text(entry.get("toolCallId")), **({} if code in (None, 0) else failure(code)))

    def _put_in(self, kind: str, entry: Mapping[str, Any]) -> None:
        """Words that the harness wrote for the model: a summary, a reminder."""
        key = "content" if kind == "custom_message" else "summary"
        content = read_content(entry, key)
        rest = {name: item for name, item in entry.items() if name not in (*_ENTRY, key)}
        self.session.conversation.add(
            role="user",
            role_raw=kind,
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            is_synthetic=True,
            extra=dumps(rest) if rest else None,
        )

    def _message(self, message: Mapping[str, Any]) -> None:
        role, session = word(message.get("role")), self.session
        rest = {key: item for key, item in message.items() if key not in _MESSAGE}
        session.go_on()
        if role == "assistant":
            self._answer(message, rest)
        elif role == "toolResult":
            self._result(message, rest)
        elif role in _SHELLS:
            self._shell(role, message, rest)
        else:
            content = read_content(
                message, "content" if "content" in message or "summary" not in message else "summary"
            )
            session.conversation.add(
                role={"system": "system", "user": "user"}.get(role, "user" if role in _HARNESS else "event"),
                role_raw=role,
                content=content.text,
                content_state=content.state,
                parts=content.parts,
                is_synthetic=True if role in _HARNESS else None,
                extra=dumps({key: rest[key] for key in rest if key != "summary" or "content" in message})
                if rest
                else None,
            )

    def _answer(self, message: Mapping[str, Any], rest: dict[str, Any]) -> None:
        session, blocks, usage = self.session, as_list(message.get("content")), as_dict(message.get("usage"))
        said = [block for block in blocks if as_dict(block).get("type") not in ("thinking", "toolCall")]
        thoughts = [as_dict(block) for block in blocks if as_dict(block).get("type") == "thinking"]
        content = read_content({"content": said} if isinstance(message.get("content"), list) else message)
        plain = all(as_dict(block).keys() == {"type", "text"} for block in said)
        thinking = [text for block in thoughts if (text := as_text(block.get("thinking"))) is not None]
        signed = [block for block in thoughts if block.keys() - {"type", "thinking"}]
        kinds = [as_dict(block).get("type") for block in blocks]
        rest |= {"block_order": kinds} if any(kind != "text" for kind in kinds) else {}
        finish, error = as_text(message.get("stopReason")), text_of(message.get("errorMessage"))
        ix = session.conversation.add(
            role="assistant",
            role_raw="assistant",
            llm_call_id=as_text(message.get("responseId")),
            content=content.text if said or not blocks else None,
            content_state=content.state if said or not blocks else "null",
            parts=None if plain else content.parts,
            reasoning="\n".join(thinking) or None,
            reasoning_opaque=dumps(signed) if signed else None,
            sampled=True,
            model=as_text(message.get("model")) or self.model,
            finish_reason=finish,
            finish_reason_raw=finish,
            error_message=error,
            error_type="model_error" if error is not None else None,
            cost_usd=money(as_dict(usage.get("cost")).get("total")),
            extra=dumps(rest) if rest else None,
            **usage_columns(_usage(usage)),
        )
        for block in map(as_dict, blocks):
            if block.get("type") == "toolCall":
                session.conversation.call(
                    ix,
                    call_id=as_text(block.get("id")),
                    name=as_text(block.get("name")),
                    kind="function",
                    arguments=block.get("arguments"),
                    extra={key: item for key, item in block.items() if key not in ("type", "id", "name", "arguments")},
                )
        session.columns.setdefault("provider", as_text(message.get("provider")))
        if finish == "error" or (error is not None and finish != "aborted"):
            session.fail("model_error", error)
        else:
            session.columns |= {"end_reason": MODEL_ENDS.get(finish or ""), "error_message": error}
        session.columns["end_reason_raw"] = finish

    def _result(self, message: Mapping[str, Any], rest: dict[str, Any]) -> None:
        session, content, call_id = self.session, read_content(message), as_text(message.get("toolCallId"))
        failed = message.get("isError")
        ix = session.conversation.add(
            role="tool",
            role_raw="toolResult",
            name=as_text(message.get("toolName")),
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=call_id,
            extra=dumps(rest) if rest else None,
        )
        session.conversation.result(ix, is_error=failed if isinstance(failed, bool) else None)
        code = as_int(as_dict(message.get("details")).get("exitCode"))
        if code:
            session.patch(call_id, **failure(code))

    def _shell(self, role: str, message: Mapping[str, Any], rest: dict[str, Any]) -> None:
        """A command that the user ran in the agent's terminal: a call of the user with its result."""
        session, output = self.session, read_content(message, "output")
        ix = session.conversation.add(role="user", role_raw=role, content=None, content_state="missing")
        key = "code" if "code" in message else "command"
        call_id = f"call_{ix}_0"  # the one that a call without an id is given
        session.conversation.call(ix, call_id=None, name=role, kind="shell", arguments={key: message.get(key)})
        shown = session.conversation.add(
            role="tool",
            role_raw=role,
            content=output.text,
            content_state="truncated" if message.get("truncated") is True else output.state,
            parts=output.parts,
            tool_call_id=call_id,
            extra=dumps(rest) if rest else None,
        )
        code = as_int(message.get("exitCode"))
        session.conversation.result(shown, is_error=None if code is None else code != 0)
        stopped = {"error_type": "interrupted"} if message.get("cancelled") is True else {}
        session.patch(call_id, **failure(code), **stopped)


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Disjoint buckets to the normal form."""
    fresh, read, write = (count(usage.get(key)) for key in ("input", "cacheRead", "cacheWrite"))
    known = [number for number in (fresh, read, write) if number is not None]
    return Usage(
        input_tokens=sum(known) if known else None,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=count(usage.get("output")),
        reasoning_tokens=count(usage.get("reasoning")),
    )
