"""Anthropic messages to steps: content blocks in their order, each result of a tool a row of its own.

A user message with results gives tool rows, and user rows for what stands between them. An assistant message in which
a server's tool answered gives an assistant row, the tool's row, and another assistant row for what followed; rows of
one message share its id. Thinking is `reasoning`; signatures and redacted thinking are verbatim in `reasoning_opaque`.
`parts` holds the blocks of a row that are neither calls nor thinking.

Not covered: media out of line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.formats.anthropic_stream import PARTIAL
from flywheel.formats.messages import CALLERS, ROLES, Conversation, read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_list, as_text

CALLS = {"tool_use": "function", "server_tool_use": "server", "mcp_tool_use": "mcp"}
THINKING = ("thinking", "redacted_thinking")
_CALL = {"id", "name", "input", PARTIAL}
_RESULT = {"type", "tool_use_id", "content", "is_error"}
_MESSAGE = {"role", "content"}
_FAILED = ("_error", "_result_error")


def is_result(block: Any) -> bool:
    """Whether a block is the result of a tool, the user's or a server's."""
    kind = as_dict(block).get("type")
    return isinstance(kind, str) and (kind == "tool_result" or kind.endswith("_tool_result"))


def is_block(block: Any) -> bool:
    """Whether a block is of a kind that no other chat protocol has."""
    kind = as_dict(block).get("type")
    return is_result(block) or (isinstance(kind, str) and (kind in CALLS or kind in THINKING))


def add_message(conversation: Conversation, message: Any, **columns: Any) -> tuple[int, ...]:
    """Append one message; gives the step_ix of its rows. `columns` go to rows of the message's own role.

    Never raises on data.
    """
    given = as_dict(message)
    raw = as_text(given.get("role"))
    role = ROLES.get((raw or "").lower(), "event")
    rest = {key: value for key, value in given.items() if key not in _MESSAGE}
    columns = {
        "role": role,
        "role_raw": raw,
        "extra": dumps(rest) if rest else None,
        "quality_flags": None if role != "event" else ("odd_role" if isinstance(message, dict) else "not_a_message",),
        "raw": None if isinstance(message, dict) else dumps(message),
        **columns,
    }
    content = given.get("content")
    if not isinstance(content, list):
        plain = read_content(given)
        return (conversation.add(content=plain.text, content_state=plain.state, parts=plain.parts, **columns),)
    rows = [
        _add_result(conversation, run[0]) if is_result(run[0]) else _add_run(conversation, run, columns)
        for run in _runs(content)
    ]
    return tuple(rows) or (conversation.add(content="", content_state="present", parts="[]", **columns),)


def _runs(blocks: Sequence[Any]) -> Iterator[list[Any]]:
    """Results one by one, and what stands between them together."""
    run: list[Any] = []
    for block in blocks:
        if is_result(block):
            if run:
                yield run
            yield [block]
            run = []
        else:
            run.append(block)
    if run:
        yield run


def _add_run(conversation: Conversation, blocks: Sequence[Any], columns: Mapping[str, Any]) -> int:
    kinds = [as_text(as_dict(block).get("type")) for block in blocks]
    typed = list(zip(blocks, kinds, strict=True))
    calls = [as_dict(block) for block, kind in typed if kind in CALLS] if columns["role"] in CALLERS else []
    thoughts = [as_dict(block) for block, kind in typed if kind in THINKING]
    said = [block for block, kind in typed if kind not in THINKING and not (calls and kind in CALLS)]
    texts = [block["text"] for block in said if isinstance(block, dict) and isinstance(block.get("text"), str)]
    thinking = [text for thought in thoughts if (text := as_text(thought.get("thinking"))) is not None]
    signed = [thought for thought in thoughts if thought.keys() - {"type", "thinking"}]
    step_ix = conversation.add(
        content="\n".join(texts) if texts else None,
        content_state="present" if texts else "null",
        parts=dumps(said) if said else None,
        reasoning="\n".join(thinking) or None,
        reasoning_opaque=dumps(signed) if signed else None,
        **{**columns, "extra": _with_order(columns.get("extra"), kinds)},
    )
    for call in calls:
        arguments = call[PARTIAL] if isinstance(call.get(PARTIAL), str) and call[PARTIAL] else call.get("input")
        conversation.call(
            step_ix,
            call_id=as_text(call.get("id")),
            name=as_text(call.get("name")),
            kind=CALLS[str(call["type"])],
            arguments=arguments,
            extra={key: value for key, value in call.items() if key not in _CALL},
        )
    return step_ix


def _with_order(extra: Any, kinds: Sequence[Any]) -> Any:
    """The row's extra with the order of its blocks, where it isn't thinking, then words, then calls."""
    ranks = [0 if kind in THINKING else 2 if kind in CALLS else 1 for kind in kinds]
    if ranks == sorted(ranks):
        return extra
    order = f'"block_order":{dumps(list(kinds))}'
    return f"{extra[:-1]},{order}}}" if extra else f"{{{order}}}"


def _add_result(conversation: Conversation, value: Any) -> int:
    block = as_dict(value)
    content, kind = read_content(block), str(block["type"])
    rest = {key: item for key, item in block.items() if key not in _RESULT}
    rest |= {"type": kind} if kind != "tool_result" else {}
    odd_error = "is_error" in block and not isinstance(block["is_error"], (bool, type(None)))
    rest |= {"is_error": block["is_error"]} if odd_error else {}
    step_ix = conversation.add(
        role="tool",
        role_raw=kind,
        content=content.text,
        content_state=content.state,
        parts=content.parts,
        tool_call_id=as_text(block.get("tool_use_id")),
        extra=dumps(rest) if rest else None,
    )
    failed, error_type = _failure(block)
    more: dict[str, Any] = {} if error_type is None else {"error_type": error_type}
    conversation.result(step_ix, is_error=failed, **more)
    return step_ix


def _failure(block: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """(is_error, error_type): the flag of the block, or a server's error object as its content."""
    inner = as_dict(block.get("content"))
    if str(inner.get("type")).endswith(_FAILED):
        return True, as_text(inner.get("error_code"))
    flag = block.get("is_error")
    return (flag if isinstance(flag, bool) else None), None


def blocks_of(message: Any) -> list[Any]:
    """The blocks of a message whose content is a list; none of any other."""
    return as_list(as_dict(message).get("content"))
