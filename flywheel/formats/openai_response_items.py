"""Items of OpenAI responses (input or output) to steps.

What the model said between two inputs is one row as long as its order is reasoning, then words, then calls; an item
that breaks this order begins a new row. Outputs of tools are rows of their own, also those that a hosted tool's item
holds itself. Reasoning keeps its encrypted content verbatim. An item of an unknown kind is an event with it as `raw`.

Not covered: the content of items that are only named (`item_reference`): the row says so and is flagged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.messages import Conversation, read_content
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_float, as_int32, as_list, as_text, first_text

CALLS = {  # type -> (kind, key of the arguments, key of the results it holds itself)
    "function_call": ("function", "arguments", None),
    "custom_tool_call": ("custom", "input", None),
    "computer_call": ("builtin", "action", None),
    "local_shell_call": ("shell", "action", None),
    "shell_call": ("shell", "action", None),
    "apply_patch_call": ("builtin", "operation", None),
    "mcp_call": ("mcp", "arguments", "output"),
    "web_search_call": ("builtin", "action", "results"),
    "file_search_call": ("builtin", "queries", "results"),
    "code_interpreter_call": ("builtin", "code", "outputs"),
    "image_generation_call": ("builtin", "revised_prompt", "result"),
    "tool_search_call": ("builtin", "arguments", "tools"),
}
OUTPUTS = {
    "function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output",
    "shell_call_output", "apply_patch_call_output",
}  # fmt: skip
OTHERS = {
    "reasoning", "item_reference", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction",
}  # fmt: skip
_OUTPUT = {"type", "id", "call_id", "output"}
_TOKENS = {"generation_token_ids", "generation_log_probs"}


def is_item(value: Any) -> bool:
    """Whether it is an item that no other protocol has."""
    kind = as_dict(value).get("type")
    return isinstance(kind, str) and (kind in CALLS or kind in OUTPUTS or kind in OTHERS)


def add_items(conversation: Conversation, items: Iterable[Any], **columns: Any) -> tuple[int, ...]:
    """Append items; gives the step_ix of the rows the model said. `columns` go to those rows. Never raises on data."""
    writer = _Writer(conversation, columns)
    for item in items:
        writer.add(item)
    return tuple(writer.said)


class _Writer:
    """The items of one list, in order."""

    def __init__(self, conversation: Conversation, columns: Mapping[str, Any]) -> None:
        self.conversation = conversation
        self.columns = columns
        self.said: list[int] = []
        self.row: int | None = None  # the row of the model that is still open

    def add(self, value: Any) -> None:
        item = as_dict(value)
        kind = as_text(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in CALLS:
            self._call(item, kind)
        elif kind in OUTPUTS:
            self._output(item, kind)
        else:
            flag = {"item_reference": "item_reference"}.get(kind, None if kind in OTHERS else "unknown_item")
            self.row = None
            self.conversation.add(
                native_id=as_text(item.get("id")),
                role="event",
                role_raw=kind or None,
                content_state="external" if kind == "item_reference" else "missing",
                raw=dumps(value),
                quality_flags=None if flag is None else (flag,),
            )

    def _message(self, item: Mapping[str, Any]) -> None:
        message = {key: value for key, value in item.items() if key not in _TOKENS}
        if item.get("role") != "assistant":
            self.row = None
            add_message(self.conversation, message)
            return
        held = None if self.row is None else self.conversation.steps[self.row]
        if held is None or held.n_tool_calls or held.content is not None:
            self.row = add_message(self.conversation, message, **self.columns)
            self.said.append(self.row)
        else:
            scratch = Conversation(self.conversation.trajectory_id)
            add_message(scratch, message)
            new = scratch.steps[0]
            names = ("native_id", "role_raw", "content", "content_state", "parts", "refusal", "extra")
            self._set(**{name: getattr(new, name) for name in names})
        self._tokens(item)

    def _reasoning(self, item: Mapping[str, Any]) -> None:
        held = None if self.row is None else self.conversation.steps[self.row]
        if held is None or held.n_tool_calls or held.content is not None or held.reasoning_opaque is not None:
            self._begin()
        parts = [*as_list(item.get("summary")), *as_list(item.get("content"))]
        texts = [text for part in parts if isinstance(text := as_dict(part).get("text"), str)]
        self._set(reasoning="\n".join(texts) or None, reasoning_opaque=dumps([item]))

    def _call(self, item: Mapping[str, Any], kind: str) -> None:
        if self.row is None:
            self._begin()
        assert self.row is not None
        what, arguments, results = CALLS[kind]
        call_id = first_text(item, "call_id", "id")
        known = {"call_id", "name", arguments, *_TOKENS} | ({results, "error"} if results else set())
        known |= set() if "call_id" in item else {"id"}
        self.conversation.call(
            self.row,
            call_id=call_id,
            name=as_text(item.get("name")) or kind.removesuffix("_call"),
            kind=what,
            arguments=item.get(arguments),
            extra={key: value for key, value in item.items() if key not in known},
        )
        self._tokens(item)
        if results is not None and item.get("status") not in ("in_progress", "searching", "generating"):
            caller = self.row
            self._hosted(item, call_id, results)
            self.row = None if caller == self.row else self.row

    def _hosted(self, item: Mapping[str, Any], call_id: str | None, results: str) -> None:
        """The result that a hosted tool's item holds itself, as a tool's row."""
        content, error = read_content(item, results), item.get("error")
        step_ix = self.conversation.add(
            role="tool",
            role_raw=as_text(item.get("type")),
            content=content.text if content.text is not None else None if error is None else dumps(error),
            content_state=content.state if error is None else "present",
            parts=content.parts,
            tool_call_id=call_id or f"call_{self.row}_{self.conversation.steps[self.row or 0].n_tool_calls - 1}",
        )
        failed = error is not None or item.get("status") == "failed"
        self.conversation.result(step_ix, is_error=failed or None, caller=self.row)
        self.row = None

    def _output(self, item: Mapping[str, Any], kind: str) -> None:
        self.row = None
        content = read_content(item, "output")
        rest = {key: value for key, value in item.items() if key not in _OUTPUT}
        step_ix = self.conversation.add(
            native_id=as_text(item.get("id")),
            role="tool",
            role_raw=kind,
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=as_text(item.get("call_id")),
            extra=dumps(rest) if rest else None,
        )
        self.conversation.result(step_ix, is_error=True if item.get("status") in ("incomplete", "failed") else None)

    def _begin(self) -> None:
        self.row = self.conversation.add(role="assistant", content_state="missing", **self.columns)
        self.said.append(self.row)

    def _set(self, **columns: Any) -> None:
        assert self.row is not None
        self.conversation.steps[self.row] = replace(self.conversation.steps[self.row], **columns)

    def _tokens(self, item: Mapping[str, Any]) -> None:
        """What NeMo-Gym records of the sampling: token ids and logprobs of the row's last item that has them."""
        ids = tuple(n for n in map(as_int32, as_list(item.get("generation_token_ids"))) if n is not None)
        logprobs = tuple(n for n in map(as_float, as_list(item.get("generation_log_probs"))) if n is not None)
        if ids:
            self._set(token_ids=ids, logprobs=logprobs if len(logprobs) == len(ids) else None)
