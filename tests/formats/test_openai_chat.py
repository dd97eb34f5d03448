"""OpenAI chat: every shape that applications and gateways write, ids that are stable, the application's own data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from sources import USER, answers, asks, call, jsonl, read

ANSWER = {"role": "assistant", "content": '{"order": "A-1029"}'}
RESPONSE = {
    "id": "chatcmpl-0123456789abcdef",
    "object": "chat.completion",
    "created": 1757015036,
    "model": "m-1",
    "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}


def log(**more: Any) -> dict[str, Any]:
    return {"request": {"model": "m", "messages": [USER], "temperature": 0.5}, "response": RESPONSE, **more}


def test_a_gateway_log_in_full() -> None:
    record = log(
        metadata={"task_id": "task-1", "session_id": "s-1", "user_id": "u-77", "color": "red"},
        feedback={"name": "order_lookup", "score": 0.0, "comment": {"why": "wrong id"}, "source": "environment"},
        latency_sec=2.0,
        cost="0.0001",
    )
    outcome = read(jsonl(record))
    assert (outcome.format, outcome.n_records, outcome.rejects) == ("openai_chat", 1, [])
    t = outcome.only.trajectory
    assert t.native_id == "chatcmpl-0123456789abcdef"
    assert (t.task_id, t.session_id, t.user_id) == ("task-1", "s-1", "u-77")
    assert json.loads(t.metadata or "")["color"] == "red"
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens, t.reasoning_tokens) == (100, 40, 20, 5)
    assert (t.model, t.models, t.usage_quality) == ("m-1", ("m-1",), "per_call")
    assert (t.n_steps, t.n_llm_calls, t.n_tool_calls) == (2, 1, 0)
    assert t.ended_at == datetime(2025, 9, 4, 19, 43, 56, tzinfo=UTC)
    assert (t.ended_at - t.started_at).total_seconds() == 2  # type: ignore[operator]
    assert (t.duration_ms, t.time_quality) == (2000.0, "exact")
    assert (t.cost_usd, t.cost_source) == (Decimal("0.0001"), "recorded")
    assert (t.end_reason, t.end_reason_raw) == ("completed", "stop")
    assert (t.success, t.reward, t.success_source) == (False, 0.0, "environment:order_lookup")
    assert json.loads(t.sampling or "") == {"temperature": 0.5}
    answer = outcome.only.steps[1]
    assert (answer.sampled, answer.llm_call_id, answer.finish_reason) == (True, t.native_id, "stop")
    (feedback,) = outcome.only.outcomes
    assert (feedback.value_num, feedback.polarity, feedback.source_kind) == (0.0, -1, "environment")
    assert feedback.explanation == '{"why":"wrong id"}'


@pytest.mark.parametrize(
    ("record", "n_steps"),
    [
        ({"messages": [USER, ANSWER]}, 2),
        ({"messages": [USER], "response": RESPONSE}, 2),
        ({"messages": [USER, ANSWER], "response": RESPONSE}, 2),
        ({"request": {"body": {"messages": [USER]}}, "response": {"body": RESPONSE}}, 2),
        (RESPONSE, 1),
        ({"messages": [USER], "response": {"error": {"type": "rate_limit", "message": "slow down"}}}, 1),
    ],
)
def test_shapes(record: dict[str, Any], n_steps: int) -> None:
    outcome = read(jsonl(record, record | {"id": "another-record-of-it"}))
    assert [len(fragment.steps) for fragment in outcome.fragments] == [n_steps, n_steps]


def test_a_document_that_is_one_conversation() -> None:
    document = json.dumps([USER, asks(call("c")), answers("c"), ANSWER], indent=2).encode()
    outcome = read(document)
    assert (outcome.n_records, len(outcome.only.steps)) == (1, 4)
    # but an array of conversations is that many
    assert len(read(json.dumps([{"messages": [USER]}, {"messages": [ANSWER]}]).encode()).fragments) == 2


def test_success_is_what_feedback_says_and_nothing_else() -> None:
    for feedback, success in [(None, None), ([], None), (True, True), ("thumbs_down", False), ({"score": None}, None)]:
        t = read(jsonl(log(feedback=feedback))).only.trajectory
        assert t.success is success, feedback
    assert read(jsonl(log())).only.trajectory.success is None


def test_ids_do_not_depend_on_the_file_but_on_what_it_says() -> None:
    one, other = {"messages": [USER, ANSWER]}, {"messages": [USER]}
    alone = read(jsonl(one)).only.trajectory
    after_another = read(jsonl(other, one)).fragments[1].trajectory
    assert alone.trajectory_id == after_another.trajectory_id
    assert alone.content_sha256 == after_another.content_sha256
    # reordered keys are the same record; another task is not
    assert read(jsonl({"messages": [dict(reversed(USER.items())), ANSWER]})).only.key == alone.trajectory_id
    assert read(jsonl(one | {"metadata": {"task_id": "t"}})).only.key != alone.trajectory_id
    # feedback that comes later joins, it does not make another trajectory
    assert read(jsonl(one | {"feedback": 1})).only.key == alone.trajectory_id


def test_short_ids_belong_to_their_file_long_ones_to_the_world() -> None:
    def keys(*records: dict[str, Any]) -> list[str]:
        return [fragment.key for fragment in read(jsonl(*records)).fragments]

    short, long = {"id": "1", "messages": [USER]}, {"id": "trace-0123456789abcdef", "messages": [USER]}
    first = {"id": "0", "messages": [ANSWER]}
    assert keys(short)[0] != keys(first, short)[1]
    assert keys(first, short)[1] == keys(first, short, long)[1]  # the file grew
    assert keys(long)[0] == keys(first, long)[1]


def test_retries_are_attempts_and_corrections_replace() -> None:
    def record(attempt: int, *messages: Any) -> dict[str, Any]:
        return {"id": "r1", "attempt": attempt, "messages": list(messages)}

    outcome = read(jsonl(record(1, USER), record(2, USER, ANSWER), record(2, USER, ANSWER), record(1, USER, USER)))
    assert outcome.n_records == 4
    assert [(f.trajectory.attempt, f.trajectory.n_steps) for f in outcome.fragments] == [(1, 2), (2, 2)]


def test_what_has_no_column_is_kept() -> None:
    record = log(cluster="eu-1", big=18446744073709551617)
    record["response"] = RESPONSE | {"choices": [*RESPONSE["choices"], {"index": 1, "message": ANSWER}], "x": [1]}  # type: ignore[misc]
    extra = json.loads(read(jsonl(record)).only.trajectory.extra or "")
    assert extra["cluster"] == "eu-1"
    assert extra["big"] == 18446744073709551617
    assert extra["other_choices"] == [{"index": 1, "message": ANSWER}]
    assert extra["response"]["x"] == [1]
    assert extra["request"]["temperature"] == 0.5


def test_a_record_of_another_shape_is_refused_alone() -> None:
    data = jsonl({"messages": [USER]}, {"rows": 3}, 7, {"messages": "no list"})
    outcome = read(data)
    assert (outcome.n_records, len(outcome.fragments)) == (4, 1)
    assert [(reject.record_ix, reject.code) for reject in outcome.rejects] == [
        (1, "not_openai_chat"),
        (2, "not_openai_chat"),
        (3, "not_openai_chat"),
    ]
    reject = outcome.rejects[0]
    assert data[reject.byte_offset : reject.byte_offset + reject.byte_len] == b'{"rows": 3}'


def test_lost_bytes_make_a_trajectory_incomplete() -> None:
    data = b'{"messages":[{"role":"user","content":"caf\xe9"}]}\n'
    outcome = read(data)
    assert outcome.n_repaired == 1
    assert not outcome.only.trajectory.content_complete
    assert outcome.only.trajectory.quality_flags == ("invalid_utf8",)


@pytest.mark.parametrize(
    ("mark", "trainable", "kept"),
    [
        ({"weight": 0}, False, {}),
        ({"loss_mask": 1}, True, {}),
        ({"train": False}, False, {}),
        ({"loss": True, "weight": 0.5}, True, {"weight": 0.5}),
        ({"weight": "0"}, None, {"weight": "0"}),
    ],
)
def test_marks_of_what_to_learn(mark: dict[str, Any], trainable: bool | None, kept: dict[str, Any]) -> None:
    step = read(jsonl({"messages": [USER, ANSWER | mark]})).only.steps[1]
    assert (step.trainable, json.loads(step.extra or "{}")) == (trainable, kept)


def test_nothing_of_a_call_is_lost() -> None:
    odd = {"index": 3, "id": "c", "function": {"name": "f", "arguments": "{}", "thought_signature": "s"}, "x": 1}
    message = {
        "role": "assistant",
        "content": "a",
        "tool_calls": [odd, "just text"],
        "function_call": {"name": "g", "y": 2},
    }
    made = read(jsonl({"messages": [USER, message | {"reasoning": "r", "reasoning_content": "other"}]})).only
    assert [json.loads(call.extra or "{}") for call in made.tool_calls] == [
        {"x": 1, "index": 3, "function": {"thought_signature": "s"}},
        {"call": "just text"},
        {"y": 2},
    ]
    assert made.steps[1].reasoning == "other"
    assert json.loads(made.steps[1].extra or "") == {"reasoning": "r"}


def test_a_log_of_the_litellm_proxy() -> None:
    record = {
        "id": "chatcmpl-0123456789abcdef", "call_type": "acompletion", "status": "failure", "end_user": "u-1",
        "startTime": 1757015036.25, "endTime": 1757015038.5, "response_cost": 0.002, "custom_llm_provider": "openai",
        "messages": [USER], "response": {}, "model": "m", "model_parameters": {"temperature": 0.5, "tools": []},
        "error_str": "RateLimitError: slow down", "request_tags": ["a"], "metadata": {"user_api_key_team_id": "t"},
    }  # fmt: skip
    t = read(jsonl(record)).only.trajectory
    assert (t.user_id, t.model, t.provider, t.tags) == ("u-1", "m", "openai", ("a",))
    assert (t.end_reason, t.error_message, t.cost_usd) == ("model_error", "RateLimitError: slow down", Decimal("0.002"))
    assert t.started_at == datetime(2025, 9, 4, 19, 43, 56, 250000, tzinfo=UTC)
    assert t.ended_at == datetime(2025, 9, 4, 19, 43, 58, 500000, tzinfo=UTC)
    assert json.loads(t.sampling or "") == {"temperature": 0.5}
