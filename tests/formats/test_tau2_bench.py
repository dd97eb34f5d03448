"""tau2-bench: three parties, two of which call tools; simulations whole, apart and spoken. And rows of judged runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read

RUN: dict[str, Any] = {
    "id": "7c6a3e3e-ac3f-406f-aea9-8cacb0a2e681",
    "task_id": "5",
    "trial": 2,
    "start_time": "2026-04-11T16:07:32",
    "end_time": "2026-04-11T16:08:32",
    "duration": 60.5,
    "termination_reason": "user_stop",
    "agent_cost": 0.25,
    "user_cost": 0.5,
    "reward_info": {"reward": 1.0, "reward_breakdown": {"DB": 1.0}, "nl_assertions": None},
    "messages": [
        {"role": "assistant", "content": "Hi! How can I help you today?", "usage": None, "cost": 0.0},
        {"role": "user", "content": "No data.", "usage": {"prompt_tokens": 400, "completion_tokens": 9}, "cost": 0.5},
        {
            "role": "user",
            "content": None,
            "tool_calls": [{"id": "u1", "name": "toggle", "arguments": {"on": True}, "requestor": "user"}],
        },
        {"role": "tool", "id": "u1", "content": "on", "requestor": "user", "error": False},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a1", "name": "get", "arguments": {"n": 1}, "requestor": "assistant"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 5},
            "cost": 0.25,
            "raw_data": {"id": "chatcmpl-1", "model": "m", "choices": [{"finish_reason": "tool_calls", "message": {}}]},
        },
        {"role": "tool", "id": "a1", "content": "gone", "requestor": "assistant", "error": True},
    ],
}
RESULTS = {
    "timestamp": "t",
    "info": {
        "agent_info": {"implementation": "llm_agent", "llm": "gpt-5", "llm_args": {"temperature": 0}},
        "environment_info": {"domain_name": "telecom", "policy": "Be kind.", "tool_defs": [{"name": "get"}]},
    },
    "tasks": [{"id": "5", "purpose": "fix"}, {"id": "6", "purpose": "never run"}],
    "simulations": [RUN],
}


def test_the_agents_numbers_are_the_agents() -> None:
    fragment = read(json.dumps(RUN).encode()).only
    t = fragment.trajectory
    assert (t.input_tokens, t.output_tokens, t.cost_usd and float(t.cost_usd)) == (50, 5, 0.25)
    assert (t.success, t.reward, t.attempt, t.end_reason, t.duration_ms) == (True, 1.0, 2, "completed", 60500)
    greeting, user = fragment.steps[:2]
    assert (greeting.sampled, greeting.is_synthetic) == (False, True)
    assert json.loads(user.extra or "") == {"usage": {"prompt_tokens": 400, "completion_tokens": 9}, "cost": 0.5}
    assert t.n_llm_calls == 1


def test_both_parties_call_tools() -> None:
    calls = read(json.dumps(RUN).encode()).only.tool_calls
    assert [(call.name, call.step_ix, call.result_state, call.is_error) for call in calls] == [
        ("toggle", 2, "ok", False),
        ("get", 4, "error", True),
    ]
    assert [json.loads(call.extra or "")["requestor"] for call in calls] == ["user", "assistant"]


def test_results_say_who_the_agent_was_and_keep_tasks_without_a_run() -> None:
    outcome = read(json.dumps(RESULTS).encode())
    t = outcome.only.trajectory
    assert (t.task_id, t.model, t.agent_name) == ("telecom/5", "gpt-5", "llm_agent")
    assert (json.loads(t.task or ""), json.loads(t.tools or "")) == ({"id": "5", "purpose": "fix"}, [{"name": "get"}])
    (attachment,) = outcome.attachments
    (whole,) = attachment.outcomes
    assert whole.session_id == t.session_id
    assert json.loads(whole.metadata or "")["tasks"] == [{"id": "6", "purpose": "never run"}]
    assert t.trajectory_id == read(json.dumps(RUN).encode()).only.trajectory.trajectory_id


@pytest.mark.parametrize(
    ("reward", "reason", "success", "end"),
    [
        (0.0, "max_steps", False, "max_turns"),
        (0.5, "agent_stop", False, "completed"),
        (None, "infrastructure_error", None, "env_error"),
        (1.0, "something_new", True, "unknown"),
    ],
)
def test_rewards_and_ends(reward: Any, reason: str, success: bool | None, end: str) -> None:
    t = read(json.dumps({**RUN, "reward_info": {"reward": reward}, "termination_reason": reason}).encode()).only
    assert (t.trajectory.success, t.trajectory.end_reason, t.trajectory.end_reason_raw) == (success, end, reason)


def test_spoken_simulations_are_told_by_turns(samples: Path) -> None:
    ticks = [
        {"tick_id": 0, "agent_chunk": {"contains_speech": False}, "user_chunk": {"contains_speech": True}},
        {"tick_id": 1, "user_chunk": {"contains_speech": True, "content": "hel"}},
        {"tick_id": 2, "user_chunk": {"contains_speech": True, "content": "lo"}},
        {
            "tick_id": 3,
            "agent_chunk": {"contains_speech": True, "content": "hi"},
            "agent_tool_calls": [{"id": "c", "name": "f", "arguments": {}}],
            "agent_tool_results": [{"role": "tool", "id": "c", "content": "r", "error": False}],
        },
    ]
    run = {key: value for key, value in RUN.items() if key != "messages"} | {"ticks": ticks}
    fragment = read(json.dumps(run).encode()).only
    assert [(step.role, step.content) for step in fragment.steps] == [
        ("user", "hello"),
        ("assistant", "hi"),
        ("tool", "r"),
    ]
    assert fragment.tool_calls[0].result_text == "r"
    (path,) = (samples / "tau2_bench" / "experiment" / "simulations").iterdir()
    spoken = read(path.read_bytes()).only.trajectory
    assert (spoken.content_complete, spoken.quality_flags) == (False, ("spoken",))


def test_rows_of_judged_runs(samples: Path) -> None:
    tau2 = read((samples / "tau2_bench" / "alpha-model.jsonl").read_bytes())
    tau1 = read((samples / "tau_bench" / "model-a.jsonl").read_bytes())
    assert (tau2.format, tau1.format) == ("tau2_bench", "tau_bench")
    assert [f.trajectory.success for f in tau2.fragments] == [False, False]
    assert tau1.fragments[0].trajectory.success is True
    assert tau1.fragments[1].tool_calls[0].is_error is True
    row = json.loads((samples / "tau_bench" / "model-think.jsonl").read_text(encoding="utf-8"))
    again = read(jsonl(row, row)).fragments
    assert [f.trajectory.attempt for f in again] == [0, 1]


def test_few_shot_examples_and_a_submission(samples: Path) -> None:
    shown = read((samples / "tau_bench" / "MockAirlineDomainEnv-few_shot.jsonl").read_bytes()).fragments
    assert all(f.steps[0].role == "user" and f.trajectory.tags == ("few_shot",) for f in shown)
    submission = read((samples / "tau2_bench" / "submission.json").read_bytes())
    assert submission.fragments == [] and submission.rejects == []
    numbers = {o.name: o.value_num for a in submission.attachments for o in a.outcomes}
    assert numbers["retail/pass_1"] == 78.5
