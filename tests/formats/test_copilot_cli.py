"""Copilot CLI: prompts that stand twice, totals, refusals and errors."""

from __future__ import annotations

import json
from typing import Any

from sources import jsonl, read


def copilot(kind: str, name: str = "e", **data: Any) -> dict[str, Any]:
    return {"type": kind, "id": name, "timestamp": "2026-01-05T00:00:01Z", "parentId": None, "data": data}


START = copilot(
    "session.start", sessionId="51854430-83f7-4543-a9bf-ec76ead71f59", copilotVersion="0.0.407", context={"cwd": "/w"}
)


def test_copilot_prompts_stand_once_and_totals_count_where_answers_have_none() -> None:
    prompt: dict[str, Any] = {"hookType": "userPromptSubmitted", "input": {"prompt": "go"}}
    metrics = {"m1": {"usage": {"inputTokens": 50, "outputTokens": 9, "cacheReadTokens": 20}}}
    only = read(
        jsonl(
            START,
            copilot("hook.start", **prompt),
            copilot("user.message", content="go"),
            copilot("assistant.message", content="done", outputTokens=9),
            copilot("session.shutdown", shutdownType="routine", modelMetrics=metrics),
        )
    ).only
    assert [step.role for step in only.steps] == ["event", "user", "assistant", "event"]
    t = only.trajectory
    assert (t.input_tokens, t.output_tokens, t.usage_quality, t.end_reason) == (50, 9, "total_only", "completed")
    assert (t.agent_version, json.loads(t.metadata or "")["cwd"]) == ("0.0.407", "/w")


def test_copilot_failures() -> None:
    request = {"toolCallId": "c1", "name": "bash", "arguments": {"command": "ls"}}
    denied: dict[str, Any] = {
        "toolCallId": "c1",
        "success": False,
        "error": {"code": "denied", "message": "The user said no"},
    }
    asked = copilot("assistant.message", content="", toolRequests=[request])
    only = read(
        jsonl(START, asked, copilot("tool.execution_complete", **denied), copilot("abort", reason="user initiated"))
    ).only
    call = only.tool_calls[0]
    assert (call.result_state, call.error_type, call.result_text) == ("rejected", "denied", "The user said no")
    assert only.trajectory.end_reason == "user_abort"
    error = copilot("session.error", errorType="rate_limit", message="slow down")
    t = read(jsonl(START, copilot("user.message", content="go"), error)).only.trajectory
    assert (t.end_reason, t.error_type, t.error_message) == ("model_error", "rate_limit", "slow down")


def test_copilot_system_prompts_are_the_systems() -> None:
    start = {"type": "session.start", "id": "1", "data": {"sessionId": "aaaaaaaa-0000-4000-8000-000000000001"}}
    prompt = {"type": "system.message", "id": "2", "data": {"role": "system", "content": "Be brief."}}
    only = read(jsonl(start, prompt, {"type": "user.message", "id": "3", "data": {"content": "hi"}})).only
    assert [(step.role, step.content) for step in only.steps] == [("system", "Be brief."), ("user", "hi")]
