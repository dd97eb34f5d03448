"""Codex CLI's event stream: what `codex exec --json` prints, one event a line.

    {type: thread.started, thread_id}  {type: turn.started}  {type: item.started | item.updated | item.completed, item}
    {type: turn.completed, usage}  {type: turn.failed, error}  {type: error, message}

An item counts as it was last: what the model said is a row, what it did is a call with its result. The prompt is not in
the stream, so the content is not complete. Usage is that of the whole turn, so it stands at its last answer.

Versions before 0.44 printed other events, which are made into these (`codex_exec_old.py`).

Not covered: rollout files (`codex_cli.py`), which hold everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.codex_exec_old import as_new, is_old
from flywheel.formats.messages import Conversation
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_int, as_text, fingerprint, trajectory_id
from flywheel.formats.session import Session, failure, text_of, usage_columns, without, word
from flywheel.formats.usage import Usage, count
from flywheel.records import Fragment, Reject

_PREFIXES = ("thread.", "turn.", "item.")
_CALLS = {  # type of an item -> (name, kind, its arguments)
    "command_execution": ("shell", "shell", ("command",)),
    "file_change": ("apply_patch", "builtin", ("changes",)),
    "mcp_tool_call": (None, "mcp", ("arguments",)),
    "collab_tool_call": (None, "builtin", ("prompt", "receiver_thread_ids")),
    "web_search": ("web_search", "builtin", ("query", "action")),
}
_ITEM = {"id", "type", "text", "command", "aggregated_output", "changes", "arguments", "query", "action", "prompt",
         "receiver_thread_ids", "tool"}  # fmt: skip


class CodexExec:
    """The reader."""

    name = "codex_exec"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        kinds = [word(as_dict(value).get("type")) for value in head.values]
        if sum(map(is_old, head.values)) * 2 > len(head.values):
            return Match(confidence=0.95, version="msg")
        own = [kind for kind in kinds if kind.startswith(_PREFIXES)]
        named = any("thread_id" in as_dict(value) for value in head.values) or any(map(_is_item, head.values))
        return Match(confidence=0.95) if named and len(own) * 2 > len(kinds) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        run: _Run | None = None
        for record in records:
            event, old = as_dict(record.value), is_old(record.value) or _is_heading(record.value)
            if old:
                event = as_new(event, record.ix) or {"type": "turn.noted"}
            kind = word(event.get("type"))
            if not kind.startswith(_PREFIXES) and kind != "error":
                yield record.reject("not_codex_exec", "the line is no event of codex exec")
                continue
            if run is None or (kind == "thread.started" and run.items):
                yield from [] if run is None else run.fragments()
                run = _Run(record, event, source)
            run.add(kind, event)
        if run is not None:
            yield from run.fragments()


def _is_heading(value: Any) -> bool:
    """The lines before the older stream: the settings, the prompt."""
    line = as_dict(value)
    return "type" not in line and ("prompt" in line or line.keys() >= {"workdir", "model"})


def _is_item(value: Any) -> bool:
    return word(as_dict(value).get("type")).startswith("item.") and "type" in as_dict(as_dict(value).get("item"))


class _Run:
    """The events of one thread; items are made into rows when it ends, in the order in which they began."""

    def __init__(self, record: Record, event: Mapping[str, Any], source: Source) -> None:
        native, first = as_text(event.get("thread_id")), fingerprint(record.value)
        key = trajectory_id(CodexExec.name, native or first, first)
        self.session = Session(CodexExec.name, source, key, native, record.ix)
        self.session.columns |= {"session_id": native, "agent_name": "codex", "content_complete": False}
        self.session.flags["no_prompt"] = None
        self.items: dict[str, tuple[str, Mapping[str, Any]]] = {}  # id -> the last event of it
        self.turns = 0
        self.signs: list[Any] = [first]  # what the run is known by where it has no id: how it begins
        self.is_known = native is not None

    def add(self, kind: str, event: Mapping[str, Any]) -> None:
        self.session.counted(kind)
        item = as_dict(event.get("item"))
        if kind.startswith("item."):
            name = f"{self.turns} {as_text(item.get('id')) or len(self.items)}"
            self._sign(item)
            self.items[name] = (kind, {**self.items[name][1], **item} if name in self.items else item)
        elif kind == "thread.started":
            self._started(event)
        elif kind not in ("turn.started", "turn.noted"):
            self.items[f"{self.turns} {kind} {len(self.items)}"] = (kind, event)
        self.turns += kind in ("turn.completed", "turn.failed")

    def _sign(self, item: Mapping[str, Any]) -> None:
        """Many runs have the same settings and prompt; what the model did first tells them apart, and stays."""
        if not self.is_known:
            self.signs.append([item.get(key) for key in ("type", "text", "command", "arguments", "changes")])
            self.is_known = item.get("type") != "user_message"

    def _started(self, event: Mapping[str, Any]) -> None:
        self.session.columns |= {"model": as_text(event.get("model"))} if "model" in event else {}
        self.session.metadata |= {
            key: value for key, value in event.items() if key not in ("type", "thread_id", "model")
        }

    def fragments(self) -> Iterator[Fragment]:
        if self.session.native_id is None:
            self.session.trajectory_id = trajectory_id(CodexExec.name, fingerprint(self.signs), self.signs[0])
            self.session.conversation = Conversation(self.session.trajectory_id)
        for kind, item in self.items.values():
            if kind.startswith("item."):
                self._item(item)
            else:
                self._ended(kind, item)
        if self.session.steps:
            yield self.session.fragment()

    def _item(self, item: Mapping[str, Any]) -> None:
        session, kind = self.session, word(item.get("type"))
        rest = {key: value for key, value in item.items() if key not in _ITEM and value is not None}
        if kind in ("agent_message", "reasoning"):
            text = text_of(item.get("text"))
            said = {"content": text, "content_state": "present"} if kind == "agent_message" else {"reasoning": text}
            ix = session.conversation.add(
                native_id=as_text(item.get("id")),
                role="assistant",
                role_raw=kind,
                sampled=True,
                **{"content_state": "missing", **said},
            )
            session.more(ix, rest)
            session.go_on()
        elif kind == "user_message":
            text = text_of(item.get("text"))
            session.conversation.add(role="user", role_raw=kind, content=text, content_state="present")
            session.flags.pop("no_prompt", None)
            session.columns["content_complete"] = True
        elif kind in _CALLS:
            self._call(kind, item, rest)
        else:
            ix = session.event(kind, item, item.get("message") or item.get("text"))
            if kind == "error":
                session.set(ix, error_type=kind, error_message=text_of(item.get("message")))

    def _call(self, kind: str, item: Mapping[str, Any], rest: dict[str, Any]) -> None:
        session, (name, what, keys) = self.session, _CALLS[kind]
        arguments = {key: item[key] for key in keys if key in item}
        ix = session.conversation.add(role="assistant", role_raw=kind, content_state="missing", sampled=True)
        call_id, nth = as_text(item.get("id")), f"call_{ix}_0"
        session.conversation.call(
            ix,
            call_id=call_id,
            name=as_text(item.get("tool")) or name,
            kind=what,
            arguments=item.get("arguments") if keys == ("arguments",) else arguments,
            extra=rest,
        )
        status, code = word(item.get("status")), as_int(item.get("exit_code"))
        error = as_dict(item.get("error"))
        output = item.get("aggregated_output", error.get("message") if error else item.get("result"))
        session.go_on()
        if status == "in_progress" or (output is None and not status):
            return
        text = text_of(output)
        shown = session.conversation.add(
            role="tool",
            role_raw=kind,
            content=text,
            content_state="missing" if text is None else "present",
            tool_call_id=call_id or nth,
        )
        failed = status in ("failed", "declined") or bool(error) or bool(code)
        session.conversation.result(shown, is_error=failed)
        columns = failure(code) if code else {"error_type": "mcp_error"} if error else {}
        columns |= {"result_state": "rejected", "error_type": "user_rejected"} if status == "declined" else {}
        session.patch(call_id or nth, **columns)

    def _ended(self, kind: str, event: Mapping[str, Any]) -> None:
        session = self.session
        if kind in ("turn.completed", "turn.usage"):
            answer = next((s.step_ix for s in reversed(session.steps) if s.role == "assistant"), None)
            usage = as_dict(event.get("usage"))
            if answer is not None and usage:
                session.set(
                    answer,
                    **usage_columns(
                        Usage(
                            input_tokens=count(usage.get("input_tokens")),
                            cache_read_tokens=count(usage.get("cached_input_tokens")),
                            output_tokens=count(usage.get("output_tokens")),
                            reasoning_tokens=count(usage.get("reasoning_output_tokens")),
                        )
                    ),
                )
            if kind == "turn.completed":
                session.columns |= {"end_reason": "completed", "end_reason_raw": kind}
            return
        message = text_of(as_dict(event.get("error")).get("message") or event.get("message"))
        ix = session.event(kind, without(event), message)
        session.set(ix, error_type=kind, error_message=message)
        session.fail(kind, message)
