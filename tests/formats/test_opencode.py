"""OpenCode: exports and runs, disjoint tokens, errors, subagents."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from sources import Outcome, jsonl, read


def opencode(*messages: dict[str, Any]) -> Outcome:
    info = {
        "id": "ses_0123456789abcdef0123456789",
        "directory": "/w",
        "version": "1.2",
        "parentID": "ses_parent0123456789abcdef0",
    }
    return read(json.dumps({"info": info, "messages": list(messages)}).encode())


def test_opencode_tokens_errors_and_subagents() -> None:
    tool = {
        "type": "tool", "callID": "c1", "tool": "task",
        "state": {"status": "completed", "input": {}, "output": "ok", "metadata": {"sessionId": "ses_" + "0" * 26}},
    }  # fmt: skip
    tokens = {"input": 5, "output": 3, "reasoning": 2, "cache": {"read": 20, "write": 7}}
    error = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
    info = {
        "id": "m1",
        "role": "assistant",
        "modelID": "x",
        "providerID": "p",
        "tokens": tokens,
        "cost": 0.125,
        "error": error,
    }
    only = opencode({"info": info, "parts": [tool, {"type": "text", "text": "half"}]}).only
    step, t = only.steps[0], only.trajectory
    assert (step.input_tokens, step.output_tokens, step.reasoning_tokens) == (32, 5, 2)
    assert (t.cost_usd, t.end_reason, t.error_type) == (Decimal("0.125"), "user_abort", "MessageAbortedError")
    assert only.tool_calls[0].subagent_trajectory_id is not None and t.parent_trajectory_id is not None


def test_opencode_runs_as_events() -> None:
    def event(kind: str, **part: Any) -> dict[str, Any]:
        return {"type": kind, "sessionID": "ses_0123456789abcdef0123456789", "timestamp": 1767225601000, "part": part}

    ran = {"type": "tool", "callID": "c1", "tool": "bash", "state": {"status": "error", "input": {}, "error": "no"}}
    finish = {"type": "step-finish", "reason": "stop", "cost": 0.5, "tokens": {"input": 4, "output": 1}}
    only = read(
        jsonl(event("tool_use", **ran), event("text", type="text", text="hi"), event("step_finish", **finish))
    ).only
    assert [step.role for step in only.steps] == ["assistant", "tool", "assistant", "event"]
    assert (only.steps[2].input_tokens, only.trajectory.end_reason) == (4, "completed")
    assert only.tool_calls[0].result_state == "error"
