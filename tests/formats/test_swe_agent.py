"""SWE-agent: what the model saw, what was really sent and seen, and how a run ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sources import jsonl, read


def step(response: str, observation: str = "out", **rest: Any) -> dict[str, Any]:
    return {
        "action": "ls",
        "observation": observation,
        "response": response,
        "thought": response,
        "state": {"wd": "/"},
        **rest,
    }


def traj(**rest: Any) -> dict[str, Any]:
    history = [
        {"role": "system", "content": "be", "agent": "main", "message_type": "system_prompt"},
        {"role": "user", "content": "fix it", "agent": "main", "message_type": "observation"},
        {
            "role": "assistant", "content": "look", "thought": "look", "action": "ls", "message_type": "action",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "out", "tool_call_ids": ["c1"], "message_type": "observation"},
    ]  # fmt: skip
    info = {
        "exit_status": "submitted",
        "submission": "diff",
        "model_stats": {"instance_cost": 0.25, "tokens_sent": 9, "tokens_received": 2},
    }
    return {
        "environment": "main",
        "trajectory": [step("look", execution_time=0.123)],
        "history": history,
        "info": info,
        **rest,
    }


CONFIG = {"agent": {"model": {"name": "gpt-x"}}, "problem_statement": {"id": "repo__repo-1"}}


def test_a_run() -> None:
    outcome = read(json.dumps(traj(replay_config=json.dumps(CONFIG))).encode())
    only, t = outcome.only, outcome.only.trajectory
    assert (outcome.version, t.native_id, t.task_id, t.model) == ("1", "repo__repo-1", "repo__repo-1", "gpt-x")
    assert [s.role for s in only.steps] == ["system", "user", "assistant", "tool"]
    assert (only.tool_calls[0].result_state, only.tool_calls[0].paired_by) == ("ok", "id")
    assert (t.input_tokens, t.output_tokens, float(t.cost_usd or 0), t.usage_quality) == (9, 2, 0.25, "total_only")
    assert (t.end_reason, t.success) == ("completed", None)  # submitted is not resolved
    assert json.loads(only.steps[2].extra or "")["step"] == {"execution_time": 0.123, "state": {"wd": "/"}}


def test_the_same_instance_run_twice_is_two_trajectories_and_a_run_that_grew_is_one() -> None:
    grown = traj()
    grown["history"] = [*grown["history"], {"role": "assistant", "content": "then"}]
    again = traj(trajectory=[step("look", execution_time=0.9)])
    keys = [read(json.dumps(value).encode()).only.key for value in (traj(), grown, again)]
    assert keys[0] == keys[1] != keys[2]


def test_how_it_ended() -> None:
    for status, expected in (
        ("submitted (exit_context)", "context_overflow"),
        ("exit_cost", "max_turns"),
        ("exit_format", "agent_error"),
        ("exit_environment_error", "env_error"),
        ("something new", "unknown"),
        (None, None),
    ):
        t = read(json.dumps(traj(info={"exit_status": status})).encode()).only.trajectory
        assert (t.end_reason, t.end_reason_raw) == (expected, status)


def test_what_was_sent_is_kept_where_it_differs_and_a_step_without_a_message_is_an_event() -> None:
    sent = [{"role": "user", "content": "fix it"}, {"role": "user", "content": "(old output omitted)"}]
    value = traj(trajectory=[step("look", query=sent), step("look", query=sent), step("Exit due to cost limit", "")])
    only = read(json.dumps(value).encode()).only
    assert json.loads(only.steps[2].extra or "")["step"]["prompt"] == {"1": sent[1]}
    assert [s.role for s in only.steps[4:]] == ["event", "event"]
    assert "prompt" not in json.loads(only.steps[4].extra or "").get("step", {})
    assert only.steps[5].content == "Exit due to cost limit"


def test_text_agents_keep_the_roles_that_the_model_saw(samples: Path) -> None:
    for path in sorted((samples / "swe_agent").glob("*.traj")):
        history = json.loads(path.read_text(encoding="utf-8"))["history"]
        only = read(path.read_bytes()).only
        assert [(s.role, s.content) for s in only.steps] == [(m["role"], m["content"]) for m in history]
        assert only.trajectory.end_reason == "completed"


def test_lines_of_trajectories_load_too() -> None:
    outcome = read(jsonl(traj(), traj(trajectory=[step("look", execution_time=0.5)])))
    assert (outcome.format, len(outcome.fragments)) == ("swe_agent", 2)
