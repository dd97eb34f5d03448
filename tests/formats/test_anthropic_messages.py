"""Anthropic messages: blocks in their order, results as rows of their own, thinking verbatim, usage added up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read

from flywheel.records import Fragment

USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Bonn", "days": None}}


def result(use_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": use_id, "content": content, **more}


def answer(*blocks: Any, **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 10, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 30, "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 4},
    }  # fmt: skip
    return {
        "id": "msg_01ABCDEFGHIJKLMNOP", "type": "message", "role": "assistant", "model": "claude-x", "usage": usage,
        "content": list(blocks), "stop_reason": "end_turn", "stop_sequence": None, **more,
    }  # fmt: skip


def one(*records: Any) -> Fragment:
    outcome = read(jsonl(*records))
    assert (outcome.format, outcome.rejects) == ("anthropic_messages", [])
    return outcome.only


def test_a_call_in_full() -> None:
    request = {
        "model": "claude-x", "max_tokens": 99, "temperature": 0.5,
        "tools": [{"name": "get_weather", "input_schema": {}}],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Weather?"}],
    }  # fmt: skip
    thinking = {"type": "thinking", "thinking": "Ask the tool.", "signature": "sig=="}
    record = {"request": request, "response": answer(thinking, {"type": "text", "text": "One moment."}, USE)}
    whole = one(record)
    t = whole.trajectory
    assert (t.native_id, t.model, t.provider) == ("msg_01ABCDEFGHIJKLMNOP", "claude-x", "anthropic")
    assert (t.input_tokens, t.cache_read_tokens, t.cache_write_tokens) == (60, 20, 30)
    assert (t.output_tokens, t.reasoning_tokens, t.end_reason) == (7, 4, "completed")
    assert json.loads(t.sampling or "") == {"temperature": 0.5, "max_tokens": 99}
    assert json.loads(t.tools or "") == request["tools"]
    system, user, said = whole.steps
    assert (system.role, system.content, user.content) == ("system", "Be brief.", "Weather?")
    assert json.loads(system.parts or "") == request["system"]
    assert (said.content, said.reasoning, said.sampled) == ("One moment.", "Ask the tool.", True)
    assert json.loads(said.reasoning_opaque or "") == [thinking]
    (made,) = whole.tool_calls
    assert (made.call_id, made.kind, made.args_state, made.result_state) == ("toolu_1", "function", "ok", "missing")
    assert json.loads(made.args or "") == {"city": "Bonn", "days": None}


def test_each_result_is_a_row_of_its_own_and_what_stands_between_stays_in_its_place() -> None:
    two = {**USE, "id": "toolu_2"}
    content = [
        result("toolu_2", [{"type": "text", "text": "rain"}]),
        {"type": "text", "text": "and"},
        result("toolu_1", "no such city", is_error=True),
    ]
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [USE, two]},
        {"role": "user", "content": content},
    ]
    whole = one({"messages": messages})
    assert [(step.role, step.content) for step in whole.steps[2:]] == [
        ("tool", "rain"),
        ("user", "and"),
        ("tool", "no such city"),
    ]
    assert [(c.call_id, c.result_text, c.result_state, c.is_error) for c in whole.tool_calls] == [
        ("toolu_1", "no such city", "error", True),
        ("toolu_2", "rain", "ok", None),
    ]


def test_servers_tools_answer_within_the_message() -> None:
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [{"type": "web_search_result", "url": "u"}],
    }
    failed = {
        **found,
        "tool_use_id": "srv_2",
        "content": {"type": "web_search_tool_result_error", "error_code": "busy"},
    }
    mcp = {"type": "mcp_tool_use", "id": "mcp_1", "name": "f", "server_name": "docs", "input": {}}
    blocks = [
        {"type": "text", "text": "Let me look."}, search, found, {**search, "id": "srv_2"}, failed, mcp,
        {"type": "mcp_tool_result", "tool_use_id": "mcp_1", "is_error": False, "content": "d"},
        {"type": "text", "text": "Here.", "citations": [{"url": "u"}]},
    ]  # fmt: skip
    whole = one(answer(*blocks))
    assert [step.role for step in whole.steps] == [
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [(c.kind, c.result_state, c.error_type) for c in whole.tool_calls] == [
        ("server", "ok", None),
        ("server", "error", "busy"),
        ("mcp", "ok", None),
    ]
    assert json.loads(whole.tool_calls[2].extra or "")["server_name"] == "docs"
    assert "citations" in (whole.steps[-1].parts or "")
    t = whole.trajectory
    assert (t.n_llm_calls, t.input_tokens) == (1, 60), "rows of one message are one call, counted once"


def test_redacted_thinking_and_the_order_of_blocks_survive() -> None:
    blocks = [USE, {"type": "redacted_thinking", "data": "EncryptedBytes"}, {"type": "text", "text": "late"}]
    (step,) = one(answer(*blocks)).steps
    assert json.loads(step.reasoning_opaque or "") == [blocks[1]]
    assert step.reasoning is None
    assert json.loads(step.extra or "")["block_order"] == ["tool_use", "redacted_thinking", "text"]


def test_images_are_parts() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    message = {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]}
    step = one({"request": {"messages": [message], "max_tokens": 5}, "response": answer()}).steps[0]
    assert (step.content, json.loads(step.parts or "")) == ("What is it?", message["content"])


STREAM: list[dict[str, Any]] = [
    {"type": "message_start", "message": answer(stop_reason=None, usage={"input_tokens": 5, "output_tokens": 1})},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**USE, "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"city": '}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '"Bonn"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("shape", ["records", "text", "list"])
def test_streamed_events_make_the_message(shape: str) -> None:
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in STREAM)
    body = {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": text}
    whole = one(*STREAM) if shape == "records" else one(body if shape == "text" else {"response": STREAM})
    (step,) = whole.steps
    assert (step.reasoning, step.finish_reason, step.input_tokens, step.output_tokens) == ("Hmm.", "tool_use", 5, 9)
    assert json.loads(step.reasoning_opaque or "")[0]["signature"] == "sig=="
    (made,) = whole.tool_calls
    assert (made.args_raw, made.args) == ('{"city": "Bonn"}', '{"city":"Bonn"}'), "the text that was streamed"
    assert whole.trajectory.content_complete


def test_a_stream_that_was_cut_keeps_half_of_its_arguments() -> None:
    whole = one(*STREAM[:9])
    assert (whole.tool_calls[0].args_raw, whole.tool_calls[0].args_state) == ('{"city": ', "invalid_json")
    assert not whole.trajectory.content_complete
    assert whole.trajectory.quality_flags == ("incomplete_stream",)


@pytest.mark.parametrize(
    ("reason", "ended"),
    [("max_tokens", "max_tokens"), ("tool_use", None), ("model_context_window_exceeded", "context_overflow")],
)
def test_ends(reason: str, ended: str | None) -> None:
    t = one(answer(stop_reason=reason)).trajectory
    assert (t.end_reason, t.end_reason_raw) == (ended, reason)


def test_an_error_in_place_of_an_answer() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    record = {
        "request": {"max_tokens": 5, "system": "s", "messages": [{"role": "user", "content": "q"}]},
        "response": error,
    }
    t = one(record).trajectory
    assert (t.n_steps, t.end_reason, t.error_type, t.error_message) == (
        2,
        "model_error",
        "overloaded_error",
        "Overloaded",
    )


def test_every_recorded_message_of_the_samples(samples: Path) -> None:
    for path in sorted((samples / "anthropic_messages").glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))["body"]
        whole = read(path.read_bytes()).only
        texts = [step.content for step in whole.steps]
        assert whole.trajectory.format == "anthropic_messages"
        assert whole.trajectory.input_tokens, path.name
        if not recorded.startswith("event:"):
            message = json.loads(recorded)
            said = [block["text"] for block in message["content"] if block["type"] == "text"]
            assert texts == ["\n".join(said)], path.name
            assert whole.trajectory.native_id == message["id"]


def test_lines_of_the_batch_api() -> None:
    asked = {
        "custom_id": "r-1",
        "params": {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "q"}]},
    }
    done = {"custom_id": "r-1", "result": {"type": "succeeded", "message": answer({"type": "text", "text": "a"})}}
    error = {"type": "error", "error": {"type": "invalid_request", "message": "no"}}
    failed = {"custom_id": "r-2", "result": {"type": "errored", "error": error}}
    assert [step.content for step in one(asked).steps] == ["q"]
    outcome = read(jsonl(done, failed))
    assert (outcome.format, outcome.rejects) == ("anthropic_messages", [])
    first, second = outcome.fragments
    assert (first.trajectory.native_id, first.steps[0].content) == ("r-1", "a")
    assert (second.trajectory.error_type, second.trajectory.error_message) == ("invalid_request", "no")
