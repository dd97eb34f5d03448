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


def test_the_stream_of_older_versions() -> None:
    tokens = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 5, "reasoning_output_tokens": 1}
    total = {key: 2 * number for key, number in tokens.items()}
    began = {"type": "exec_command_begin", "call_id": "c1", "command": ["bash", "-lc", "ls"], "cwd": "/w"}
    messages = [
        {"type": "task_started", "model_context_window": 272000},
        {"type": "agent_reasoning", "text": "hm"},
        began,
        {"type": "exec_command_end", "call_id": "c1", "stdout": "a", "aggregated_output": "a", "exit_code": 2},
        {"type": "token_count", "info": {"total_token_usage": tokens, "last_token_usage": tokens}},
        {"type": "agent_message", "message": "Done."},
        {"type": "token_count", "info": {"total_token_usage": total, "last_token_usage": tokens}},
        {"type": "task_complete", "last_agent_message": "Done."},
    ]
    head = [{"workdir": "/w", "model": "gpt-5", "provider": "openai"}, {"prompt": "List."}]
    lines = [*head, *({"id": "0", "msg": message} for message in messages)]
    outcome = read(jsonl(*lines))
    assert outcome.format == "codex_exec" and not outcome.rejects
    assert read(jsonl(*lines[:5])).only.key == outcome.only.key  # it had begun to run the command
    other = {"id": "0", "msg": {"type": "agent_reasoning", "text": "hmm"}}
    assert read(jsonl(*lines[:3], other, *lines[4:])).only.key != outcome.only.key  # another run of the same prompt
    only = outcome.only
    assert [step.role for step in only.steps] == ["user", "assistant", "assistant", "tool", "assistant"]
    call, trajectory = only.tool_calls[0], only.trajectory
    assert (call.args, call.is_error, call.result_text) == ('{"command":["bash","-lc","ls"]}', True, "a")
    assert (trajectory.model, trajectory.end_reason, trajectory.content_complete) == ("gpt-5", "completed", True)
    assert (trajectory.input_tokens, trajectory.cache_read_tokens, trajectory.output_tokens) == (200, 80, 10)
