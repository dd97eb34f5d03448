"""Gemini CLI: documents and lines of one recording, rewinds, refusals, tokens."""

from __future__ import annotations

import json
from typing import Any

from sources import jsonl, read

GEMINI = {"sessionId": "0f6aa0f0-0000-4000-8000-000000000001", "projectHash": "p", "startTime": "2026-01-03T00:00:00Z"}


def gemini(name: str, kind: str = "gemini", content: Any = "x", **rest: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "timestamp": "2026-01-03T00:00:01Z", "content": content, **rest}


def test_gemini_lines_say_the_same_as_a_document() -> None:
    tokens = {"input": 100, "output": 5, "cached": 40, "thoughts": 7, "tool": 3, "total": 115}
    messages = [gemini("a", "user"), gemini("b", tokens=tokens, model="gemini-x")]
    document = read(json.dumps({**GEMINI, "messages": messages}).encode()).only
    lines = read(
        jsonl(GEMINI, messages[0], gemini("b", content="unfinished"), messages[1], {"$set": {"summary": "s"}})
    ).only
    assert document.key == lines.key and document.steps == lines.steps
    step = lines.steps[1]
    assert (step.input_tokens, step.cache_read_tokens, step.output_tokens, step.reasoning_tokens) == (103, 40, 12, 7)
    assert json.loads(lines.trajectory.metadata or "")["summary"] == "s"


def test_gemini_rewinds_refusals_and_errors() -> None:
    cancelled = {"id": "c1", "name": "shell", "args": {}, "status": "cancelled", "result": [{"text": "cancelled"}]}
    rewound = [GEMINI, gemini("a", "user"), gemini("b"), gemini("c", "user"), {"$rewindTo": "c"}, gemini("d", "user")]
    only = read(jsonl(*rewound)).only
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 1]
    refused = read(jsonl(GEMINI, gemini("b", toolCalls=[cancelled]))).only
    assert (refused.tool_calls[0].result_state, refused.trajectory.end_reason) == ("rejected", "user_abort")
    failed = read(jsonl(GEMINI, gemini("a", "user"), gemini("e", "error", "quota exceeded"))).only.trajectory
    assert (failed.end_reason, failed.error_message) == ("model_error", "quota exceeded")


def test_gemini_exit_codes() -> None:
    said = "Command: make\nDirectory: (root)\nOutput: Exit Code: 9\u2026\nError: (none)\nExit Code: 2\nSignal: (none)"
    ran: dict[str, Any] = {"id": "c1", "name": "run_shell_command", "args": {}, "status": "success"}
    ran["result"] = [{"functionResponse": {"id": "c1", "response": {"output": said}}}]
    call = read(jsonl(GEMINI, gemini("b", toolCalls=[ran]))).only.tool_calls[0]
    assert (call.is_error, call.error_type, call.result_text) == (False, "exit_code_2", said)


def test_gemini_checkpoints_are_histories_of_the_api() -> None:
    history = [
        {"role": "user", "parts": [{"text": "List."}]},
        {
            "role": "model",
            "parts": [
                {"text": "Two folders.", "thought": True},
                {"functionCall": {"name": "ls", "args": {"path": "a"}}, "thoughtSignature": "s"},
                {"functionCall": {"name": "ls", "args": {"path": "b"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "ls", "response": {"output": "x.py"}}},
                {"functionResponse": {"name": "ls", "response": {"error": "no such folder"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "One has x.py."}]},
    ]
    bare, wrapped = (read(json.dumps(value).encode()) for value in (history, {"history": history, "authType": "key"}))
    for outcome in (bare, wrapped):
        assert outcome.format == "gemini_cli" and not outcome.rejects
        assert [step.role for step in outcome.only.steps] == ["user", "assistant", "tool", "tool", "assistant"]
        assert [(call.result_text, call.is_error) for call in outcome.only.tool_calls] == [
            ("x.py", False),
            ("no such folder", True),
        ]
        assert outcome.only.steps[1].reasoning == "Two folders."
    assert "key" in (wrapped.only.trajectory.metadata or "")
    longer = read(json.dumps([*history, {"role": "user", "parts": [{"text": "Thanks."}]}]).encode())
    assert longer.only.key == bare.only.key
