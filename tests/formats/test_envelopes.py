"""What other systems pack calls into: pages, batches, spend logs, Bedrock's logs and its own protocol."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from sources import USER, call, jsonl, read

COMPLETION = {
    "id": "chatcmpl-" + "a" * 24, "object": "chat.completion", "created": 1760000000, "model": "m-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
}  # fmt: skip
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn", "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 2},
}  # fmt: skip
SPEND = {"request_id": "req-1", "call_type": "acompletion", "spend": 0.25, "prompt_tokens": 9, "completion_tokens": 3}
BEDROCK = {
    "schemaType": "ModelInvocationLog",
    "requestId": "r-1",
    "modelId": "m-1",
    "timestamp": "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize(
    ("record", "name", "n"),
    [
        ({"object": "list", "data": [COMPLETION, {**COMPLETION, "id": "chatcmpl-b"}]}, "openai_chat", 2),
        ({"object": "list", "data": [{"id": "m-0", **USER}]}, "openai_chat", 1),
        ({"data": [MESSAGE], "has_more": False}, "anthropic_messages", 1),
        ({"requests": [{"custom_id": c, "params": {"system": "s", "max_tokens": 9, "messages": [USER]}} for c in "ab"]},
         "anthropic_messages", 2),
        ({"custom_id": "a", "url": "/v1/responses", "body": {"model": "m", "input": "Hi"}}, "openai_responses", 1),
        ({"custom_id": "a", "url": "/v1/completions", "body": {"model": "m", "prompt": "Hi"}}, "openai_chat", 1),
    ],
)  # fmt: skip
def test_calls_in_pages_and_batches(record: dict[str, Any], name: str, n: int) -> None:
    outcome = read(jsonl(record))
    assert (outcome.format, len(outcome.fragments), outcome.rejects) == (name, n, [])
    assert all(fragment.steps for fragment in outcome.fragments)


def test_requests_of_a_batch_that_failed_are_trajectories_that_failed() -> None:
    outcome = read(jsonl(
        {"custom_id": "a", "response": {"status_code": 400, "body": {"error": {"type": "bad", "message": "no"}}}},
        {"custom_id": "b", "response": None, "error": {"code": "batch_expired", "message": "late"}},
    ))  # fmt: skip
    found = [(f.trajectory.native_id, f.trajectory.end_reason, f.trajectory.error_type) for f in outcome.fragments]
    assert found == [("a", "model_error", "bad"), ("b", "model_error", "batch_expired")] and not outcome.rejects


@pytest.mark.parametrize(("kind", "reason"), [("expired", "timeout"), ("canceled", "cancelled")])
def test_what_became_of_a_request_of_anthropics_batch(kind: str, reason: str) -> None:
    t = read(jsonl({"custom_id": "a", "result": {"type": kind}})).only.trajectory
    assert (t.end_reason, t.end_reason_raw) == (reason, kind)


def test_a_spend_log_without_words_has_its_tokens_and_says_what_is_missing() -> None:
    t = read(jsonl({**SPEND, "messages": {}, "response": {}, "proxy_server_request": {}})).only.trajectory
    assert (t.input_tokens, t.output_tokens, str(t.cost_usd)) == (9, 3, "0.25")
    assert not t.content_complete and "content_not_captured" in (t.quality_flags or ())


def test_a_spend_log_has_what_the_proxy_was_asked_and_why_it_failed() -> None:
    failed = {"error_information": {"error_class": "RateLimitError", "error_message": "slow down"}}
    asked = {"model": "m", "messages": [USER]}
    fragment = read(jsonl({**SPEND, "messages": {}, "proxy_server_request": asked, "metadata": failed})).only
    t = fragment.trajectory
    assert [step.content for step in fragment.steps] == [USER["content"]]
    assert (t.end_reason, t.error_type, t.error_message) == ("model_error", "RateLimitError", "slow down")
    well = read(jsonl({**SPEND, "messages": [USER], "response": COMPLETION,
                       "error_information": {"error_class": "", "error_message": None}}))  # fmt: skip
    assert (well.only.trajectory.end_reason, well.only.trajectory.input_tokens) == ("completed", 9)


def test_bedrocks_log_of_a_call() -> None:
    asked = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [USER]}
    body = {"inputBodyJson": asked, "inputTokenCount": 7}
    outcome = read(jsonl({**BEDROCK, "input": body, "output": {"outputBodyJson": MESSAGE}}))
    t = outcome.only.trajectory
    assert (outcome.format, t.provider, t.input_tokens, t.output_tokens) == ("anthropic_messages", "aws.bedrock", 7, 2)
    assert [step.content for step in outcome.only.steps] == [USER["content"], "Hi"]
    assert '"inputTokenCount":7' in (t.extra or "")


def test_converse_in_anthropics_words() -> None:
    told = [
        {"role": "user", "content": [{"text": "Where is it?"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "u-1", "name": "find", "input": {"id": 1}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "u-1", "status": "error", "content": [{"text": "x"}]}}],
        },
    ]
    said = {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "Gone"}]}
    usage = {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 3}
    response = {"output": {"message": said}, "stopReason": "max_tokens", "usage": usage, "metrics": {"latencyMs": 8}}
    outcome = read(jsonl({"request": {"system": [{"text": "Be kind"}], "messages": told}, "response": response}))
    steps, (made,) = outcome.only.steps, outcome.only.tool_calls
    assert [step.role for step in steps] == ["system", "user", "assistant", "tool", "assistant"]
    assert (made.call_id, made.args, made.result_step_ix, made.is_error) == ("u-1", '{"id":1}', 3, True)
    assert (steps[4].content, steps[4].reasoning, steps[4].input_tokens) == ("Gone", "hm", 8)
    assert outcome.only.trajectory.end_reason == "max_tokens"


def test_a_provider_that_died_in_its_answer_failed() -> None:
    choice = {"message": {"role": "assistant", "content": "par"}, "finish_reason": "error", "error": {"message": "502"}}
    t = read(jsonl({"request": {"messages": [USER]}, "response": {"choices": [choice]}})).only.trajectory
    assert (t.end_reason, t.error_message) == ("model_error", "502")


@pytest.mark.parametrize(
    ("usage", "read_tokens", "written"),
    [
        ({"prompt_cache_hit_tokens": 4}, 4, None),
        ({"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 2}}, 0, 2),
        ({"cache_read_input_tokens": 1, "prompt_tokens_details": {"cache_creation_tokens": 3}}, 1, 3),
    ],
)
def test_cached_tokens_in_the_words_of_gateways(usage: Any, read_tokens: int, written: int | None) -> None:
    response = {**COMPLETION, "usage": {"prompt_tokens": 9, "completion_tokens": 1, **usage}}
    t = read(jsonl({"request": {"messages": [USER]}, "response": response})).only.trajectory
    assert (t.input_tokens, t.cache_read_tokens, t.cache_write_tokens) == (9, read_tokens, written)


@pytest.mark.parametrize(
    ("output", "written"),
    [
        ({"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [call("c-1", '{"a": 1}', "f")]}},
         '{"a": 1}'),
        ({"role": "assistant", "content": "", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c-1"}],
          "additional_kwargs": {"tool_calls": [call("c-1", '{"a": 1}', "f")]}}, '{"a": 1}'),
        ({"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": [], "invalid_tool_calls": [
            {"name": "f", "args": '{"a": 1', "id": "c-1", "error": None}]}}, '{"a": 1'),
    ],
)  # fmt: skip
def test_langchains_calls_are_what_the_model_wrote(output: Any, written: str) -> None:
    run = {"id": "1" * 36, "trace_id": "1" * 36, "run_type": "llm", "name": "m", "start_time": "2026-01-02T03:04:05Z"}
    (made,) = read(jsonl({**run, "inputs": {"messages": [USER]}, "outputs": {"message": output}})).only.tool_calls
    assert (made.call_id, made.name, made.args_raw) == ("c-1", "f", written)


def test_blocks_of_anthropic_that_langfuse_kept_are_one_message() -> None:
    told = [{"type": "text", "text": "Look"}, {"type": "tool_use", "id": "u-1", "name": "f", "input": {"a": 1}}]
    trace = {"id": "t" * 32, "timestamp": "2026-01-02T03:04:05Z", "name": "n", "htmlPath": "/t", "scores": ["s-1"]}
    seen = {"id": "o-1", "type": "GENERATION", "startTime": "2026-01-02T03:04:05Z", "input": [USER], "output": told}
    outcome = read(jsonl({**trace, "observations": [{**seen, "traceId": trace["id"]}]}))
    fragment = outcome.only
    assert [(s.role, s.content) for s in fragment.steps] == [("user", USER["content"]), ("assistant", "Look")]
    assert [made.args for made in fragment.tool_calls] == ['{"a":1}']
    assert fragment.outcomes == () and not outcome.attachments, "the id of a score is no score"


def test_azures_first_chunk_belongs_to_the_answer_that_follows() -> None:
    def answer(n: int) -> list[dict[str, Any]]:
        shared = {"id": f"chatcmpl-{n}", "object": "chat.completion.chunk"}
        lead = {"id": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": n}]}
        delta = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        return [lead, {**shared, "choices": [delta]}]

    outcome = read(jsonl(*answer(1), *answer(2)))
    assert [f.trajectory.native_id for f in outcome.fragments] == ["chatcmpl-1", "chatcmpl-2"]
    assert ['"prompt_index":' in (f.trajectory.extra or "") for f in outcome.fragments] == [True, True]


def test_pieces_of_audio_are_joined() -> None:
    deltas = [{"id": "a-1", "transcript": "He"}, {"data": "AAA", "transcript": "llo"}, {"data": "BBB", "expires_at": 5}]
    shared = {"id": "chatcmpl-1", "object": "chat.completion.chunk"}
    chunks = [{**shared, "choices": [{"index": 0, "delta": {"audio": audio}}]} for audio in deltas]
    (step,) = read(jsonl(*chunks)).only.steps
    assert '"audio":{"id":"a-1","transcript":"Hello","data":"AAABBB","expires_at":5}' in (step.extra or "")


def test_a_thread_of_assistants_is_in_order_of_time() -> None:
    said = [("assistant", "Hi", 2), ("user", "Hello", 1)]
    data = [
        {"id": f"m-{at}", "object": "thread.message", "created_at": at, "thread_id": "t-1", "role": role,
         "content": [{"type": "text", "text": {"value": text, "annotations": []}}]}
        for role, text, at in said
    ]  # fmt: skip
    steps = read(jsonl({"object": "list", "data": data, "has_more": False})).only.steps
    assert [(step.role, step.content) for step in steps] == [("user", "Hello"), ("assistant", "Hi")]


def test_a_manifest_inside_an_archive_is_no_trace() -> None:
    score = {"id": "s-1", "trace_id": "t-1", "name": "q", "value": 1, "source": "EVAL", "data_type": "NUMERIC"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("scores/1.jsonl", jsonl(score))
        archive.writestr("manifests/1.json", '{"files": ["scores/1.jsonl"]}')
    outcome = read(packed.getvalue())
    assert (outcome.format, len(outcome.attachments), outcome.rejects) == ("langfuse", 1, [])


def test_numbers_of_a_table_without_types_are_scores() -> None:
    outcome = read(b"trace_id,score,comment\nabc,1,good\nabd,0,bad\n")
    found = [outcome for attachment in outcome.attachments for outcome in attachment.outcomes]
    assert [(o.value_num, o.polarity, o.value_text) for o in found] == [(1.0, 1, "1"), (0.0, -1, "0")]
