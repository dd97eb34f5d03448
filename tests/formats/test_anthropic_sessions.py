"""Events of managed agents' sessions: what was sent and came back is one message, usage belongs to its request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sources import jsonl, read

SESSION = {
    "type": "session", "id": "sesn_0123456789abcdef", "title": "t", "metadata": {"k": "v"},
    "agent": {"name": "coder", "version": 3, "model": {"id": "claude-x"}, "system": "Be brief.", "tools": [{}]},
}  # fmt: skip


def event(kind: str, number: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": f"sevt_{number}", "processed_at": f"2026-07-06T16:26:{number:02d}Z", **more}


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


EVENTS = [
    event("user.message", 1, content=text("Date?")),
    event("span.model_request_start", 2),
    event("agent.thinking", 3, content=text("Use bash.")),
    event("agent.tool_use", 4, name="bash", input={"command": "date"}, evaluated_permission="allow"),
    event("agent.custom_tool_use", 5, name="ask", input={}),
    event(
        "span.model_request_end", 6, model_request_start_id="sevt_2",
        model_usage={"input_tokens": 2, "cache_read_input_tokens": 10, "output_tokens": 4},
    ),
    event("agent.tool_result", 7, tool_use_id="sevt_4", is_error=True, content=text("no date")),
    event("user.custom_tool_result", 8, custom_tool_use_id="sevt_5", content=text("yes")),
    event("agent.message", 9, content=text("Monday.")),
    event("user.interrupt", 10),
    event("session.status_idle", 11, stop_reason={"type": "end_turn"}),
]  # fmt: skip


@pytest.mark.parametrize("shape", ["records", "page", "recorded"])
def test_a_session_in_full(shape: str) -> None:
    sent = {"type": "user.message", "content": text("Date?")}
    shapes: dict[str, list[Any]] = {
        "records": [SESSION, *EVENTS],
        "page": [SESSION, {"data": EVENTS[:5], "has_more": True}, {"data": EVENTS[4:]}],
        "recorded": [
            ["client.beta.sessions.create", SESSION],
            ["client.beta.sessions.events.send", [SESSION["id"], {"events": [sent]}]],
            *(["client.beta.sessions.events.stream", item] for item in EVENTS),
        ],
    }
    outcome = read(jsonl(*shapes[shape]))
    assert (outcome.format, outcome.rejects) == ("anthropic_sessions", [])
    whole = outcome.only
    assert [(s.role, s.content, s.reasoning) for s in whole.steps] == [
        ("system", "Be brief.", None),
        ("user", "Date?", None),
        ("assistant", None, "Use bash."),
        ("assistant", None, None),
        ("assistant", None, None),
        ("tool", "no date", None),
        ("tool", "yes", None),
        ("assistant", "Monday.", None),
        ("event", None, None),
    ]
    assert [(c.kind, c.name, c.result_text, c.result_state) for c in whole.tool_calls] == [
        ("builtin", "bash", "no date", "error"),
        ("custom", "ask", "yes", "ok"),
    ]
    t = whole.trajectory
    assert (t.native_id, t.agent_name, t.model, t.end_reason) == (SESSION["id"], "coder", "claude-x", "completed")
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens) == (12, 10, 4)
    assert t.n_llm_calls == 2, "three rows of one request, and one message without"
    assert t.started_at is not None
    assert json.loads(t.metadata or "") == {"k": "v"}


def test_sessions_that_follow_one_another() -> None:
    other = {**SESSION, "id": "sesn_another_0123456"}
    outcome = read(jsonl(SESSION, EVENTS[0], other, EVENTS[0], event("agent.message", 12, content=text("x"))))
    assert [(f.trajectory.native_id, len(f.steps)) for f in outcome.fragments] == [(SESSION["id"], 2), (other["id"], 3)]
