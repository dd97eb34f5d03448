"""Streams that Cursor, Gemini CLI and Droid print without a terminal."""

from __future__ import annotations

import json
from typing import Any

from sources import jsonl, read

SESSION = "c6b62c6f-7ead-4fd6-9922-e952131177ff"
INIT = {"type": "system", "subtype": "init", "apiKeySource": "login", "session_id": SESSION, "model": "sonnet"}


def said(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return {"type": "assistant", "message": message, "session_id": SESSION, **more}


def tool(subtype: str, call_id: str, name: str, result: Any = None) -> dict[str, Any]:
    body = {"args": {"path": call_id}} | ({} if result is None else {"result": result})
    packed = {"call_id": call_id, "tool_call": {name: body}, "session_id": SESSION}
    return {"type": "tool_call", "subtype": subtype, **packed}


def test_cursor_joins_thoughts_pieces_and_both_tellings_of_a_call() -> None:
    outcome = read(
        jsonl(
            INIT,
            {"type": "user", "message": {"role": "user", "content": "Read both."}, "session_id": SESSION},
            {"type": "thinking", "subtype": "delta", "text": "I should ", "session_id": SESSION},
            {"type": "thinking", "subtype": "delta", "text": "read.", "session_id": SESSION},
            said("I ", timestamp_ms=1770823449000),
            said("read.", timestamp_ms=1770823449001),
            said("I read.", timestamp_ms=1770823449002, model_call_id="m1"),
            tool("started", "a", "readToolCall"),
            tool("started", "b", "writeToolCall"),
            tool("completed", "b", "writeToolCall", {"rejected": {"reason": "not allowed"}}),
            tool("completed", "a", "readToolCall", {"success": {"content": "# A"}}),
            said("Done."),
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "duration_ms": 5,
                "result": "Done.",
                "session_id": SESSION,
                "usage": {"inputTokens": 3, "cacheReadTokens": 50, "cacheWriteTokens": 7, "outputTokens": 9},
            },
        )
    )
    assert outcome.format == "headless_stream" and not outcome.rejects
    steps, calls, head = outcome.only.steps, outcome.only.tool_calls, outcome.only.trajectory
    assert [(s.role, s.content) for s in steps[1:]] == [
        ("user", "Read both."),
        ("assistant", "I read."),
        ("tool", "not allowed"),
        ("tool", "# A"),
        ("assistant", "Done."),
    ]
    assert steps[2].reasoning == "I should read."
    assert [(c.name, c.result_state, c.result_text) for c in calls] == [
        ("read", "ok", "# A"),
        ("write", "rejected", "not allowed"),
    ]
    assert (head.agent_name, head.native_id, head.end_reason) == ("cursor", SESSION, "completed")
    assert (head.input_tokens, head.cache_read_tokens, head.cache_write_tokens, head.output_tokens) == (60, 50, 7, 9)


def test_a_stream_that_broke_off_keeps_what_was_being_said_and_its_id() -> None:
    lines = [INIT, tool("started", "a", "readToolCall"), said("half a sen", timestamp_ms=1770823449000)]
    short, longer = read(jsonl(*lines)).only, read(jsonl(*lines, said("half a sentence."))).only
    assert (short.steps[-1].content, short.steps[-1].content_state) == ("half a sen", "truncated")
    assert longer.key == short.key and longer.steps[-1].content == "half a sentence."
    assert short.trajectory.end_reason is None and short.tool_calls[0].result_state == "missing"


def test_gemini_joins_deltas_and_counts_thoughts_as_output() -> None:
    at = "2026-01-02T03:04:05Z"
    outcome = read(
        jsonl(
            {"type": "init", "timestamp": at, "session_id": "s-1", "model": "gemini-3-pro"},
            {"type": "message", "timestamp": at, "role": "user", "content": "List."},
            {"type": "tool_use", "timestamp": at, "tool_name": "ls", "tool_id": "ls-1", "parameters": {"path": "."}},
            {
                "type": "tool_result",
                "timestamp": at,
                "tool_id": "ls-1",
                "status": "error",
                "error": {"type": "ENOENT", "message": "no such folder"},
            },
            {"type": "message", "timestamp": at, "role": "assistant", "content": "It is ", "delta": True},
            {"type": "message", "timestamp": at, "role": "assistant", "content": "gone.", "delta": True},
            {
                "type": "result",
                "timestamp": at,
                "status": "success",
                "stats": {"total_tokens": 170, "input_tokens": 100, "output_tokens": 20, "cached": 40},
            },
        )
    )
    head, call = outcome.only.trajectory, outcome.only.tool_calls[0]
    assert outcome.only.steps[-1].content == "It is gone."
    assert (call.result_state, call.result_text, json.loads(call.args or "")) == (
        "error",
        "no such folder",
        {"path": "."},
    )
    assert "ENOENT" in (outcome.only.steps[3].extra or "")
    assert (head.input_tokens, head.cache_read_tokens, head.output_tokens) == (100, 40, 70)


def test_droid_and_a_failed_run() -> None:
    of = {"session_id": SESSION, "timestamp": 1767398400000}
    outcome = read(
        jsonl(
            {"type": "system", "subtype": "init", "tools": ["LS"], "model": "m", "reasoning_effort": "off", **of},
            {"type": "message", "role": "user", "id": "m1", "text": "List.", **of},
            {"type": "tool_call", "id": "c1", "toolName": "LS", "toolId": "LS", "parameters": {"dir": "/"}, **of},
            {"type": "tool_result", "id": "c1", "toolId": "LS", "isError": True, "value": "denied", **of},
            {"type": "error", "message": "out of credits", **of},
            {"type": "result", "subtype": "failure", "is_error": True, "result": "out of credits", **of},
        )
    )
    assert [s.role for s in outcome.only.steps] == ["event", "user", "assistant", "tool", "event"]
    assert outcome.only.tool_calls[0].is_error is True
    head = outcome.only.trajectory
    assert (head.agent_name, head.end_reason, head.error_message) == ("droid", "agent_error", "out of credits")
