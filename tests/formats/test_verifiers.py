"""Rollouts of verifiers: rows of old, graphs of new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import USER, jsonl, read

ANSWER = {"role": "assistant", "content": "2", "tool_calls": [{"id": "c", "name": "f", "arguments": '{"a": 1'}]}


def trace(**more: Any) -> dict[str, Any]:
    nodes = [
        {"parent": None, "message": USER, "sampled": False, "token_ids": [1, 2], "mask": [False, False]},
        {
            "parent": 0,
            "message": ANSWER,
            "sampled": True,
            "timestamp": 1796063386.5,
            "token_ids": [3, 4],
            "mask": [True, True],
            "logprobs": [-0.5, -0.25],
            "advantages": 0.5,
        },
        {"parent": 1, "message": {"role": "tool", "tool_call_id": "c", "content": "r"}, "sampled": False},
        {"parent": 0, "message": {"role": "assistant", "content": "other"}, "sampled": True},
    ]
    usage = {"prompt_tokens": 10, "cached_input_tokens": 90, "completion_tokens": 2}
    calls = [{"node": 1, "model": "m", "usage": usage, "finish_reason": "tool_calls"}, {"error": {"type": "E"}}]
    return {"version": 1, "id": "t" * 32, "nodes": nodes, "calls": calls, "rewards": {}, **more}


def test_nodes_are_a_graph_with_tokens() -> None:
    episode = {"id": "e", "env": {"id": "sums"}, "task": {"data": {"idx": 7}, "key": "k"}, "traces": [trace()]}
    fragment = read(jsonl(episode)).only
    assert [step.parent_ix for step in fragment.steps] == [None, 0, 1, 0]
    said = fragment.steps[1]
    assert (said.token_ids, said.token_mask, said.logprobs) == ((3, 4), (True, True), (-0.5, -0.25))
    assert (said.sampled, said.input_tokens, said.cache_read_tokens, said.output_tokens) == (True, 100, 90, 2)
    assert json.loads(said.extra or "") == {"node": {"advantages": 0.5}}
    (call,) = fragment.tool_calls
    assert (call.args_raw, call.args_state, call.result_text) == ('{"a": 1', "invalid_json", "r")
    assert (fragment.trajectory.task_id, fragment.trajectory.session_id) == ("sums/7", "e")


@pytest.mark.parametrize(
    ("rewards", "errors", "reward", "success"),
    [
        ({"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 1, "weight": 0.5}}, [], 1.0, True),
        ({"a": {"score": 0.0, "weight": 1.0}}, [], 0.0, False),
        ({"a": {"score": 0.5, "weight": 1.0}}, [], 0.5, None),
        ({"a": {"score": 0.0, "weight": 1.0}}, [{"type": "ProviderError", "message": "500"}], 0.0, None),
        ({}, [], None, None),
    ],
)
def test_rewards(rewards: Any, errors: Any, reward: float | None, success: bool | None) -> None:
    t = read(jsonl(trace(rewards=rewards, errors=errors))).only.trajectory
    assert (t.reward, t.success) == (reward, success)
    assert t.error_type == (errors[0]["type"] if errors else None)


def test_an_untrainable_agent_and_a_parent_that_is_none() -> None:
    broken = trace(agent={"trainable": False, "name": "judge"})
    broken["nodes"][1]["parent"] = 9
    fragment = read(jsonl(broken)).only
    assert [step.trainable for step in fragment.steps] == [None, False, None, False]
    assert fragment.steps[1].quality_flags == ("unknown_parent",)


def test_rows_of_old(samples: Path) -> None:
    fragments = read((samples / "verifiers" / "legacy_0.1.14_results.jsonl").read_bytes()).fragments
    assert [f.trajectory.task_id for f in fragments] == ["0", "0", "1", "1", "2", "2", "3", "3"]
    assert [f.trajectory.attempt for f in fragments] == [0, 1] * 4
    assert [f.trajectory.success for f in fragments] == [True] * 4 + [None] * 2 + [False] * 2
    assert fragments[6].trajectory.end_reason == "max_tokens"
    first, bad, failed = fragments[0], fragments[2], fragments[4]
    assert (first.trajectory.input_tokens, first.trajectory.output_tokens) == (352, 102)
    assert [call.args for call in first.tool_calls] == [
        '{"location":"Seattle, WA"}',
        '{"location":"San Francisco, CA"}',
    ]
    assert bad.tool_calls[0].args_state == "invalid_json"
    assert (failed.trajectory.end_reason, failed.trajectory.error_type) == ("model_error", "ModelError")


def test_a_completion_model_and_calls_that_are_no_json() -> None:
    row = {"example_id": 1, "prompt": "1 + 1 =", "completion": " 2", "reward": 1, "metrics": {}}
    odd = {**row, "completion": [{"role": "assistant", "content": "", "tool_calls": ["f(", '{"id": "c"}']}]}
    text, calls = read(jsonl(row, odd)).fragments
    assert [(step.role, step.content) for step in text.steps] == [("user", "1 + 1 ="), ("assistant", " 2")]
    assert [(call.args_raw, call.call_id) for call in calls.tool_calls] == [("f(", "call_1_0"), (None, "c")]


def test_turns_that_are_not_the_messages_are_kept() -> None:
    turn = {"prompt": [USER], "completion": [{"role": "assistant", "content": "another"}], "response": None}
    row = {"example_id": 1, "prompt": [USER], "completion": [{"role": "assistant", "content": "2"}], "reward": 0.0}
    fragment = read(jsonl({**row, "trajectory": [turn]})).only
    assert json.loads(fragment.trajectory.extra or "")["trajectory"] == [{"completion": turn["completion"]}]
