"""The calls of one agent to one message graph: each call repeats the conversation, the graph has every message once.

Calls come in order of time. What a call was told is walked down from the root as far as it agrees with what is known
(role, content, calls); what it adds becomes new messages, then what the model said: only that is `sampled`. Where two
calls part, the graph branches. A call that was told only the results of tools (the provider keeps the rest) goes on
below the message that called them. Calls without captured content follow one another in time.

A tool's span gives its result's row its times and error. A tool that no message speaks of gets rows of its own: below
the call that was made without captured content, or below a synthetic one where code called it.

Not covered: which spans are calls (`traces.py`), pairing of calls and results (`messages.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flywheel.formats.messages import Conversation, read_args, read_content
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import as_dict, as_list, as_text, fingerprint
from flywheel.formats.span_columns import tool_columns
from flywheel.formats.span_messages import TEXTS, Message, role_of
from flywheel.formats.span_view import Found, View
from flywheel.records import Step, ToolCall


@dataclass(slots=True)
class Node:
    """A message of the graph and the columns of its step that the message itself does not have."""

    parent: int | None
    message: Message
    columns: dict[str, Any]
    said_by: str | None = None  # "model" for what was sampled, "nobody" for a call whose content was not captured


@dataclass(slots=True)
class Graph:
    """Messages in the order they became known; parents stand before their children."""

    nodes: list[Node] = field(default_factory=list)
    tools: dict[int, tuple[View, Found]] = field(default_factory=dict)  # by the node of the result
    _children: dict[tuple[int | None, str], int] = field(default_factory=dict)
    _callers: dict[str, int] = field(default_factory=dict)  # call id -> the node that made it
    _results: dict[int, int] = field(default_factory=dict)  # caller -> the last result below it
    _waiting: list[tuple[View, Found]] = field(default_factory=list)
    _tip: int | None = None
    _silent: int | None = None  # the last call, if its answer was not captured

    def add_call(self, found: Found, columns: Mapping[str, Any], error: Mapping[str, Any]) -> None:
        """One call of a model: what it was told, then what it said. `error`: columns of one that failed."""
        if found.inputs is None:
            self.place_tools()
            parent = self._tip
        else:
            parent = self._walk(found.inputs)
        if found.outputs is None:
            spoke = None if error else "nobody"
            message: Message = {"role": "event" if error else "assistant"}
            self._tip = self._new(parent, message, {**columns, **error}, said_by=spoke)
            self._silent = None if error else self._tip
            return
        self._silent = None
        for n, choice in enumerate(found.outputs):
            own = dict(columns) if n == 0 else {key: columns[key] for key in _SHARED if key in columns}
            at = parent
            for message in choice:
                if role_of(message.get("role")) == "tool":  # of a tool that runs at the provider
                    at = self._new(at, message, {})
                else:
                    at, own = self._say(at, message, {**own, **error}), {k: own[k] for k in _SHARED if k in own}
            if n == 0:
                self._tip = at

    def add_tool(self, view: View, found: Found) -> None:
        """A tool's span. It waits: its result may stand in what a later call is told."""
        self._waiting.append((view, found))

    def add_event(self, message: Message, columns: Mapping[str, Any]) -> None:
        """Something beside the conversation: a retrieval, an embedding."""
        self._new(self._tip, message, dict(columns))

    def add_message(self, message: Message, columns: Mapping[str, Any]) -> None:
        """A message that is known from elsewhere than a call, at the end of what is known."""
        self._tip = self._new(self._tip, message, dict(columns))

    def place_tools(self) -> None:
        """Give every waiting tool span its result's row, or rows of its own."""
        waiting, self._waiting = self._waiting, []
        left = [tool for tool in waiting if not self._claim(*tool, guess=False)]
        for view, found in left:
            if self._claim(view, found, guess=True):
                continue
            if found.tool_call_id is not None and any(
                tool[1].tool_call_id == found.tool_call_id for tool in self.tools.values()
            ):
                continue  # a second span of the same call
            self._own_rows(view, found)

    def emit(self, conversation: Conversation) -> tuple[tuple[Step, ...], tuple[ToolCall, ...]]:
        """The rows; the step_ix of a message is its place in `nodes`."""
        for node in self.nodes:
            message = dict(node.message)
            columns = {"parent_ix": node.parent, **node.columns}
            role = message.get("role")
            if message.pop("truncated", None) is True:
                columns["content_state"] = "truncated"
                columns["quality_flags"] = (*(columns.get("quality_flags") or ()), "truncated_attribute")
            if role == "event":
                columns = {"role": "event", "quality_flags": None, **columns}
            if role_of(role) == "assistant":
                columns = {"sampled": False, **columns}
            add_message(conversation, message, **columns)
        steps, calls = conversation.finish()
        return steps, tuple(self._with_span(call) for call in calls)

    def _with_span(self, call: ToolCall) -> ToolCall:
        """The call with what its tool's span knows."""
        tool = None if call.result_step_ix is None else self.tools.get(call.result_step_ix)
        if tool is None or call.result_step_ix is None:
            return call
        view, found = tool
        columns = self.nodes[call.result_step_ix].columns
        failed = columns.get("error_type") is not None or columns.get("error_message") is not None
        if call.args_state == "null" and found.input is not None:
            raw, args, state = read_args(found.input)
            call = replace(call, args_raw=raw, args=args, args_state=state)
        return replace(
            call,
            span_id=view.row.span_id,
            started_at=columns.get("ts"),
            ended_at=columns.get("ts_end"),
            is_error=True if failed else call.is_error,
            result_state="error" if failed and call.result_state == "ok" else call.result_state,
            error_type=columns.get("error_type"),
        )

    # --- messages ---

    def _walk(self, inputs: list[Message]) -> int | None:
        """Down the path of what a call was told; gives its last message."""
        at: int | None = None
        begun = False
        for message in inputs:
            known = self._children.get((at, _agreement(message)))
            if known is None and not begun and role_of(message.get("role")) == "tool":
                caller = self._callers.get(as_text(message.get("tool_call_id")) or "")
                at = at if caller is None else caller
                known = self._children.get((at, _agreement(message)))
            if known is None and role_of(message.get("role")) == "assistant":
                known = self._fill(at, message)
                known = self._resumed(message) if known is None and not begun else known
            at = self._new(at, message, {}) if known is None else known
            begun = begun or role_of(message.get("role")) != "system"
        return at

    def _fill(self, parent: int | None, message: Message) -> int | None:
        """The call below `parent` whose answer was not captured: a later history tells what it was."""
        known = self._children.get((parent, _agreement({"role": "assistant"})))
        if known is None or self.nodes[known].said_by != "nobody" or self.nodes[known].message.get("tool_calls"):
            return None
        self.nodes[known].message, self.nodes[known].said_by = message, "model"
        self._register(known, parent, message)
        return known

    def _resumed(self, message: Message) -> int | None:
        """The message that made these calls, where a call was told only what followed what the provider keeps."""
        ids = [as_text(as_dict(call).get("id")) or "" for call in as_list(message.get("tool_calls"))]
        caller = self._callers.get(ids[0]) if ids else None
        return caller if caller is None or _agreement(self.nodes[caller].message) == _agreement(message) else None

    def _say(self, parent: int | None, message: Message, columns: dict[str, Any]) -> int:
        """What a model said: the message a later history already had, or a new one (also if it was said before)."""
        known = self._children.get((parent, _agreement(message)))
        columns = {"sampled": True, **columns}
        finish = as_text(message.get("finish_reason"))
        message = {key: value for key, value in message.items() if key != "finish_reason"}
        if finish is not None:
            columns["finish_reason_raw"] = finish
            columns["finish_reason"] = columns.get("finish_reason") or finish
        if known is not None and self.nodes[known].said_by is None:
            node = self.nodes[known]
            node.message, node.said_by = {**node.message, **message}, "model"
            node.columns.update(columns)
            return known
        return self._new(parent, message, columns, said_by="model")

    def _new(self, parent: int | None, message: Message, columns: dict[str, Any], said_by: str | None = None) -> int:
        ix = len(self.nodes)
        if said_by == "nobody":
            columns = {"sampled": True, **columns}
        self.nodes.append(Node(parent, message, columns, said_by))
        self._register(ix, parent, message)
        return ix

    def _register(self, ix: int, parent: int | None, message: Message) -> None:
        self._children[parent, _agreement(message)] = ix
        for call in as_list(message.get("tool_calls")):
            call_id = as_text(as_dict(call).get("id"))
            if call_id is not None:
                self._callers[call_id] = ix
        if role_of(message.get("role")) == "tool":
            caller = self._callers.get(as_text(message.get("tool_call_id")) or "", parent)
            if caller is not None:
                self._results[caller] = ix

    # --- tools ---

    def _claim(self, view: View, found: Found, guess: bool) -> bool:
        """Take the result that this span gave: by id, else by name and text, else (a guess) the first of that name."""
        results = [ix for ix, node in enumerate(self.nodes) if role_of(node.message.get("role")) == "tool"]
        free = [ix for ix in results if ix not in self.tools]
        call_id, given = found.tool_call_id, [self.nodes[ix].message.get("tool_call_id") for ix in free]
        named = [ix for ix, own in zip(free, given, strict=True) if call_id is not None and own == call_id]
        if not named:  # spans leave ids out, and so do messages
            alike = [ix for ix, own in zip(free, given, strict=True) if call_id is None or own is None]
            free = [ix for ix in alike if self._name_of(ix) in (None, found.tool_name)]
        if not named and not guess:
            text = read_content({"content": found.output}).text
            free = [ix for ix in free if read_content(self.nodes[ix].message).text == text]
        free = named or free
        if not free:
            return False
        self.tools[free[0]] = (view, found)
        self.nodes[free[0]].columns.update(tool_columns(view))
        return True

    def _name_of(self, ix: int) -> str | None:
        """The name of the tool whose result a node is."""
        message = self.nodes[ix].message
        caller = self._callers.get(as_text(message.get("tool_call_id")) or "")
        calls = [] if caller is None else as_list(self.nodes[caller].message.get("tool_calls"))
        own = [as_dict(call) for call in calls if as_dict(call).get("id") == message.get("tool_call_id")]
        named = as_dict(own[0].get("function")).get("name") if own else message.get("name")
        return as_text(named)

    def _own_rows(self, view: View, found: Found) -> None:
        """Rows for a result that no message has: below its call, below a call without captured content, or new."""
        call_id = found.tool_call_id
        caller, known_id = self._open_call(found)
        if caller is None:
            call_id = call_id or view.row.span_id
            function = {"name": found.tool_name, "arguments": found.input}
            call = {"id": call_id, "type": found.tool_kind or "function", "function": function}
            caller = self._silent
            if caller is None:
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
                caller = self._new(self._tip, message, {"is_synthetic": True, "sampled": False})
            else:
                made = self.nodes[caller].message
                made["tool_calls"] = [*as_list(made.get("tool_calls")), call]
        result: Message = {"role": "tool", "tool_call_id": known_id or call_id}
        if found.output is not None:
            result["content"] = found.output
        below = self._results.get(caller, caller)
        ix = self._new(below, result, tool_columns(view))
        self._results[caller] = ix
        self.tools[ix] = (view, found)
        if self._tip in (None, caller, below):
            self._tip = ix

    def _open_call(self, found: Found) -> tuple[int | None, str | None]:
        """(the message with the call that this tool answers, the call's id); the last that is not answered yet."""
        answered = {as_text(node.message.get("tool_call_id")) for node in self.nodes if "tool_call_id" in node.message}
        for ix in range(len(self.nodes) - 1, -1, -1):
            for call in as_list(self.nodes[ix].message.get("tool_calls")):
                call_id, name = as_text(as_dict(call).get("id")), as_dict(as_dict(call).get("function")).get("name")
                if found.tool_call_id is not None and call_id == found.tool_call_id:
                    return ix, call_id
                if found.tool_call_id is None and call_id not in answered and name == found.tool_name:
                    return ix, call_id
        return None, None


_SHARED = ("span_id", "llm_call_id", "model", "ts", "ts_end", "ts_raw", "sampled")
"""Columns of a call that hold for each message of its answer; its tokens count once."""


def _agreement(message: Message) -> str:
    """What two messages have to agree in to be one: role, content (none is empty), calls, and whose result it is."""
    content = read_content(message)
    calls = []
    for call in as_list(message.get("tool_calls")):
        function = as_dict(as_dict(call).get("function")) or as_dict(call)
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            decoded = try_loads(arguments)
            arguments = arguments if decoded is None else decoded.value
        calls.append([as_text(function.get("name")), dumps(arguments) if arguments is None else arguments])
    role = role_of(message.get("role"))
    target = as_text(message.get("tool_call_id")) if role == "tool" else None
    said = (content.text or "").strip() if role != "event" else dumps(message)
    if content.parts is not None and any(
        as_dict(part).get("type") not in TEXTS for part in as_list(message["content"])
    ):
        said = content.parts  # not text alone
    return fingerprint([role, said, calls, target])
