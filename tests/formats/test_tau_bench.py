"""tau-bench: reward and success, runs that broke off, ids of (task, trial), and the real airline runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from sources import USER, answers, asks, call, read


def run(task_id: int = 0, trial: int = 0, reward: Any = 0.0, **info: Any) -> dict[str, Any]:
    traj = [USER, asks(call("c")), answers("c", "Error: order not found"), {"role": "user", "content": "###STOP###"}]
    return {"task_id": task_id, "reward": reward, "info": info, "traj": traj, "trial": trial}


def read_runs(*runs: dict[str, Any]) -> Any:
    return read(json.dumps(list(runs), indent=2).encode())


def test_a_failed_run() -> None:
    outcome = read_runs(
        run(3, 1, task={"user_id": "u_1", "instruction": "do"}, reward_info={"reward": 0.0}, source="user")
    )
    t = outcome.only.trajectory
    assert (outcome.format, t.native_id, t.task_id, t.attempt) == ("tau_bench", "3/1", "3", 1)
    assert (t.success, t.reward, t.success_source) == (False, 0.0, "environment:reward")
    assert json.loads(t.task or "") == {"user_id": "u_1", "instruction": "do"}
    assert json.loads(t.extra or "") == {"reward_info": {"reward": 0.0}, "source": "user"}
    assert t.user_id is None
    assert (t.n_tool_calls, t.n_tool_errors) == (1, 1)
    assert outcome.only.tool_calls[0].result_state == "error"
    (reward,) = outcome.only.outcomes
    assert (reward.name, reward.value_num, reward.polarity, reward.source_kind) == ("reward", 0.0, -1, "environment")


def test_success_and_no_verdict() -> None:
    good, broken, unknown = read_runs(
        run(0, reward=1.0), run(1, reward=0.0, error="timeout"), run(2, reward=None)
    ).fragments
    assert (good.trajectory.success, good.outcomes[0].polarity) == (True, 1)
    assert (broken.trajectory.success, broken.outcomes[0].polarity) == (None, None)
    assert (broken.trajectory.end_reason, broken.trajectory.error_message) == ("env_error", "timeout")
    assert (unknown.trajectory.success, unknown.outcomes[0].value_type) == (None, "null")


def test_two_result_files_do_not_mix_but_a_grown_one_is_the_same() -> None:
    first = [f.key for f in read_runs(run(0, 0, model="a"), run(0, 1)).fragments]
    grown = [f.key for f in read_runs(run(0, 0, model="a"), run(0, 1), run(0, 2)).fragments]
    other = [f.key for f in read_runs(run(0, 0, model="b"), run(0, 1)).fragments]
    assert grown[:2] == first
    assert not set(first) & set(other)


def test_the_real_airline_runs(samples: Path) -> None:
    outcome = read((samples / "tau_bench" / "gpt-4o-airline.json").read_bytes())
    assert (outcome.format, outcome.n_records, len(outcome.fragments)) == ("tau_bench", 200, 200)
    assert outcome.rejects == []
    assert Counter(f.trajectory.success for f in outcome.fragments) == {False: 116, True: 84}
    calls = [made for fragment in outcome.fragments for made in fragment.tool_calls]
    assert len(calls) == 1164
    assert {made.paired_by for made in calls} == {"id"}
    assert {made.args_state for made in calls} == {"ok"}
    assert {(f.trajectory.task_id, f.trajectory.attempt) for f in outcome.fragments} == {
        (str(task), trial) for task in range(50) for trial in range(4)
    }
