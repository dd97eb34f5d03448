"""The event stream of `codex exec --json` before version 0.44, as the events that it prints since (`codex_exec.py`).

    {id, msg: {type: agent_message | agent_reasoning | *_begin | *_end | token_count | error | task_complete ...}}

Before them stand two lines without a type: the settings and `{prompt}`, so here the prompt is known.

Not covered: deltas, which the whole messages repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_int, as_text
from flywheel.formats.session import text_of, word

_TEXTS = {"agent_message": "message", "agent_reasoning": "text", "agent_reasoning_raw_content": "text"}
_REPEATED = ("_delta", "section_break")


def is_old(value: Any) -> bool:
    """Whether a line is an event of the older stream."""
    return bool(word(as_dict(as_dict(value).get("msg")).get("type"))) and "id" in as_dict(value)


def as_new(value: Mapping[str, Any], nth: int) -> dict[str, Any] | None:
    """The event as newer versions print it; None for one that only repeats or says nothing that is kept.

    `nth` makes an id for what has none.
    """
    if not is_old(value):
        return _heading(value)
    message = as_dict(value["msg"])
    kind = word(message.get("type"))
    rest = {key: item for key, item in message.items() if key != "type"}
    if kind in _TEXTS:
        text = rest.pop(_TEXTS[kind], None)
        item = {"type": "agent_message" if kind == "agent_message" else "reasoning", "text": text_of(text)}
        return _item({**rest, **item, "id": f"item {nth}"})
    if kind.endswith(("_begin", "_end")) and as_text(message.get("call_id")):
        return _call(kind, rest)
    if kind == "token_count":
        return {"type": "turn.usage", "usage": as_dict(as_dict(message.get("info")).get("last_token_usage")) or rest}
    if kind in ("error", "stream_error"):
        return {"type": "error", **rest} if kind == "error" else _item({"id": f"item {nth}", "type": kind, **rest})
    if kind == "turn_aborted":
        return {"type": "turn.failed", "error": {"message": text_of(message.get("reason"))}}
    if kind == "task_complete":
        return {"type": "turn.completed", **rest}
    if kind.endswith(_REPEATED) or kind == "task_started":
        return None
    if kind == "session_configured":
        return {"type": "thread.started", "thread_id": message.get("session_id"), **rest}
    return _item({"id": f"item {nth}", "type": kind, **rest})


def _heading(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The two lines that are no events."""
    if "prompt" in value:
        return _item({"id": "prompt", "type": "user_message", "text": text_of(value["prompt"])})
    return {"type": "thread.started", **value} if "model" in value or "workdir" in value else None


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "item.completed", "item": dict(item)}


def _call(kind: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A call that begins or has ended: the same item, by its id."""
    what, stage = kind.rsplit("_", 1)
    item: dict[str, Any] = {**told, "id": told["call_id"]}
    item.pop("call_id")
    code = as_int(item.get("exit_code"))
    if what == "exec_command":
        item |= {"type": "command_execution"}
        failed = code not in (None, 0)
    elif what == "patch_apply":
        item |= {"type": "file_change", "aggregated_output": text_of(item.get("stdout") or item.get("stderr"))}
        failed = item.get("success") is False
    elif what == "mcp_tool_call":
        called, result = as_dict(item.pop("invocation", None)), as_dict(item.get("result"))
        item |= {"type": what, "server": called.get("server"), "tool": called.get("tool")}
        item |= {"arguments": called.get("arguments")}
        error = result.get("Err")
        item |= (
            {"result": result.get("Ok", item.get("result"))}
            if error is None
            else {"error": {"message": text_of(error)}}
        )
        failed = error is not None or as_dict(result.get("Ok")).get("is_error") is True
    else:
        item |= {"type": what}
        failed = False
    if stage == "begin":
        return {"type": "item.started", "item": {**item, "status": "in_progress"}}
    return {"type": "item.completed", "item": {**item, "status": "failed" if failed else "completed"}}
