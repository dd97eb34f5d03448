"""mini-swe-agent: a bare list, an envelope, and version 2 with everything in `extra`."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from sources import read


def run(*messages: dict[str, Any], **info: Any) -> Any:
    document = {
        "info": {"exit_status": "Submitted", "mini_version": "2.1", "model_stats": {"instance_cost": 0.5}, **info},
        "messages": list(messages), "trajectory_format": "mini-swe-agent-1.1", "instance_id": "repo__repo-1",
    }  # fmt: skip
    return read(json.dumps(document).encode()).only


def answer(response_id: str = "chatcmpl-1") -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    message = {"role": "assistant", "content": "look", "tool_calls": [call]}
    usage = {"prompt_tokens": 10, "completion_tokens": 4}
    response = {
        "id": response_id,
        "model": "m",
        "usage": usage,
        "choices": [{"finish_reason": "tool_calls", "message": message}],
    }
    return {
        **message,
        "extra": {"actions": [{"command": "ls"}], "response": response, "cost": 0.25, "timestamp": 1767225601.5},
    }


def test_version_2() -> None:
    shown = {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "no",
        "extra": {"returncode": 127, "timestamp": 1767225602.5},
    }
    ended = {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded", "submission": ""}}
    only = run({"role": "user", "content": "fix"}, answer(), shown, ended, exit_status="LimitsExceeded")
    step, t = only.steps[1], only.trajectory
    assert [s.role for s in only.steps] == ["user", "assistant", "tool", "event"]
    assert (step.llm_call_id, step.model, step.input_tokens, step.cost_usd) == ("chatcmpl-1", "m", 10, Decimal("0.25"))
    assert step.ts is not None and json.loads(step.extra or "")["actions"] == [{"command": "ls"}]
    assert (only.tool_calls[0].is_error, only.tool_calls[0].error_type) == (True, "exit_code_127")
    assert (t.end_reason, t.end_reason_raw, t.cost_usd) == ("max_turns", "LimitsExceeded", Decimal("0.5"))
    assert (t.native_id, t.agent_version, t.format_version) == ("repo__repo-1", "2.1", "mini-swe-agent-1.1")


def test_runs_are_known_by_their_first_response() -> None:
    assert run(answer("a")).key == run(answer("a"), {"role": "user", "content": "x"}).key != run(answer("b")).key


def test_what_went_wrong() -> None:
    assert run(answer(), exit_status="RateLimitError", traceback="…").trajectory.end_reason == "model_error"
    assert run(answer(), exit_status="ContextWindowExceededError").trajectory.end_reason == "context_overflow"
    unformatted = {"role": "user", "content": "exactly one action", "extra": {"interrupt_type": "FormatError"}}
    assert run(answer(), unformatted).steps[1].error_type == "FormatError"
    failed = run({"role": "user", "content": "<returncode>2</returncode>\n<output>no</output>"}).steps[0]
    assert (failed.role, failed.error_type) == ("user", "exit_code_2")


def test_items_of_the_responses_api_are_messages_too() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
    response = {
        "object": "response",
        "id": "resp_1",
        "output": [item],
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    output = {"type": "function_call_output", "call_id": "c1", "output": "ok", "extra": {"returncode": 0}}
    only = run({"role": "user", "content": "fix"}, {**response, "extra": {"cost": 0.1}}, output)
    assert [s.role for s in only.steps] == ["user", "assistant", "tool"]
    assert (only.steps[1].input_tokens, only.steps[1].llm_call_id) == (7, "resp_1")
    assert only.tool_calls[0].is_error is False


def test_the_sample_keeps_the_roles_that_the_model_saw(samples: Path) -> None:
    path = samples / "mini_swe_agent" / "github_issue.traj.json"
    outcome = read(path.read_bytes())
    expected = [(m["role"], m["content"]) for m in json.loads(path.read_text(encoding="utf-8"))]
    assert outcome.format == "mini_swe_agent"
    assert [(s.role, s.content) for s in outcome.only.steps] == expected
    assert [s.error_type for s in outcome.only.steps if s.error_type] == ["exit_code_1", "exit_code_1"]
