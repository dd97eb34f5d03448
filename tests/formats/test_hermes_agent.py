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
