"""Claude Code: one message on many lines, trees, resumes, subagents, and everything a session says about failure."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sources import SOURCE, chunked, jsonl, read, read_chunks

SESSION = "11111111-2222-4333-8444-555555555555"


def line(uuid: str, parent: str | None, kind: str = "user", content: Any = "hello", **rest: Any) -> dict[str, Any]:
    message = rest.pop("message", {"role": kind, "content": content})
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "isSidechain": False, "cwd": "/repo",
        "version": "2.1.0", "timestamp": "2026-10-01T12:00:00.000Z", "message": message, **rest,
    }  # fmt: skip


def says(uuid: str, parent: str | None, message_id: str, block: Any, output: int = 5, **rest: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 7,
        "output_tokens": output,
    }
    blocks = block if isinstance(block, list) else [block]
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": blocks, "usage": usage}
    return line(uuid, parent, "assistant", message={**message, "stop_reason": rest.pop("stop", None)}, **rest)


def uses(call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": given or {"command": "ls"}}


def result(uuid: str, parent: str, call_id: str, content: Any = "ok", **rest: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    block |= {"is_error": rest.pop("is_error")} if "is_error" in rest else {}
    return line(uuid, parent, content=[block], **rest)


def test_lines_of_one_message_are_one_answer_with_the_last_usage() -> None:
    only = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", {"type": "thinking", "thinking": "hm", "signature": "s"}, output=1),
            says("c", "b", "m1", {"type": "text", "text": "on it"}, output=2),
            says("d", "c", "m1", uses("t1"), output=40),
            result("e", "d", "t1"),
            says("f", "e", "m2", {"type": "text", "text": "done"}, stop="end_turn"),
        )
    ).only
    assert [step.role for step in only.steps] == ["user", "assistant", "tool", "assistant"]
    answer = only.steps[1]
    assert (answer.reasoning, answer.content, answer.n_tool_calls) == ("hm", "on it", 1)
    assert (answer.input_tokens, answer.cache_read_tokens, answer.cache_write_tokens) == (20, 10, 7)
    assert answer.output_tokens == 40
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 2]
    t = only.trajectory
    assert (t.n_llm_calls, t.input_tokens, t.output_tokens, t.cost_usd) == (2, 40, 45, None)
    assert (t.end_reason, t.agent_version, json.loads(t.metadata or "")) == ("completed", "2.1.0", {"cwd": "/repo"})


def test_results_of_parallel_calls_stand_in_one_row_whatever_lines_they_name() -> None:
    only = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", uses("t1")),
            says("c", "b", "m1", uses("t2")),
            result("d", "b", "t1"),
            result("e", "c", "t2"),
            says("f", "d", "m2", {"type": "text", "text": "both"}),
        )
    ).only
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 2, 3]
    assert [(call.call_id, call.result_step_ix) for call in only.tool_calls] == [("t1", 2), ("t2", 3)]


def test_an_edit_is_a_branch_and_a_compaction_a_new_root() -> None:
    boundary = {**line("x", None, "system", subtype="compact_boundary", content="Compacted"), "logicalParentUuid": "c"}
    only = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", {"type": "text", "text": "one"}),
            line("c", "b", content="first"),
            line("d", "b", content="edited"),
            boundary,
            line("e", "x", content="what happened so far", isCompactSummary=True),
        )
    ).only
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 1, None, 4]
    assert [step.role for step in only.steps[4:]] == ["event", "user"]
    assert only.steps[5].is_synthetic is True


def test_a_resume_counts_nothing_twice() -> None:
    old = [line("a", None), says("b", "a", "m1", {"type": "text", "text": "one"})]
    other = "99999999-2222-4333-8444-555555555555"
    new = [{**entry, "sessionId": other} for entry in old] + [
        {**says("c", "b", "m2", {"type": "text", "text": "two"}), "sessionId": other}
    ]
    first, second = read(jsonl(*old, *old, *new)).fragments
    assert (len(first.steps), len(second.steps)) == (2, 3)
    assert [step.is_copied_context for step in second.steps] == [True, True, None]
    assert second.trajectory.continued_from == first.key
    assert (first.trajectory.output_tokens, second.trajectory.output_tokens) == (5, 5)


def test_subagents_are_trajectories_that_know_their_parents() -> None:
    side: dict[str, Any] = {"isSidechain": True, "agentId": "a1"}
    outcome = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", {**uses("t1", prompt="look"), "name": "Task"}),
            line("c", None, content="look", **side),
            says("d", "c", "m2", {"type": "text", "text": "seen"}, **side),
            result("e", "b", "t1", toolUseResult={"agentId": "a1", "totalTokens": 9}),
        )
    )
    main, child = outcome.fragments
    assert child.trajectory.parent_trajectory_id == main.key
    assert main.tool_calls[0].subagent_trajectory_id == child.key
    alone = read(jsonl(line("c", None, content="look", **side))).only
    assert alone.key == child.key  # the same subagent from a file of its own
    unnamed = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", {**uses("t1", prompt="look"), "name": "Task"}),
            line("c", None, content="look", isSidechain=True),
            says("d", "c", "m2", {"type": "text", "text": "seen"}, isSidechain=True),
        )
    )
    main, child = unnamed.fragments
    assert (len(main.steps), len(child.steps)) == (2, 2)
    assert main.tool_calls[0].subagent_trajectory_id == child.key


def test_what_a_session_says_about_failure() -> None:
    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    only = read(
        jsonl(
            line("a", None),
            says("b", "a", "m1", [uses("t1"), uses("t2"), uses("t3"), uses("t4")]),
            result("c", "b", "t1", refusal, is_error=True, toolUseResult="User rejected tool use"),
            result("d", "b", "t2", "Exit code 127\nno such command", is_error=True),
            result("e", "b", "t3", "Command timed out after 2m", is_error=True),
            result("f", "b", "t4", "half", toolUseResult={"stdout": "half", "interrupted": True}),
            line("g", "f", content=[{"type": "text", "text": "[Request interrupted by user]"}]),
        )
    ).only
    told = [(call.result_state, call.is_error, call.error_type) for call in only.tool_calls]
    assert told == [
        ("rejected", True, "user_rejected"),
        ("error", True, "exit_code_127"),
        ("error", True, "timeout"),
        ("ok", None, "interrupted"),
    ]
    assert only.trajectory.end_reason == "user_abort"
    assert only.trajectory.n_tool_errors == 3


def test_an_error_of_the_api_is_no_answer_and_ends_the_session() -> None:
    message = {
        "id": "u",
        "role": "assistant",
        "model": "<synthetic>",
        "content": [{"type": "text", "text": "Prompt is too long"}],
    }
    error = line("b", "a", "assistant", message=message, isApiErrorMessage=True, error="invalid_request")
    t = (only := read(jsonl(line("a", None), error)).only).trajectory
    assert (t.end_reason, t.error_type, t.error_message) == (
        "context_overflow",
        "invalid_request",
        "Prompt is too long",
    )
    assert (only.steps[1].sampled, only.steps[1].is_synthetic, t.n_llm_calls, t.model) == (False, True, 0, None)
    went_on = read(jsonl(line("a", None), error, says("c", "b", "m", {"type": "text", "text": "x"}, stop="end_turn")))
    assert (went_on.only.trajectory.end_reason, went_on.only.trajectory.error_type) == ("completed", None)


def test_the_stream_of_a_headless_run() -> None:
    def of(kind: str, **rest: Any) -> dict[str, Any]:
        return {"type": kind, "session_id": SESSION, "uuid": f"u{rest.pop('n')}", "parent_tool_use_id": None, **rest}

    answer = {
        "id": "m1",
        "role": "assistant",
        "model": "claude-x",
        "content": [uses("t1")],
        "usage": {"input_tokens": 1},
    }
    ended = {
        "type": "result",
        "subtype": "error_max_turns",
        "session_id": SESSION,
        "total_cost_usd": 0.25,
        "num_turns": 3,
    }
    outcome = read(
        jsonl(
            of("system", n=0, subtype="init", model="claude-x", claude_code_version="2.0", tools=["Bash"]),
            of("user", n=1, message={"role": "user", "content": "go"}),
            of("assistant", n=2, message=answer),
            {**of("user", n=3, message={"role": "user", "content": "sub"}), "parent_tool_use_id": "t1"},
            ended,
        )
    )
    main, child = outcome.fragments
    t = main.trajectory
    assert (t.end_reason, float(t.cost_usd or 0), t.agent_version) == ("max_turns", 0.25, "2.0")
    assert main.tool_calls[0].subagent_trajectory_id == child.key


def test_the_samples(samples: Path) -> None:
    for path in sorted((samples / "claude_code").rglob("*.jsonl")):
        outcome = read(path.read_bytes())
        assert outcome.format == "claude_code" and len(outcome.fragments) == 1, path.name
        named = read_chunks(chunked(path.read_bytes()), source=replace(SOURCE, uri="elsewhere.jsonl"))
        assert [f.key for f in named.fragments] == [f.key for f in outcome.fragments]
    subagents = samples / "claude_code" / "agentpile_subagents"
    main = read((samples / "claude_code" / "agentpile_subagents.jsonl").read_bytes()).only
    child = read((subagents / "subagents" / "agent-afx0000000000001.jsonl").read_bytes()).only
    assert child.trajectory.parent_trajectory_id == main.key
    assert main.tool_calls[0].subagent_trajectory_id == child.key
    first, second = read((samples / "malformed" / "claude_code_streaming_dups.jsonl").read_bytes()).fragments
    assert (first.trajectory.input_tokens, first.trajectory.output_tokens) == (2 + 15030 + 8655, 187)
    assert second.trajectory.input_tokens is None and second.trajectory.continued_from == first.key


def test_claude_code_costs_of_the_first_versions() -> None:
    message = {"id": "msg_a", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "yo"}]}
    line = {
        "type": "assistant",
        "uuid": "1",
        "parentUuid": None,
        "sessionId": "s-old-0001-aaaa-bbbb",
        "costUSD": 0.0123,
    }
    only = read(jsonl({**line, "message": message})).only
    assert only.trajectory.cost_usd == Decimal("0.0123") == only.steps[0].cost_usd
