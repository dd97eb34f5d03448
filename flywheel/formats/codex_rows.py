"""The lines of one Codex rollout to rows.

What the model said between two inputs (reasoning, words, calls) is gathered and becomes one assistant row; the token
count that follows belongs to its last row. Everything that ends a run ends the session unless it goes on.

Not covered: which lines are of a rollout (`codex_cli.py`), the items themselves (`openai_response_items.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.codex_calls import ended_columns, result_columns
from flywheel.formats.openai_response_items import add_items
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_int, as_list, as_text, trajectory_id
from flywheel.formats.session import Session, text_of, usage_columns, without, word
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count

_SAID = {
    "reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call", "mcp_call", "computer_call", "file_search_call", "code_interpreter_call",
}  # fmt: skip
_REPEATS = {"user_message": "message", "agent_message": "message", "agent_reasoning": "text"}
_SILENT = {"agent_reasoning_raw_content", "agent_reasoning_section_break", "task_started", "turn_started"}
_ENDS = {"task_complete": "completed", "turn_complete": "completed"}
_HARNESS = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill>",
    "<permissions instructions>", "<user_shell_command>", "<subagent_notification>", "<collaboration_mode>",
)  # fmt: skip
_ABORTS = {"interrupted": "user_abort", "budget_limited": "max_turns", "review_ended": "cancelled"}


class Rollout:
    """The lines of one rollout, in order."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.model: str | None = None
        self.context: Mapping[str, Any] | None = None
        self.open: list[tuple[Mapping[str, Any], Any]] = []  # what the model said since the last input, with its time
        self.said: int | None = None  # its last row
        self.thoughts: list[str] = []  # shown, but in no item (yet)
        self.shown: list[dict[str, Any]] = []  # events that repeat items
        self.turns: list[int] = []  # rows at which turns of the user began
        self.follow: int | None = None  # the row that the next one follows, after a rollback
        self.root = False  # the next row begins anew, after a compaction
        self.totals: dict[str, Any] | None = None

    def add(self, line: Mapping[str, Any]) -> None:
        kind, payload, time = word(line.get("type")), as_dict(line.get("payload")), line.get("timestamp")
        self.session.counted(kind)
        if kind == "response_item":
            self._item(payload, time)
        elif kind == "event_msg":
            self._event(word(payload.get("type")), payload, line)
        elif kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context":
            self._context(payload, time)
        elif kind == "compacted":
            self._compacted(payload, time)
        else:
            self._row(line, kind)

    def finish(self) -> Session:
        """The session, after its last line."""
        self._flush()
        session = self.session
        texts = {text for step in session.steps for text in (step.content, step.reasoning) if text}
        joined = "\0".join(texts)
        for shown in self.shown:
            line, key = shown, _REPEATS[shown["payload"]["type"]]
            if (text_of(shown["payload"].get(key)) or "") in joined:
                line = {**shown, "payload": without(shown["payload"], key)}
            session.extra.setdefault("event_msgs", []).append(line)
        session.columns.setdefault("model", self.model)
        return session

    def _meta(self, meta: Mapping[str, Any]) -> None:
        session = self.session
        if session.steps or "cwd" in session.metadata:
            session.extra.setdefault("session_metas", []).append(dict(meta))  # of the ancestor whose history is copied
            session.columns.setdefault("continued_from", self._id_of(meta, "id"))
            return
        base = as_dict(meta.get("base_instructions")).get("text", meta.get("base_instructions"))
        known = ("id", "instructions", "base_instructions", "cli_version", "model_provider")
        session.metadata |= {key: item for key, item in meta.items() if key not in known}
        session.columns |= {
            "agent_version": as_text(meta.get("cli_version")),
            "provider": as_text(meta.get("model_provider")),
        }
        spawn = as_dict(as_dict(as_dict(meta.get("source")).get("subagent")).get("thread_spawn"))
        parent = self._id_of(spawn, "parent_thread_id") or self._id_of(meta, "parent_thread_id")
        session.columns |= {"parent_trajectory_id": parent, "continued_from": self._id_of(meta, "forked_from_id")}
        if session.columns["continued_from"] is None:
            del session.columns["continued_from"]
        for key, text in (("base_instructions", base), ("instructions", meta.get("instructions"))):
            if text is not None:
                ix = session.conversation.add(
                    role="system", role_raw=key, content=text_of(text), content_state="present", is_synthetic=True
                )
                session.stamp(ix, meta.get("timestamp"))

    def _id_of(self, value: Mapping[str, Any], key: str) -> str | None:
        native = as_text(value.get(key))
        return None if native is None else trajectory_id(self.session.format, native, "")

    def _context(self, context: Mapping[str, Any], time: Any) -> None:
        self.model = as_text(context.get("model")) or self.model
        if self.context is None:
            self.context = context
            self.session.columns["sampling"] = dumps(dict(context))
            self.session.extra["turn_contexts"] = [{"timestamp": time}]
        elif context != self.context:
            changed = {key: item for key, item in context.items() if self.context.get(key) != item}
            self.session.extra["turn_contexts"].append({"timestamp": time, **changed})
            self.context = context

    # --- Items ------------------------------------------------------------------------------------------------

    def _item(self, item: Mapping[str, Any], time: Any, copied: bool = False) -> None:
        kind = word(item.get("type"))
        is_answer = kind == "message" and item.get("role") == "assistant"
        if is_answer or kind in _SAID:
            self.open.append((item, time))
            return
        self._flush()
        first = len(self.session.steps)
        add_items(self.session.conversation, [_as_known(item)])
        self._placed(first, time)
        step = self.session.steps[first]
        if step.role == "user":
            if (step.content or "").lstrip().startswith(_HARNESS):
                self.session.set(first, is_synthetic=True)
            else:
                self.turns.append(first)
        elif step.role == "tool":
            self.session.patch(step.tool_call_id, **result_columns(step.content or "", item.get("output")))
        if copied:
            self._copied(first)
        self.session.go_on()

    def _flush(self, copied: bool = False) -> None:
        """What the model said so far becomes rows."""
        if not self.open:
            return
        session, first = self.session, len(self.session.steps)
        rows = add_items(
            session.conversation, [_as_known(item) for item, _ in self.open], sampled=True, model=self.model
        )
        self._placed(first, self.open[0][1])
        self.said = rows[-1] if rows else first
        if self.open[-1][1] != self.open[0][1]:
            session.set(self.said, ts_end=read_time(self.open[-1][1]).at)
        if self.thoughts and session.steps[first].reasoning is None:
            session.set(first, reasoning="\n".join(self.thoughts))
        self.thoughts.clear()
        self.open.clear()
        if copied:
            self._copied(first)
        session.go_on()

    def _placed(self, first: int, time: Any) -> None:
        session = self.session
        session.stamp(first, time)
        if self.root:
            session.set(first, parent_ix=None)
        elif self.follow is not None:
            session.set(first, parent_ix=self.follow if self.follow >= 0 else None)
        self.root, self.follow = False, None

    def _copied(self, first: int) -> None:
        for ix in range(first, len(self.session.steps)):
            self.session.set(ix, is_copied_context=True)

    def _compacted(self, payload: Mapping[str, Any], time: Any) -> None:
        """The history was replaced: what follows saw the summary and what was kept, which is repeated here."""
        self._flush()
        told = {key: item for key, item in payload.items() if key != "replacement_history"}
        ix = self.session.event("compacted", told, payload.get("message"), is_synthetic=True)
        self.session.stamp(ix, time)
        self.session.set(ix, parent_ix=None)
        for item in as_list(payload.get("replacement_history")):
            self._item(as_dict(item), time, copied=True)
        self._flush(copied=True)

    # --- Events -----------------------------------------------------------------------------------------------

    def _event(self, kind: str, payload: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        session = self.session
        if kind in _REPEATS:
            self.shown.append(dict(line))
            if kind == "agent_reasoning" and (text := text_of(payload.get("text"))):
                self.thoughts.append(text)
            elif kind == "user_message":
                self._flush()
        elif kind == "token_count":
            self._tokens(payload, line)
        elif kind in _SILENT:
            session.extra.setdefault("turns", []).append(dict(line))
        elif kind in _ENDS:
            self._flush()
            session.extra.setdefault("turns", []).append(dict(line))
            session.columns |= {"end_reason": _ENDS[kind], "end_reason_raw": kind}
        elif kind == "turn_aborted":
            self._row(line, kind)
            reason = word(payload.get("reason"))
            session.columns |= {"end_reason": _ABORTS.get(reason, "cancelled"), "end_reason_raw": f"{kind}:{reason}"}
        elif kind in ("error", "stream_error"):
            self._error(kind, payload, line)
        elif kind == "thread_rolled_back":
            self._rolled_back(payload, line)
        elif (call_id := as_text(payload.get("call_id"))) is not None and kind.endswith("_end"):
            self._flush()
            session.patch(call_id, **ended_columns(payload), extra={kind: without(payload, "type", "call_id")})
        else:
            self._row(line, kind)

    def _row(self, line: Mapping[str, Any], kind: str) -> int:
        self._flush()
        first = len(self.session.steps)
        told = {key: item for key, item in line.items() if key != "timestamp"}
        ix = self.session.event(kind, told, as_dict(line.get("payload")).get("message"), is_synthetic=True)
        self._placed(first, line.get("timestamp"))
        return ix

    def _tokens(self, payload: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        """The tokens of the last answer, and the sum so far; the event is repeated when nothing new was counted."""
        self._flush()
        info = as_dict(payload.get("info"))
        last, totals = as_dict(info.get("last_token_usage")), as_dict(info.get("total_token_usage"))
        if payload.get("rate_limits") is not None:
            self.session.extra["rate_limits"] = payload["rate_limits"]  # the latest
        if not last or totals == self.totals or self.said is None:
            return
        self.totals = totals
        if self.session.steps[self.said].input_tokens is not None:  # a call whose answer left no item
            self.session.extra.setdefault("token_counts", []).append(dict(line))
            return
        usage = Usage(
            input_tokens=count(last.get("input_tokens")),
            cache_read_tokens=count(last.get("cached_input_tokens")),
            output_tokens=count(last.get("output_tokens")),
            reasoning_tokens=count(last.get("reasoning_output_tokens")),
        )
        self.session.set(self.said, **usage_columns(usage))
        self.session.more(self.said, {"token_count": info})

    def _error(self, kind: str, payload: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        ix, message, info = self._row(line, kind), text_of(payload.get("message")), payload.get("codex_error_info")
        name = as_text(info) or next(iter(as_dict(info)), kind)
        self.session.set(ix, error_type=name, error_message=message)
        if kind == "error":
            self.session.fail(name, message)
            if name == "context_window_exceeded":
                self.session.columns["end_reason"] = "context_overflow"

    def _rolled_back(self, payload: Mapping[str, Any], line: Mapping[str, Any]) -> None:
        self._row(line, "thread_rolled_back")
        turns = as_int(payload.get("num_turns")) or 0
        if 0 < turns <= len(self.turns):
            start = self.turns[-turns]
            parent = self.session.steps[start].parent_ix
            self.follow = -1 if parent is None else parent
            del self.turns[-turns:]


def _as_known(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The search for tools, which Codex runs itself, as a call and its output."""
    if item.get("type") == "tool_search_call":
        rest = {key: value for key, value in item.items() if key != "arguments"} | {"item": item["type"]}
        return {"name": "tool_search", **rest, "type": "custom_tool_call", "input": item.get("arguments")}
    if item.get("type") == "tool_search_output":
        rest = {key: value for key, value in item.items() if key != "tools"} | {"item": item["type"]}
        return {**rest, "type": "custom_tool_call_output", "output": item.get("tools")}
    return item
