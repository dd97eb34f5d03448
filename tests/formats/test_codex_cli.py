"""Codex: items are the conversation; events add tokens, exit codes, interrupts, errors; compaction and rollback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sources import jsonl, read

ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"


def at(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-30T05:00:{second:02}.000Z", "type": kind, "payload": payload}


META = at(
    0, "session_meta", id=ID, cwd="/w", cli_version="0.140.0", model_provider="openai", base_instructions={"text": "be"}
)
CONTEXT = at(0, "turn_context", model="gpt-x", approval_policy="never")


def user(text: str, second: int = 1) -> dict[str, Any]:
    return at(second, "response_item", type="message", role="user", content=[{"type": "input_text", "text": text}])


def says(text: str, second: int = 5) -> dict[str, Any]:
    return at(
        second, "response_item", type="message", role="assistant", content=[{"type": "output_text", "text": text}]
    )


def calls(call_id: str, arguments: str = "{}", second: int = 2) -> dict[str, Any]:
    item = {"type": "function_call", "name": "shell", "call_id": call_id, "arguments": arguments}
    return at(second, "response_item", **item)


def gives(call_id: str, output: Any, second: int = 3) -> dict[str, Any]:
    return at(second, "response_item", type="function_call_output", call_id=call_id, output=output)


def tokens(total: int, last: int, second: int = 4) -> dict[str, Any]:
    def usage(n: int) -> dict[str, int]:
        return {"input_tokens": n, "cached_input_tokens": n // 2, "output_tokens": 7, "reasoning_output_tokens": 3}

    info = {"total_token_usage": usage(total), "last_token_usage": usage(last), "model_context_window": 100}
    return at(second, "event_msg", type="token_count", info=info)


def test_a_rollout() -> None:
    reasoning = at(
        1, "response_item", type="reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="x"
    )
    only = read(
        jsonl(
            META,
            CONTEXT,
            user("<environment_context>…"),
            user("go"),
            at(1, "event_msg", type="user_message", message="go"),
            at(1, "event_msg", type="agent_reasoning", text="hm"),
            reasoning,
            calls("c1"),
            tokens(10, 10),
            tokens(10, 10),
            gives("c1", "Chunk\nProcess exited with code 2\nOutput:\nboom"),
            at(3, "event_msg", type="exec_command_end", call_id="c1", exit_code=2, duration="1s"),
            says("done"),
            tokens(30, 20),
            at(6, "event_msg", type="task_complete", last_agent_message="done"),
        )
    ).only
    assert [step.role for step in only.steps] == ["system", "user", "user", "assistant", "tool", "assistant"]
    assert only.steps[1].is_synthetic is True and only.steps[2].is_synthetic is None
    answer, call, t = only.steps[3], only.tool_calls[0], only.trajectory
    assert (answer.reasoning, answer.model, answer.input_tokens, answer.cache_read_tokens) == ("hm", "gpt-x", 10, 5)
    assert (call.is_error, call.error_type, call.result_state) == (True, "exit_code_2", "error")
    assert (t.native_id, t.agent_version, t.provider, t.end_reason) == (ID, "0.140.0", "openai", "completed")
    assert (t.input_tokens, t.output_tokens, t.reasoning_tokens, t.n_llm_calls) == (30, 14, 6, 2)
    assert json.loads(t.extra or "")["event_msgs"][0]["payload"] == {"type": "user_message"}  # its text is in the rows


def test_refusals_interrupts_and_errors() -> None:
    only = read(
        jsonl(
            META,
            user("go"),
            calls("c1"),
            gives("c1", "exec command rejected by user"),
            calls("c2"),
            gives("c2", "aborted by user after 3.1s"),
            calls("c3"),
            gives("c3", json.dumps({"output": "", "metadata": {"exit_code": 1}})),
            at(7, "event_msg", type="turn_aborted", reason="interrupted"),
        )
    ).only
    told = [(call.result_state, call.is_error, call.error_type) for call in only.tool_calls]
    assert told == [
        ("rejected", True, "user_rejected"),
        ("error", True, "interrupted"),
        ("error", True, "exit_code_1"),
    ]
    assert only.trajectory.end_reason == "user_abort"
    failed = at(7, "event_msg", type="error", message="too much", codex_error_info="context_window_exceeded")
    t = read(jsonl(META, user("go"), failed)).only.trajectory
    assert (t.end_reason, t.error_type, t.error_message) == ("context_overflow", "context_window_exceeded", "too much")
    assert read(jsonl(META, user("go"), failed, user("again"), says("ok"))).only.trajectory.error_message is None


def test_a_compaction_is_a_new_root_and_a_rollback_a_branch() -> None:
    kept = [user("go")["payload"]]
    only = read(
        jsonl(
            META,
            user("go"),
            says("one"),
            at(6, "compacted", message="sum", replacement_history=kept),
            user("more"),
            says("two"),
        )
    ).only
    assert [(step.role, step.parent_ix) for step in only.steps[3:]] == [
        ("event", None), ("user", 3), ("user", 4), ("assistant", 5),
    ]  # fmt: skip
    assert [step.is_copied_context for step in only.steps[3:]] == [None, True, None, None]
    back = at(7, "event_msg", type="thread_rolled_back", num_turns=1)
    rolled = read(jsonl(META, user("go"), says("one"), user("no"), says("two"), back, user("yes"))).only
    assert (rolled.steps[-1].content, rolled.steps[-1].parent_ix) == ("yes", 2)


def test_forks_and_subagents_name_where_they_come_from() -> None:
    child = "0199ffff-bbbb-7ccc-8ddd-eeeeeeeeeeee"
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": ID, "depth": 1}}}
    parent = read(jsonl(META, user("go"))).only
    sub = read(jsonl(at(0, "session_meta", id=child, source=spawn), user("look"))).only
    assert sub.trajectory.parent_trajectory_id == parent.key
    fork = read(jsonl(at(0, "session_meta", id=child, forked_from_id=ID, cwd="/"), META, user("go"))).only
    assert fork.trajectory.native_id == child and fork.trajectory.continued_from == parent.key


def test_older_layouts() -> None:
    head = {"id": ID, "timestamp": "2025-06-01T00:00:00Z", "instructions": None}
    bare = [head, user("go")["payload"], {"record_type": "state"}, says("done")["payload"]]
    lines = read(jsonl(*bare))
    assert (lines.format, lines.version) == ("codex_cli", "bare")
    assert [step.role for step in lines.only.steps] == ["user", "event", "assistant"]
    document = {"session": head, "items": [user("go")["payload"], says("done")["payload"]]}
    whole = read(json.dumps(document, indent=1).encode())
    assert [step.content for step in whole.only.steps] == ["go", "done"]
    assert whole.only.key == lines.only.key


def test_the_samples(samples: Path) -> None:
    tools = read((samples / "other_agents" / "codex_tool-calls_input.jsonl").read_bytes()).only
    assert [(call.name, call.kind, call.result_state) for call in tools.tool_calls] == [
        ("update_plan", "function", "ok"), ("apply_patch", "custom", "ok"), ("tool_search", "custom", "ok"),
    ]  # fmt: skip
    noisy = read((samples / "other_agents" / "codex_cleanup_input.jsonl").read_bytes())
    assert [reject.code for reject in noisy.rejects] == ["invalid_json"]
    assert noisy.only.trajectory.quality_flags == ("duplicate_result", "orphan_result")


def test_a_head_of_two_keys() -> None:
    lines = read(jsonl({"id": ID, "timestamp": "2026-01-04T05:06:07Z"}, user("go")["payload"]))
    assert (lines.format, lines.only.trajectory.native_id, lines.only.steps[0].content) == ("codex_cli", ID, "go")


def test_codex_state_lines_between_bare_items_are_its_own() -> None:
    head = {"id": "5973b6c0-94b8-487b-a530-2aeb6098ae0e", "timestamp": "2025-05-07T17:24:21.123Z", "instructions": None}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    outcome = read(jsonl(head, {"record_type": "state"}, item))
    assert outcome.format == "codex_cli" and not outcome.rejects
    assert outcome.only.trajectory.native_id == head["id"]
