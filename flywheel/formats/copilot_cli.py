"""GitHub Copilot CLI: `events.jsonl` of `~/.copilot/session-state`, lines `{type, id, parentId, timestamp, data}`.

Messages and results become rows; every other event is kept as one (deltas of streams, which messages repeat, too).
A prompt stands twice where hooks are on (`hook.start` of `userPromptSubmitted`, `user.message`): the second is the row,
the first an event, unless it is alone. `session.shutdown` counts tokens by model for the whole session.

Not covered: `workspace.yaml` and checkpoints beside the events; VS Code's own chat sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import Session, exit_code, failure, text_of, usage_columns, without, word
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count
from flywheel.records import Fragment, Reject

_PREFIXES = ("session.", "assistant.", "user.", "tool.", "hook.", "system.", "subagent.", "skill.", "abort")
_ANSWER = {"messageId", "content", "toolRequests", "reasoningText", "model", "encryptedContent", "reasoningOpaque"}
_RESULT = {"toolCallId", "model", "success", "result", "error"}
_REJECTED = ("rejected", "denied", "user_rejected", "permission_denied")


class CopilotCli:
    """The reader."""

    name = "copilot_cli"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        lines = [as_dict(value) for value in head.values]
        good = [line for line in lines if _is_event(line) and word(line["type"]).startswith(_PREFIXES)]
        if not good:
            return None
        start = next((as_dict(line["data"]) for line in good if line["type"] == "session.start"), {})
        version = as_text(start.get("copilotVersion"))
        return Match(confidence=0.95 if start else round(0.9 * len(good) / len(lines), 3), version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        events: _Events | None = None
        for record in records:
            line = as_dict(record.value)
            if not _is_event(line):
                yield record.reject("not_copilot_cli", "the line is no event with a type and data")
                continue
            starts = line["type"] == "session.start"
            if events is None or (starts and as_text(as_dict(line["data"]).get("sessionId")) != events.native_id):
                yield from [] if events is None else [events.finish()]
                events = _Events(record, source)
            events.add(line)
        if events is not None:
            yield events.finish()


def _is_event(line: Mapping[str, Any]) -> bool:
    return bool(word(line.get("type"))) and isinstance(line.get("data"), dict)


class _Events:
    """The events of one session, in order."""

    def __init__(self, record: Record, source: Source) -> None:
        data = as_dict(as_dict(record.value).get("data"))
        self.native_id = as_text(data.get("sessionId")) or as_text(as_dict(data.get("input")).get("sessionId"))
        first = fingerprint(record.value)
        key = trajectory_id(CopilotCli.name, self.native_id or first, first)
        self.session = Session(CopilotCli.name, source, key, self.native_id, record.ix)
        self.session.columns |= {"session_id": self.native_id, "agent_name": "copilot-cli"}
        self.prompts: list[tuple[int, str]] = []  # rows of hooks that a prompt was given to
        self.model: str | None = None
        self.said: int | None = None
        self.asked: set[str | None] = set()  # calls that a row made
        self.outputs: dict[int, int | None] = {}  # tokens of answers: they count unless better is known

    def add(self, line: Mapping[str, Any]) -> None:
        session, kind, data, first = self.session, word(line["type"]), as_dict(line["data"]), len(self.session.steps)
        session.counted(kind)
        if kind == "user.message":
            self._user(data)
        elif kind == "assistant.message":
            self._answer(data)
        elif kind == "tool.execution_complete":
            self._result(data)
        elif kind == "tool.execution_start":
            self._started(data, line)
        else:
            self._other(kind, data, line)
        session.stamp(first, line.get("timestamp"))
        if len(session.steps) > first:
            self._place(first, line)

    def _place(self, first: int, line: Mapping[str, Any]) -> None:
        """Events follow one another; their `parentId` is the event before, kept where it is not in the rows."""
        session, entry, parent = self.session, as_text(line.get("id")), as_text(line.get("parentId"))
        for ix in range(first, len(session.steps)):
            session.set(ix, native_id=session.steps[ix].native_id or entry)
        rest = {key: item for key, item in line.items() if key not in ("type", "id", "parentId", "timestamp", "data")}
        rest |= {"id": entry} if session.steps[first].native_id != entry else {}
        if parent is not None and parent not in session.rows:
            rest["parentId"] = parent
        session.more(first, rest)
        session.place(first, entry)

    def finish(self) -> Fragment:
        """The rows, after the last event: a prompt that only a hook saw becomes the user's message."""
        spoken = {step.content for step in self.session.steps if step.role == "user"}
        for ix, prompt in self.prompts:
            if prompt not in spoken:
                self.session.set(ix, role="user", content=prompt, content_state="present", is_synthetic=None)
        if "output_tokens" not in self.session.columns and not any(s.input_tokens for s in self.session.steps):
            for ix, tokens in self.outputs.items():
                self.session.set(ix, output_tokens=tokens)
        self.session.columns.setdefault("model", self.model)
        return self.session.fragment()

    def _user(self, data: Mapping[str, Any]) -> None:
        content, rest = read_content(data), without(data, "content")
        self.session.conversation.add(
            role="user",
            role_raw="user.message",
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            is_synthetic=True if data.get("source") not in (None, "user") else None,
            extra=dumps(rest) if rest else None,
        )
        self.session.go_on()

    def _answer(self, data: Mapping[str, Any]) -> None:
        session, content = self.session, read_content(data)
        opaque = {key: data[key] for key in ("encryptedContent", "reasoningOpaque") if data.get(key) is not None}
        rest = {key: item for key, item in data.items() if key not in _ANSWER}
        ix = session.conversation.add(
            native_id=as_text(data.get("messageId")),
            role="assistant",
            role_raw="assistant.message",
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            reasoning=as_text(data.get("reasoningText")),
            reasoning_opaque=dumps(opaque) if opaque else None,
            sampled=True,
            model=as_text(data.get("model")) or self.model,
            extra=dumps(rest) if rest else None,
        )
        self.outputs[ix] = count(data.get("outputTokens"))
        for request in map(as_dict, as_list(data.get("toolRequests"))):
            self.asked.add(as_text(request.get("toolCallId")))
            session.conversation.call(
                ix,
                call_id=as_text(request.get("toolCallId")),
                name=as_text(request.get("name")),
                kind="custom" if request.get("type") == "custom" else "function",
                arguments=request.get("arguments"),
                extra={key: item for key, item in request.items() if key not in ("toolCallId", "name", "arguments")},
            )
        self.said = ix
        session.go_on()

    def _started(self, data: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        """A call begins: one that no message asked for (there are such versions) is made here."""
        session, call_id = self.session, as_text(data.get("toolCallId"))
        time, name = read_time(line.get("timestamp")), as_text(data.get("toolName"))
        if call_id not in self.asked:
            self.asked.add(call_id)
            ix = session.conversation.add(role="assistant", role_raw="tool.execution_start", content_state="missing")
            session.conversation.call(
                ix, call_id=call_id, name=name, kind="function", arguments=data.get("arguments"), extra={}
            )
        rest = without(data, "toolCallId", "toolName", "arguments")
        told = {"event": as_text(line.get("id")), "timestamp": line.get("timestamp"), **rest}
        session.patch(call_id, started_at=time.at, extra={"execution_start": told})

    def _result(self, data: Mapping[str, Any]) -> None:
        session, call_id = self.session, as_text(data.get("toolCallId"))
        result, error, succeeded = data.get("result"), data.get("error"), data.get("success")
        detail = as_dict(error)
        shown = as_dict(result).get("content", result) if result is not None else detail.get("message", error)
        content, rest = read_content({"content": shown}), {k: v for k, v in data.items() if k not in _RESULT}
        more = without(result, "content") | ({"error": error} if error is not None else {})
        ix = session.conversation.add(
            role="tool",
            role_raw="tool.execution_complete",
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=call_id,
            extra=dumps(rest | ({"result": more} if more else {})) if rest or more else None,
        )
        failed = None if not isinstance(succeeded, bool) else not succeeded
        session.conversation.result(ix, is_error=failed)
        code, kind = exit_code(content.text), as_text(detail.get("code"))
        columns = failure(code) if code else {}
        columns |= {"error_type": kind} if kind else {}
        columns |= {"result_state": "rejected"} if kind in _REJECTED else {}
        session.patch(call_id, **columns)
        model = as_text(data.get("model"))
        self.model = model or self.model
        if self.said is not None and model is not None and session.steps[self.said].model is None:
            session.set(self.said, model=model)
        session.go_on()

    def _other(self, kind: str, data: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        session, given = self.session, as_dict(data.get("input"))
        if kind == "session.start" and not session.metadata:
            session.metadata |= {**as_dict(data.get("context")), **without(data, "context", "sessionId")}
            session.columns["agent_version"] = as_text(data.get("copilotVersion"))
            session.extra["start"] = {key: line.get(key) for key in ("id", "timestamp")}
            return
        if kind == "system.message" and isinstance(data.get("content"), str):
            role = "system" if data.get("role") in (None, "system", "developer") else "event"
            rest = without(data, "content", "role")
            self.session.conversation.add(
                role=role,
                role_raw=kind,
                content=data["content"],
                content_state="present",
                extra=dumps({**rest, "role": data.get("role")}),
            )
            return
        said = text_of(data.get("message") or data.get("content") or data.get("summaryContent"))
        ix = session.event(kind, {"type": kind, "data": data}, said, is_synthetic=True)
        if kind == "hook.start" and isinstance(given.get("prompt"), str):
            self.prompts.append((ix, given["prompt"]))
        elif kind == "session.model_change":
            self.model = as_text(data.get("newModel"))
        elif kind == "session.error":
            session.set(ix, error_type=as_text(data.get("errorType")) or kind, error_message=said)
            session.fail(as_text(data.get("errorType")) or kind, said)
        elif kind == "abort":
            session.columns |= {"end_reason": "user_abort", "end_reason_raw": as_text(data.get("reason")) or kind}
        elif kind == "session.task_complete":
            session.columns |= {"end_reason": "completed", "end_reason_raw": kind}
        elif kind == "assistant.usage":
            self._usage(data)
        elif kind == "session.shutdown":
            self._totals(data)

    def _usage(self, data: Mapping[str, Any]) -> None:
        if self.said is not None:
            self.session.set(self.said, **usage_columns(_read_usage(data)), model=as_text(data.get("model")))

    def _totals(self, data: Mapping[str, Any]) -> None:
        """Tokens of the whole session; they count where the answers have none of their own."""
        usages = [_read_usage(as_dict(as_dict(m).get("usage"))) for m in as_dict(data.get("modelMetrics")).values()]
        for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"):
            known = [number for usage in usages if (number := getattr(usage, name)) is not None]
            if known:
                self.session.columns[name] = sum(known)
        kind = as_text(data.get("shutdownType"))
        if kind == "error":
            self.session.fail(kind, text_of(data.get("errorReason")), "agent_error")
        elif "end_reason" not in self.session.columns:
            self.session.columns |= {"end_reason": "completed" if kind == "routine" else None, "end_reason_raw": kind}


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(usage.get("inputTokens")),
        cache_read_tokens=count(usage.get("cacheReadTokens")),
        cache_write_tokens=count(usage.get("cacheWriteTokens")),
        output_tokens=count(usage.get("outputTokens")),
        reasoning_tokens=count(usage.get("reasoningTokens")),
    )
