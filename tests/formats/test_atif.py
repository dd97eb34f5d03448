"""ATIF: steps to rows, observations to results of their own step, subagents, and what real files get wrong."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from sources import jsonl, read

AGENT = {"name": "helper", "version": "1", "model_name": "m-1"}


def document(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = [{"step_id": ix, **step} for ix, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.7", "trajectory_id": "t-1", "agent": AGENT, "steps": numbered, **more}


def tool_step(results: list[Any], **more: Any) -> dict[str, Any]:
    calls = [{"tool_call_id": i, "function_name": f"f_{i}", "arguments": {"n": 1}} for i in ("a", "b")]
    return {"source": "agent", "message": "", "tool_calls": calls, "observation": {"results": results}, **more}


def test_a_step_of_the_agent_gives_its_row_and_one_for_each_result() -> None:
    fragment = read(
        jsonl(
            document(
                {"source": "user", "message": "q", "timestamp": "2026-01-05T00:00:01Z"},
                tool_step([{"source_call_id": "b", "content": "of b"}, {"source_call_id": "a"}, {"content": "reset"}]),
                {"source": "agent", "message": "done", "timestamp": "2026-01-05T00:00:04Z"},
            )
        )
    ).only
    assert [step.role for step in fragment.steps] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    a, b = fragment.tool_calls
    assert (a.name, a.args, a.result_text, a.result_step_ix, a.paired_by) == ("f_a", '{"n":1}', None, 3, "id")
    assert (b.result_text, b.result_step_ix) == ("of b", 2)
    assert fragment.steps[3].content_state == "missing"
    assert fragment.steps[4].quality_flags == ("orphan_result",)
    t = fragment.trajectory
    assert (t.format_version, t.agent_name, t.model, t.duration_ms) == ("ATIF-v1.7", "helper", "m-1", 3000.0)


def test_a_result_without_an_id_pairs_within_its_own_step_only() -> None:
    one = {"source": "agent", "message": "", "tool_calls": [{"tool_call_id": "x", "function_name": "f"}]}
    silent = {"source": "agent", "message": "just text", "observation": {"results": [{"content": "screen"}]}}
    fragment = read(jsonl(document(one, silent))).only
    assert fragment.tool_calls[0].result_state == "missing"
    fragment = read(jsonl(document(one | {"observation": {"results": [{"content": "screen"}]}}))).only
    assert (fragment.tool_calls[0].result_text, fragment.tool_calls[0].paired_by) == ("screen", "order")


def test_tokens_are_summed_without_copied_context_and_money_is_exact() -> None:
    def metrics(tokens: int, cost: float) -> dict[str, Any]:
        return {
            "prompt_tokens": tokens,
            "completion_tokens": 2,
            "cached_tokens": 1,
            "cost_usd": cost,
            "extra": {"reasoning_tokens": 1},
            "prompt_token_ids": [1, 2],
        }

    steps = [
        {"source": "agent", "message": "old", "metrics": metrics(100, 0.1), "is_copied_context": True},
        {"source": "agent", "message": "a", "metrics": metrics(10, 0.1), "llm_call_count": 1},
        {"source": "agent", "message": "b", "metrics": metrics(20, 0.2), "llm_call_count": 0},
    ]
    final = {"total_prompt_tokens": 130, "total_steps": 5}
    fragment = read(jsonl(document(*steps, final_metrics=final))).only
    t = fragment.trajectory
    assert (t.input_tokens, t.output_tokens, t.cache_read_tokens, t.reasoning_tokens) == (30, 4, 2, 2)
    assert t.cost_usd == Decimal("0.3")
    assert t.n_llm_calls == 1
    assert t.quality_flags == ("total_steps_mismatch",)
    assert json.loads(t.extra or "")["final_metrics"] == final
    assert [step.sampled for step in fragment.steps] == [None, True, False]
    assert json.loads(fragment.steps[1].extra or "")["metrics"]["prompt_token_ids"] == [1, 2]


def test_subagents_are_trajectories_that_point_to_their_parent() -> None:
    child = {"schema_version": "ATIF-v1.7", "trajectory_id": "child", "agent": AGENT, "steps": []}
    result = {"source_call_id": "a", "content": "ok", "subagent_trajectory_ref": [{"trajectory_id": "child"}]}
    outcome = read(jsonl(document(tool_step([result]), subagent_trajectories=[child, "odd"])))
    parent, sub = outcome.fragments
    assert outcome.n_records == 1
    assert sub.trajectory.parent_trajectory_id == parent.key
    assert parent.tool_calls[0].subagent_trajectory_id == sub.key
    assert json.loads(parent.trajectory.extra or "")["subagent_trajectories"] == ["odd"]


def test_an_object_of_documents_and_versions_nobody_knows() -> None:
    odd = {"agent": {"name": "a"}, "steps": [{"step_id": 7, "source": "assistant", "message": None}, "?"]}
    future = document() | {"schema_version": "ATIF-v9.9"}
    outcome = read(json.dumps({"one": odd, "two": future}).encode())
    first, second = outcome.fragments
    assert outcome.format == "atif"
    assert first.trajectory.quality_flags == ("no_version", "odd_role")
    assert [step.role for step in first.steps] == ["assistant", "event"]
    assert first.steps[0].content_state == "null"
    assert second.trajectory.quality_flags == ("unknown_version", "no_steps")


def test_values_of_unexpected_types_are_kept() -> None:
    step = {"source": "agent", "message": 5, "tool_calls": "none", "observation": ["x"], "metrics": {"logprobs": ["a"]}}
    fragment = read(jsonl(document(step))).only
    extra = json.loads(fragment.steps[0].extra or "")
    assert extra == {"metrics": {"logprobs": ["a"]}, "tool_calls": "none", "observation": ["x"]}
    assert fragment.steps[0].content == "5"


def test_sampled_ids_and_logprobs() -> None:
    step = {
        "source": "agent",
        "message": "x",
        "metrics": {"completion_token_ids": [5, 6], "logprobs": [-0.5, -0.25]},
    }
    (row,) = read(jsonl(document(step))).only.steps
    assert (row.token_ids, row.logprobs, row.extra) == ((5, 6), (-0.5, -0.25), None)


def test_audio_of_1_8_stays_a_part() -> None:
    parts = [
        {"type": "text", "text": "Hear:"},
        {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}},
    ]
    document = {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": 1, "source": "user", "message": parts}],
    }
    fragment = read(json.dumps(document).encode()).only
    assert (fragment.steps[0].content, json.loads(fragment.steps[0].parts or "")) == ("Hear:", parts)
    assert (fragment.trajectory.format_version, fragment.trajectory.quality_flags) == ("ATIF-v1.8", None)


def test_what_our_exporter_put_into_extra_is_read_again() -> None:
    call = {"tool_call_id": "c", "function_name": "f", "arguments": {}, "extra": {"arguments_raw": '{"a":', "own": 1}}
    result = {"source_call_id": "c", "content": "no", "extra": {"flywheel": {"name": "f", "is_error": True}}}
    step = {
        "step_id": 1,
        "source": "agent",
        "message": "",
        "tool_calls": [call],
        "observation": {"results": [result]},
        "extra": {"flywheel": {"content_state": "null", "trainable": False}, "own": 2},
    }
    document = {
        "schema_version": "ATIF-v1.8",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [step],
    }
    fragment = read(json.dumps(document).encode()).only
    said, answered = fragment.steps
    assert (said.content, said.content_state, said.trainable) == (None, "null", False)
    assert json.loads(said.extra or "") == {"extra": {"own": 2}}
    (made,) = fragment.tool_calls
    assert (made.args_raw, made.args_state, made.is_error) == ('{"a":', "invalid_json", True)
    assert json.loads(made.extra or "") == {"extra": {"own": 1}}
    assert (answered.name, answered.extra) == ("f", None)
