"""Pi, OMP and OpenClaw: one tree of entries, told apart by what only one of them writes."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from sources import jsonl, read

HEAD = {
    "type": "session",
    "version": 3,
    "id": "019f92c8-db33-7557-8bd7-9b49814c671b",
    "timestamp": "2026-07-24T07:00:00Z",
    "cwd": "/w",
}


def entry(name: str, parent: str | None, **message: Any) -> dict[str, Any]:
    return {"type": "message", "id": name, "parentId": parent, "timestamp": "2026-07-24T07:00:01Z", "message": message}


def answer(name: str, parent: str, *blocks: Any, **rest: Any) -> dict[str, Any]:
    usage = {"input": 5, "output": 3, "cacheRead": 20, "cacheWrite": 7, "cost": {"total": 0.5}}
    return entry(name, parent, role="assistant", content=list(blocks), model="m", usage=usage, **rest)


CALL = {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "ls"}}


def test_a_session_with_a_branch_and_a_compaction() -> None:
    only = read(
        jsonl(
            HEAD,
            entry("a", None, role="user", content="hi"),
            answer("b", "a", {"type": "thinking", "thinking": "hm"}, CALL, stopReason="toolUse", responseId="r1"),
            entry(
                "c",
                "b",
                role="toolResult",
                toolCallId="t1",
                toolName="bash",
                content=[{"type": "text", "text": "no"}],
                isError=True,
            ),
            entry("d", "a", role="user", content="another way"),
            {
                "type": "compaction",
                "id": "e",
                "parentId": "d",
                "timestamp": "2026-07-24T07:00:02Z",
                "summary": "so far",
            },
            answer("f", "e", {"type": "text", "text": "done"}, stopReason="stop"),
        )
    ).only
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 0, None, 4]
    said = only.steps[1]
    assert (said.reasoning, said.content_state, said.llm_call_id, said.cost_usd) == ("hm", "null", "r1", Decimal("0.5"))
    assert (said.input_tokens, said.cache_read_tokens, said.cache_write_tokens, said.output_tokens) == (32, 20, 7, 3)
    assert (only.tool_calls[0].result_state, only.tool_calls[0].result_text) == ("error", "no")
    assert (only.steps[4].role, only.steps[4].is_synthetic) == ("user", True)
    assert only.trajectory.end_reason == "completed"


def test_how_it_ends() -> None:
    for reason, error, expected in (
        ("aborted", None, ("user_abort", None)),
        ("length", None, ("max_tokens", None)),
        ("error", "529 overloaded", ("model_error", "529 overloaded")),
        ("error", "prompt is too long: 210000 tokens", ("context_overflow", "prompt is too long: 210000 tokens")),
        ("toolUse", None, (None, None)),
    ):
        more = {} if error is None else {"errorMessage": error}
        t = read(jsonl(HEAD, answer("a", "x", stopReason=reason, **more))).only.trajectory
        assert (t.end_reason, t.error_message, t.end_reason_raw) == (*expected, reason)


def test_commands_of_the_user_are_calls_of_the_user() -> None:
    ran = {
        "role": "bashExecution",
        "command": "make",
        "output": "boom",
        "exitCode": 2,
        "cancelled": False,
        "truncated": True,
    }
    only = read(jsonl(HEAD, entry("a", None, **ran))).only
    assert [(step.role, step.content_state) for step in only.steps] == [("user", "missing"), ("tool", "truncated")]
    call = only.tool_calls[0]
    assert (json.loads(call.args or ""), call.is_error, call.error_type) == ({"command": "make"}, True, "exit_code_2")
    assert only.trajectory.content_complete is False


def test_version_1_is_a_list() -> None:
    first = {"type": "session", "id": HEAD["id"], "timestamp": "2026-07-24T07:00:00Z", "cwd": "/w"}
    plain = [entry("x", None, role="user", content="a"), entry("x", None, role="user", content="b")]
    only = read(jsonl(first, *({k: v for k, v in e.items() if k not in ("id", "parentId")} for e in plain))).only
    assert [step.parent_ix for step in only.steps] == [None, 0]


def test_the_samples(samples: Path) -> None:
    formats = {"pi": ("pi_agent", 9), "omp": ("omp", 10), "openclaw": ("openclaw", 4)}
    for agent, (name, n_steps) in formats.items():
        for path in sorted((samples / "other_agents").glob(f"{agent}_*")):
            outcome = read(path.read_bytes())
            assert outcome.format == name
            assert [reject.code for reject in outcome.rejects] == (["truncated_json"] if "cleanup" in path.name else [])
            if "tool-calls" not in path.name or agent == "openclaw":
                assert outcome.only.trajectory.n_steps == n_steps


def test_the_stream_of_json_mode_gives_the_messages_that_ended() -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    said = answer("b", "a", CALL, stopReason="toolUse")["message"]
    shown = {"role": "toolResult", "toolCallId": "t1", "toolName": "bash", "content": [{"type": "text", "text": "x"}]}
    lines: list[dict[str, Any]] = [HEAD, {"type": "agent_start"}]
    for message in (asked, said, shown):
        lines += [{"type": "message_start", "message": {**message, "content": []}}]
        lines += [{"type": "message_end", "message": message}]
    lines += [{"type": "tool_execution_end", "toolCallId": "t1", "toolName": "bash", "isError": False}]
    begun = {"type": "message_update", "message": {"role": "assistant", "content": [{"type": "text", "text": "half"}]}}
    whole, cut = read(jsonl(*lines, {"type": "agent_end", "messages": []})).only, read(jsonl(*lines, begun)).only
    assert [step.role for step in whole.steps] == ["user", "assistant", "tool"]
    assert whole.tool_calls[0].result_text == "x" and whole.trajectory.input_tokens == 32
    assert cut.key == whole.key and cut.trajectory.content_complete is False
    assert "half" in (cut.steps[-1].raw or "") and whole.trajectory.content_complete
