"""Agent JSON lines: every key has its place, odd ones are kept, and the quick way gives what the general one gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from sources import jsonl, read

from flywheel.formats import agent_jsonl
from flywheel.records import Fragment

LINE: dict[str, Any] = {
    "trajectory_id": "0123456789abcdef01",
    "task_id": "task-1",
    "source": "prod",
    "agent": {"name": "a", "version": "1.2", "model": "m", "params": {"temperature": 0.7}},
    "started_at": 1735689600000,
    "ended_at": 1735689660500,
    "outcome": "failure",
    "reward": 0.0,
    "failure": {"category": "timeout", "message": "too slow"},
    "tags": ["x", "y"],
    "usage": {"tokens_in": 10, "tokens_out": 2, "cost_usd": 0.25},
    "metadata": {"k": [1, 2.50]},
    "steps": [
        {"index": 0, "role": "system", "ts": 1735689600000, "content": "be good"},
        {"index": 1, "role": "user", "ts": 1735689600005, "content": "naïve: 2 ✅"},
        {
            "index": 2, "role": "assistant", "ts": 1735689601000, "content": "", "reasoning": "hm", "tokens_in": 7,
            "tokens_out": 3, "latency_ms": 12, "logprob_mean": -0.25,
            "tool_calls": [
                {"id": "c1", "name": "bash", "arguments": {"cmd": ":ls", "t": 1e400}},
                {"id": "c2", "name": "grep", "arguments": '{"q": 1.10}'},
            ],
        },
        {"index": 3, "role": "tool", "ts": 1735689602000, "content": "no", "tool_call_id": "c2", "exit_code": 2,
         "truncated": False, "error": {"type": "E", "message": "bad"}},
        {"index": 4, "role": "tool", "ts": 1735689603000, "content": "cut", "tool_call_id": "c1", "exit_code": 0,
         "truncated": True},
    ],
}  # fmt: skip


def line(**changes: Any) -> bytes:
    """The line with other values; numbers as they're typed above."""
    text = json.dumps({**LINE, **changes}, ensure_ascii=False).replace("Infinity", "1e400").replace("2.5]", "2.50]")
    return text.encode() + b"\n"


def test_every_key_has_its_place() -> None:
    found = read(line())
    assert (found.format, found.n_records, found.rejects) == ("agent_jsonl", 1, [])
    whole = found.only
    head, steps, (first, second) = whole.trajectory, whole.steps, whole.tool_calls
    assert (head.native_id, head.task_id, head.agent_name, head.agent_version) == (
        "0123456789abcdef01", "task-1", "a", "1.2",
    )  # fmt: skip
    assert (head.model, head.sampling, head.tags, head.metadata) == (
        "m", '{"temperature":0.7}', ("x", "y"), '{"k":[1,2.50]}',
    )  # fmt: skip
    assert (head.success, head.success_source, head.reward, head.end_reason) == (False, "outcome", 0.0, "timeout")
    assert (head.error_type, head.error_message) == ("timeout", "too slow")
    assert (head.input_tokens, head.output_tokens, head.usage_quality, str(head.cost_usd)) == (7, 3, "per_call", "0.25")
    assert (head.duration_ms, head.time_quality, head.extra) == (60500.0, "exact", '{"source":"prod",' + TIMES + "}")
    assert [step.role for step in steps] == ["system", "user", "assistant", "tool", "tool"]
    assert [step.content for step in steps] == ["be good", "naïve: 2 ✅", "", "no", "cut"]
    assert [step.parent_ix for step in steps] == [None, 0, 1, 2, 3]
    assert (steps[2].reasoning, steps[2].extra) == ("hm", '{"latency_ms":12,"logprob_mean":-0.25}')
    assert (steps[4].content_state, head.content_complete) == ("truncated", False)
    assert (first.args, first.args_raw, first.result_text, first.is_error) == (
        '{"cmd":":ls","t":1e400}', None, "cut", False,
    )  # fmt: skip
    assert (second.args, second.args_raw, second.result_state, second.error_type) == (
        '{"q":1.10}', '{"q": 1.10}', "error", "E",
    )  # fmt: skip
    (outcome,) = whole.outcomes
    assert (outcome.value_text, outcome.value_num, outcome.polarity) == ("failure", 0.0, -1)


TIMES = '"started_at":1735689600000,"ended_at":1735689660500'


def generally(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Fragment]:
    """What the reader gives without its quick way."""
    with monkeypatch.context() as patched:
        patched.setattr(agent_jsonl.AgentJsonl, "quick", None)
        return read(data, "agent_jsonl").fragments


def sorted_extra(found: list[Fragment]) -> str:
    """The fragments as text; `extra` of a step in the order of its keys, which the quick way doesn't keep."""
    from dataclasses import replace

    return repr(
        [
            replace(
                f, steps=tuple(replace(s, extra=s.extra and str(sorted(json.loads(s.extra).items()))) for s in f.steps)
            )
            for f in found
        ]
    )


def test_the_quick_way_takes_ordinary_lines_and_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert agent_jsonl.decoded(line()) is not None
    assert sorted_extra(read(line()).fragments) == sorted_extra(generally(line(), monkeypatch))


def test_what_is_mutated_at_random_gives_the_same_rows_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    odd: list[Any] = [None, "", "x", 0, -1, 1.5, 2**40, True, [], {}, ["a"], {"k": ":v"}, "c1", "tool", "event", [[{}]]]
    quick = 0
    for _ in range(400):
        value = json.loads(line().replace(b"1e400", b"1e40"))
        place: Any = value
        for _ in range(rng.randrange(1, 6)):
            if not isinstance(place, (dict, list)) or not place:
                break
            key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
            if rng.random() < 0.4:
                if rng.random() < 0.2 and isinstance(place, dict):
                    del place[key]
                else:
                    place[key] = rng.choice(odd)
                break
            place = place[key]
        data = jsonl(value)
        quick += agent_jsonl.decoded(data) is not None
        assert sorted_extra(read(data, "agent_jsonl").fragments) == sorted_extra(generally(data, monkeypatch)), data
    assert quick > 100


@pytest.mark.parametrize(
    ("odd", "flag"),
    [
        (b'"task_id": "task-1", "task_id": "t2"', "duplicate_keys"),
        (b'"task_id": "\xff"', "invalid_utf8"),
        (b'"task_id": NaN', "nonfinite_number"),
    ],
)
def test_what_is_odd_about_a_line_is_flagged(odd: bytes, flag: str) -> None:
    found = read(line().replace(b'"task_id": "task-1"', odd))
    assert flag in (found.only.trajectory.quality_flags or ())
    assert found.n_repaired == 1


def test_equal_keys_inside_of_steps_and_arguments_are_flagged() -> None:
    for old, new in (
        (b'"content": "no"', b'"content": "n", "content": "no"'),
        (b'{"cmd": ":ls"', b'{"cmd": 1, "cmd": ":ls"'),
    ):
        data = line().replace(old, new)
        assert data != line()
        assert "duplicate_keys" in (read(data).only.trajectory.quality_flags or ())


def test_odd_values_are_kept() -> None:
    steps = [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}], "tokens_in": "many", "mood": "good"},
        {"role": "oracle", "content": None, "index": 1.5, "ts": "2025-01-01 00:00:00"},
        "not a step",
        {"content": "x", "error": "text", "tool_calls": "none"},
    ]
    whole = read(
        jsonl({"trajectory_id": "r1", "steps": steps, "agent": "me", "outcome": {"a": 1}, "note": 2}), "agent_jsonl"
    ).only
    head, rows = whole.trajectory, whole.steps
    assert json.loads(head.extra or "") == {"agent": "me", "note": 2}
    assert (head.success, head.time_quality) == (None, "naive_assumed_utc")
    assert json.loads(rows[0].extra or "") == {"tokens_in": "many", "mood": "good"}
    assert (rows[0].content, rows[1].role, rows[1].role_raw, rows[1].content_state) == ("a", "event", "oracle", "null")
    assert json.loads(rows[1].extra or "") == {"index": 1.5}
    assert (rows[2].raw, rows[3].error_message) == ('"not a step"', "text")
    assert json.loads(rows[3].extra or "") == {"tool_calls": "none"}
    assert whole.outcomes[0].value_raw == '{"a":1}'


def test_a_line_without_steps_is_refused_alone() -> None:
    found = read(line() + b'{"trajectory_id": "x", "steps": 3}\n' + line(trajectory_id="f" * 18), "agent_jsonl")
    assert [reject.code for reject in found.rejects] == ["not_agent_jsonl"]
    assert len(found.fragments) == 2
