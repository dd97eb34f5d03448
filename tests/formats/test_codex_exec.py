"""The event stream of `codex exec --json`: items as they were last, refusals, failures, the usage of a turn."""

from __future__ import annotations

import random
from typing import Any

from sources import SOURCE, jsonl, read
from test_samples import check_rows, swapped

from flywheel.formats.codex_exec import CodexExec
from flywheel.formats.reader import Record
from flywheel.records import Fragment

START = {"type": "thread.started", "thread_id": "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"}


def item(kind: str, name: str, **rest: Any) -> dict[str, Any]:
    return {"type": f"item.{rest.pop('state', 'completed')}", "item": {"id": name, "type": kind, **rest}}


def test_a_run() -> None:
    ran = {"command": "bash -lc ls", "aggregated_output": "a\n", "exit_code": 2, "status": "failed"}
    usage = {"input_tokens": 90, "cached_input_tokens": 40, "output_tokens": 7}
    outcome = read(
        jsonl(
            START,
            {"type": "turn.started"},
            item("reasoning", "item_0", text="hm"),
            item("command_execution", "item_1", state="started", command="bash -lc ls", status="in_progress"),
            item("command_execution", "item_1", **ran),
            item(
                "mcp_tool_call",
                "item_2",
                server="s",
                tool="find",
                arguments={"q": 1},
                error={"message": "down"},
                status="failed",
            ),
            item("file_change", "item_3", changes=[{"path": "a", "kind": "add"}], status="declined"),
            item("agent_message", "item_4", text="done"),
            {"type": "turn.completed", "usage": usage},
        )
    )
    only, t = outcome.only, outcome.only.trajectory
    assert (outcome.format, t.native_id, t.end_reason, t.content_complete) == (
        "codex_exec",
        START["thread_id"],
        "completed",
        False,
    )
    assert [step.role for step in only.steps] == [
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    told = [(call.name, call.kind, call.result_state, call.error_type) for call in only.tool_calls]
    assert told == [
        ("shell", "shell", "error", "exit_code_2"),
        ("find", "mcp", "error", "mcp_error"),
        ("apply_patch", "builtin", "rejected", "user_rejected"),
    ]
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens) == (90, 40, 7)


def test_a_turn_that_failed() -> None:
    failed: dict[str, Any] = {
        "type": "turn.failed",
        "error": {"message": "Your input exceeds the context window of this model"},
    }
    only = read(jsonl(START, {"type": "turn.started"}, {"type": "error", "message": "retrying"}, failed)).only
    assert (only.trajectory.end_reason, only.trajectory.error_type) == ("context_overflow", "turn.failed")
    assert [step.error_message for step in only.steps] == ["retrying", failed["error"]["message"]]


def test_it_never_raises() -> None:
    rng = random.Random("codex exec")
    events = [
        START,
        item("reasoning", "item_0", text="hm"),
        item("command_execution", "item_1", command="ls", aggregated_output="a", exit_code=0, status="completed"),
        item("mcp_tool_call", "item_2", tool="find", arguments={"q": 1}, result={"content": []}, status="completed"),
        {"type": "turn.completed", "usage": {"input_tokens": 1}},
        {"type": "turn.failed", "error": {"message": "m"}},
    ]
    read_any = False
    for _ in range(300):
        records = [Record(ix=ix, offset=0, length=9, value=swapped(event, rng)) for ix, event in enumerate(events)]
        for found in CodexExec().read(iter(records), SOURCE):
            if isinstance(found, Fragment):
                read_any = True
                check_rows(found)
    assert read_any
