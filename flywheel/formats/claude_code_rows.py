"""The lines of one Claude Code session to rows.

A message of the API stands on several lines, one block each: they make one assistant row, with the usage of the last of
them. `parentUuid` gives the tree; edits make branches, a compaction a new root. Results of parallel calls stand in a
row, although each of their lines names the line of its own call. Lines that are no message are events in the tree.
What the harness put in (hooks, caveats, summaries) is `is_synthetic`, an error of the API in an answer's place too.

Not covered: which lines belong to a session (`claude_code.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flywheel.formats.anthropic_blocks import add_message
from flywheel.formats.anthropic_call import anthropic_usage
from flywheel.formats.claude_code_lines import Line, blocks_of_all, without_repeats
from flywheel.formats.reader import as_dict, as_float, as_list, as_text, first_text
from flywheel.formats.session import MODEL_ENDS, Session, exit_code, failure, text_of, usage_columns, word
from flywheel.formats.times import read_time
from flywheel.formats.usage import money

_COMMON = ("cwd", "gitBranch", "version", "userType", "entrypoint", "slug", "teamName", "sessionKind")
_LINE = {
    "type", "uuid", "parentUuid", "timestamp", "message", "isSidechain", "agentId", "sessionId", "session_id",
    "parent_tool_use_id",
}  # fmt: skip
_MESSAGE = {"role", "content", "id", "model"}
_INTERRUPT = "[Request interrupted by user"
_SYNTHETIC = "<synthetic>"
_RESULTS = {
    "success": "completed",
    "error_max_turns": "max_turns",
    "error_during_execution": "agent_error",
    "error_max_budget_usd": "cancelled",
    "error_max_structured_output_retries": "agent_error",
}
_REJECTED = (
    ("The user doesn't want to proceed", "user_rejected"),
    ("The user doesn't want to take this action", "user_rejected"),
    ("User rejected", "user_rejected"),
    ("Permission to use", "permission_denied"),
    ("Claude requested permissions", "permission_denied"),
)
_FAILED = (
    ("Command timed out", "timeout"),
    ("<tool_use_error>InputValidationError", "invalid_arguments"),
    ("<tool_use_error>", "tool_use_error"),
    (_INTERRUPT, "interrupted"),
)


def build(
    session: Session, lines: Sequence[Line], loose: Sequence[Mapping[str, Any]], id_of_agent: Callable[[str], str]
) -> None:
    """Fill a session from its lines in order. `id_of_agent` gives the trajectory of a subagent by its name."""
    writer = _Writer(session, without_repeats(lines), id_of_agent)
    for line in writer.lines:
        writer.add(line)
    for value in loose:
        writer.loose(value)
    session.columns["agent_version"] = as_text(session.metadata.pop("version", None))


class _Writer:
    """The lines of one session, in order."""

    def __init__(self, session: Session, lines: list[Line], id_of_agent: Callable[[str], str]) -> None:
        self.session = session
        self.lines = lines
        self.id_of_agent = id_of_agent
        self.parts: dict[str, list[dict[str, Any]]] = {}  # id of an API message -> its lines
        uuids = {as_text(line.value.get("uuid")) for line in lines} - {None}
        self.is_tree = any(first_text(line.value, "parentUuid") in uuids for line in lines)
        for line in lines:
            if (message_id := self._message_id(line.value)) is not None:
                self.parts.setdefault(message_id, []).append(line.value)
        self.done: dict[str, int] = {}  # id of an API message -> its last row
        self.callers: dict[str, int] = {}  # call id -> the row that made it
        self.answers: dict[int, int] = {}  # row of a result -> the row that made the call
        self.results: dict[int, int] = {}  # row that made calls -> row of its last result so far

    @staticmethod
    def _message_id(line: Mapping[str, Any]) -> str | None:
        return as_text(as_dict(line.get("message")).get("id")) if line.get("type") == "assistant" else None

    def add(self, line: Line) -> None:
        value, session = line.value, self.session
        message_id, uuid = self._message_id(value), as_text(value.get("uuid"))
        if message_id in self.done:
            if uuid is not None:
                session.rows[uuid] = self.done[message_id or ""]
            return
        first = len(session.steps)
        if value.get("type") in ("user", "assistant") and isinstance(value.get("message"), dict):
            is_answer = value["type"] == "assistant"
            rows = self._answer(value, message_id) if is_answer else self._told(value)
        else:
            rows = (self._event(value),)
        for ix in rows:
            session.set(ix, native_id=uuid)
        session.stamp(first, value.get("timestamp"))
        self._place(first, rows, value, uuid)
        if message_id is not None:
            self.done[message_id] = rows[-1]

    def _place(self, first: int, rows: Sequence[int], line: Mapping[str, Any], uuid: str | None) -> None:
        session, parent = self.session, first_text(line, "parentUuid")
        session.place(first, uuid, parent, is_root=self.is_tree and parent is None and "parentUuid" in line)
        if parent is not None and parent not in session.rows:
            session.more(first, {"parentUuid": parent})
        row = session.steps[first]
        above = session.rows.get(parent or "")
        caller = above if row.role == "tool" else None
        caller = self.answers.get(above, caller) if above is not None else None
        if caller is not None and self.results.get(caller, -1) > (above or 0):
            session.set(first, parent_ix=self.results[caller])
        for ix in rows:
            made_by = self.callers.get(session.steps[ix].tool_call_id or "")
            if session.steps[ix].role == "tool" and made_by is not None:
                self.answers[ix], self.results[made_by] = made_by, ix

    def _rest(self, line: Mapping[str, Any]) -> dict[str, Any]:
        differs = self.session.common(line, _COMMON)
        return {key: item for key, item in line.items() if key not in _LINE and key not in _COMMON} | differs

    def _told(self, line: Mapping[str, Any]) -> tuple[int, ...]:
        session, result = self.session, line.get("toolUseResult")
        rest = {key: item for key, item in self._rest(line).items() if key != "toolUseResult"}
        synthetic = True if line.get("isMeta") is True or line.get("isCompactSummary") is True else None
        rows = add_message(session.conversation, line["message"], is_synthetic=synthetic)
        for ix in rows:
            if session.steps[ix].role == "tool":
                self._result(ix, result)
        content = session.steps[rows[-1]].content or ""
        told_already = result is None or result == content or result == f"Error: {content}"
        session.more(rows[-1], rest if told_already else {**rest, "toolUseResult": result})
        if content.startswith(_INTERRUPT):
            session.set(rows[-1], is_synthetic=True)
            session.columns |= {"end_reason": "user_abort", "end_reason_raw": content}
        elif not synthetic:
            session.go_on()
        return rows

    def _result(self, ix: int, result: Any) -> None:
        """What a result says about how its call went, beyond the flag of its block."""
        session, step, detail = self.session, self.session.steps[ix], as_dict(result)
        said = (step.content or "").lstrip()
        reason = next((kind for words, kind in _REJECTED if said.startswith(words)), None)
        if reason is not None:
            session.patch(step.tool_call_id, result_state="rejected", error_type=reason)
        failed = next((kind for words, kind in _FAILED if said.startswith(words)), None)
        if failed is None and detail.get("interrupted") is True:
            failed = "interrupted"
        code = exit_code(said) if said.startswith("Exit code") else None
        if failed is not None or code:
            session.patch(step.tool_call_id, error_type=failed or failure(code)["error_type"])
        agent = as_text(detail.get("agentId"))
        if agent is not None:
            session.patch(step.tool_call_id, subagent_trajectory_id=self.id_of_agent(agent))

    def _answer(self, line: Mapping[str, Any], message_id: str | None) -> tuple[int, ...]:
        session, parts = self.session, self.parts.get(message_id or "", [dict(line)])
        last, first = as_dict(parts[-1].get("message")), as_dict(line["message"])
        model = as_text(last.get("model"))
        made_up = model == _SYNTHETIC or line.get("isApiErrorMessage") is True
        finish = as_text(last.get("stop_reason"))
        content = blocks_of_all([as_dict(part.get("message")).get("content") for part in parts])
        rows = add_message(
            session.conversation,
            {"role": first.get("role") or "assistant", "content": content},
            llm_call_id=message_id,
            model=None if made_up else model,
            sampled=not made_up,
            is_synthetic=True if made_up else None,
        )
        session.set(rows[-1], finish_reason=finish, finish_reason_raw=finish)
        if not made_up:
            session.set(rows[-1], **usage_columns(anthropic_usage(last.get("usage"))))
        rest = self._rest(line) | self._leftovers(parts, made_up)
        if (cost := money(parts[-1].get("costUSD"))) is not None:  # the first versions' lines have one
            session.set(rows[-1], cost_usd=cost)
        session.more(rows[0], rest)
        if len(parts) > 1:
            session.stamp(rows[0], line.get("timestamp"))
            session.set(rows[-1], ts_end=read_time(parts[-1].get("timestamp")).at)
        for ix in rows:
            calls = (as_text(as_dict(block).get("id")) for block in as_list(content))
            self.callers |= {call_id: ix for call_id in calls if call_id is not None}
        self._ending(rows[-1], line, finish, made_up)
        return rows

    def _leftovers(self, parts: Sequence[Mapping[str, Any]], made_up: bool) -> dict[str, Any]:
        """What the message says besides its content, and what its other lines say that the last does not."""
        kept = _MESSAGE - {"model"} if made_up else _MESSAGE
        told = {key: item for key, item in as_dict(parts[-1].get("message")).items() if key not in kept}
        lines = []
        for nth, part in enumerate(parts):
            line = {key: part[key] for key in ("uuid", "timestamp") if key in part} | self._rest(part) if nth else {}
            usage = as_dict(part.get("message")).get("usage")
            line |= {} if usage is None or usage == told.get("usage") else {"usage": usage}
            lines += [line] if line else []
        return ({"message": told} if told else {}) | ({"lines": lines} if lines else {})

    def _ending(self, ix: int, line: Mapping[str, Any], finish: str | None, made_up: bool) -> None:
        session, said = self.session, self.session.steps[ix].content
        session.go_on()
        if line.get("isApiErrorMessage") is True:
            kind = first_text(line, "error", "apiErrorStatus") or "api_error"
            session.set(ix, error_type=kind, error_message=said)
            session.fail(kind, said)
        elif not made_up and finish is not None:
            session.columns |= {"end_reason": MODEL_ENDS.get(finish), "end_reason_raw": finish}

    def _event(self, line: Mapping[str, Any]) -> int:
        session, kind = self.session, word(line.get("type"))
        told = {key: item for key, item in line.items() if key not in ("uuid", "timestamp", *_COMMON)}
        told |= session.common(line, _COMMON)
        subtype = word(line.get("subtype")) or word(as_dict(line.get("attachment")).get("type"))
        ix = session.event(subtype or kind, told, line.get("content"), is_synthetic=True)
        if subtype == "api_error":
            error = line.get("error")
            session.set(ix, error_type=subtype, error_message=text_of(as_dict(error).get("message") or error))
        elif subtype == "max_turns_reached":
            session.columns |= {"end_reason": "max_turns", "end_reason_raw": subtype}
        elif subtype == "init":
            session.columns.setdefault("model", as_text(line.get("model")))
            session.metadata.setdefault("version", line.get("claude_code_version"))
        return ix

    def loose(self, line: Mapping[str, Any]) -> None:
        """A line that has no place in the tree. The last one of a stream says how the run ended."""
        session = self.session
        session.extra.setdefault("lines", []).append(dict(line))
        if not session.steps:
            session.event(word(line.get("type")), line, line.get("summary"))
        if line.get("type") != "result":
            return
        raw = word(line.get("subtype"))
        cost, duration = money(line.get("total_cost_usd")), as_float(line.get("duration_ms"))
        session.columns |= {"end_reason": _RESULTS.get(raw, "unknown"), "end_reason_raw": raw or None}
        if line.get("is_error") is True and raw == "success":
            session.fail("result_error", text_of(line.get("result")))
        if cost is not None:
            session.columns |= {"cost_usd": cost, "cost_source": "recorded"}
        if duration is not None:
            session.columns["duration_ms"] = duration
