"""Hermes: rows in the order of their ids, branches, calls without ids."""

from __future__ import annotations

import json
from pathlib import Path

from sources import jsonl, read


def test_hermes_order_branches_and_ids(samples: Path) -> None:
    only = read((samples / "other_agents" / "hermes_cleanup_input.json").read_bytes()).only
    assert [step.native_id for step in only.steps] == [str(n) for n in range(201, 209)]
    taken_back = only.steps[4]
    assert (taken_back.trainable, taken_back.parent_ix, only.steps[6].parent_ix) == (False, 3, 5)
    assert (only.tool_calls[0].call_id, only.tool_calls[0].result_step_ix) == ("call_adopted_1", 2)
    assert json.loads(only.steps[0].parts or "")[1]["type"] == "image_url"


def test_hermes_exit_codes() -> None:
    row = {"session_id": "20260101_000000_abcdef", "timestamp": 1783100001.5, "content": ""}
    calls = json.dumps([{"id": "c1", "function": {"name": "terminal", "arguments": "{}"}}])
    shown = {
        "role": "tool",
        "tool_call_id": "c1",
        "tool_name": "terminal",
        "content": '{"output": "no", "exit_code": 1}',
    }
    rows = [{**row, "role": "assistant", "tool_calls": calls, "id": 1}, {**row, **shown, "id": 2}]
    only = read(jsonl(*rows)).only
    assert (only.tool_calls[0].is_error, only.tool_calls[0].error_type) == (True, "exit_code_1")


def test_hermes_exported_sessions_say_what_they_used() -> None:
    row = {"id": 1, "session_id": "20260103_000000_abcdef", "role": "user", "content": "hi", "timestamp": 1767398401.5}
    session = {"id": row["session_id"], "source": "cli", "model": "m", "system_prompt": "Be brief.", "messages": [row]}
    head = read(jsonl(session | {"input_tokens": 100, "output_tokens": 20, "end_reason": "cli_close"})).only.trajectory
    assert (head.model, head.input_tokens, head.output_tokens, head.end_reason) == ("m", 100, 20, "completed")


def test_hermes_session_logs_and_gateway_transcripts() -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "finish_reason": "stop"}]
    tools = [{"type": "function", "function": {"name": "terminal"}}]
    log = {"session_id": "20260103_000000_abcdef", "session_start": "2026-01-03T00:00:00Z", "model": "m"}
    of_log = read(json.dumps(log | {"tools": tools, "messages": said}).encode())
    meta = {"role": "session_meta", "model": "m", "tools": tools, "timestamp": "2026-01-03T00:00:00.5Z"}
    of_gateway = read(jsonl(meta, *said))
    for outcome in (of_log, of_gateway):
        assert outcome.format == "hermes_agent" and not outcome.rejects
        assert [(s.role, s.content) for s in outcome.only.steps] == [("user", "hi"), ("assistant", "yo")]
        assert outcome.only.trajectory.model == "m" and "terminal" in (outcome.only.trajectory.tools or "")
        assert outcome.only.trajectory.started_at is not None
    assert of_log.only.trajectory.session_id == log["session_id"]
    assert read(jsonl(meta, said[0])).only.key == of_gateway.only.key
