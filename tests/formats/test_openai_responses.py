"""OpenAI responses: items to rows, hosted tools, reasoning verbatim, chains that the server kept; NeMo-Gym."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import USER, jsonl, read

from flywheel.records import Fragment

REASONING = {
    "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}],
    "encrypted_content": "gAAAA==",
}  # fmt: skip
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "find",
    "arguments": '{"id": 1}',
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}


def message(text: str, item_id: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def response(*items: Any, number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": f"resp_{number:020d}", "object": "response", "created_at": 1757015036.5, "model": "m-1",
        "status": "completed", "output": list(items), "tools": [], "temperature": 1.0,
        "usage": {
            "input_tokens": 100, "input_tokens_details": {"cached_tokens": 40},
            "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120,
        }, **more,
    }  # fmt: skip


def one(*records: Any) -> Fragment:
    outcome = read(jsonl(*records))
    assert (outcome.format, outcome.rejects) == ("openai_responses", [])
    return outcome.only


def test_a_call_in_full() -> None:
    tools = [{"type": "function", "name": "find", "parameters": {}}]
    request = {"instructions": "Be brief.", "input": "Where?", "tools": tools, "temperature": 1.0, "user": "u-1"}
    whole = one({"request": request, "response": response(REASONING, message("Let me see."), CALL)})
    t = whole.trajectory
    assert (t.native_id, t.model, t.user_id, t.end_reason_raw) == (f"resp_{1:020d}", "m-1", "u-1", "completed")
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens, t.reasoning_tokens) == (100, 40, 20, 5)
    assert t.end_reason is None, "it waits for its tool"
    assert json.loads(t.tools or "") == tools
    system, user, said = whole.steps
    assert (system.role, system.content, user.content) == ("system", "Be brief.", "Where?")
    assert (said.reasoning, said.content, said.sampled, said.llm_call_id) == (
        "Look it up.",
        "Let me see.",
        True,
        t.native_id,
    )
    assert json.loads(said.reasoning_opaque or "") == [REASONING]
    (made,) = whole.tool_calls
    assert (made.call_id, made.name, made.args_raw, made.kind) == ("call_1", "find", '{"id": 1}', "function")
    assert json.loads(made.extra or "") == {"id": "fc_1", "type": "function_call", "status": "completed"}


def test_a_row_ends_where_the_order_breaks() -> None:
    items = [message("a"), CALL, {**CALL, "call_id": "call_2"}, OUTPUT, REASONING, message("b"), message("c")]
    whole = one(response(*items))
    assert [(s.role, s.content, s.n_tool_calls, s.reasoning) for s in whole.steps] == [
        ("assistant", "a", 2, None),
        ("tool", "found", 0, None),
        ("assistant", "b", 0, "Look it up."),
        ("assistant", "c", 0, None),
    ]
    assert [made.result_state for made in whole.tool_calls] == ["ok", "missing"]


def test_hosted_tools_bring_their_results() -> None:
    items = [
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"id": "fs_1", "type": "file_search_call", "queries": ["q"], "results": [{"text": "hit"}]},
        {"id": "ci_1", "type": "code_interpreter_call", "status": "failed", "code": "1/0", "outputs": None},
        {"id": "mcp_1", "type": "mcp_call", "name": "read", "arguments": "{}", "error": "no such page"},
        {"id": "mcp_2", "type": "mcp_call", "name": "read", "server_label": "docs", "arguments": "", "output": "page"},
        {"type": "custom_tool_call", "call_id": "c_1", "name": "grammar", "input": "free text"},
        {"type": "custom_tool_call_output", "call_id": "c_1", "output": "ok"},
        {"type": "local_shell_call", "call_id": "sh_1", "action": {"command": ["ls"]}, "status": "completed"},
        {"type": "local_shell_call_output", "call_id": "sh_1", "output": "a.txt"},
        message("done"),
    ]  # fmt: skip
    whole = one(response(*items))
    assert [(c.kind, c.name, c.result_state, c.result_text) for c in whole.tool_calls] == [
        ("builtin", "web_search", "ok", None),
        ("builtin", "file_search", "ok", ""),
        ("builtin", "code_interpreter", "error", None),
        ("mcp", "read", "error", '"no such page"'),
        ("mcp", "read", "ok", "page"),
        ("custom", "grammar", "ok", "ok"),
        ("shell", "local_shell", "ok", "a.txt"),
    ]
    assert whole.tool_calls[5].args_raw == "free text"
    assert json.loads(whole.tool_calls[4].extra or "")["server_label"] == "docs"
    assert json.loads(whole.tool_calls[1].result_parts or "") == [{"text": "hit"}]


def test_what_is_only_named_or_unknown_is_an_event_that_says_so() -> None:
    items = [
        {"type": "item_reference", "id": "msg_0"},
        {"type": "mcp_list_tools", "tools": []},
        {"type": "brand_new", "x": 1},
    ]
    whole = one({"input": items, "model": "m", "response": response(message("ok"))})
    assert [(s.role, s.quality_flags) for s in whole.steps[:3]] == [
        ("event", ("item_reference",)),
        ("event", None),
        ("event", ("unknown_item",)),
    ]
    assert [json.loads(s.raw or "") for s in whole.steps[:3]] == items
    assert not whole.trajectory.content_complete


@pytest.mark.parametrize(
    ("more", "ended", "raw"),
    [
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_tokens",
            "max_output_tokens",
        ),
        ({"status": "failed", "error": {"code": "server_error", "message": "x"}}, "model_error", "failed"),
        ({"status": "cancelled"}, "cancelled", "cancelled"),
    ],
)
def test_ends(more: dict[str, Any], ended: str, raw: str) -> None:
    t = one(response(message("a"), **more)).trajectory
    assert (t.end_reason, t.end_reason_raw) == (ended, raw)


def test_a_bare_list_of_items_is_one_conversation() -> None:
    document = json.dumps([USER, CALL, OUTPUT, message("There it is.")], indent=1).encode()
    outcome = read(document)
    assert (outcome.format, outcome.n_records) == ("openai_responses", 1)
    assert [step.role for step in outcome.only.steps] == ["user", "assistant", "tool", "assistant"]


EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {**response(), "status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "summary": []}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Look "},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "it up."},
    {"type": "response.output_item.added", "output_index": 1, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"id"'},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ": 1}"},
    {"type": "response.output_item.added", "output_index": 2, "item": {**message(""), "content": []}},
    {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "delta": "Hi "},
    {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "delta": "you."},
]


def test_streamed_events_make_the_response() -> None:
    done = {"type": "response.completed", "response": response(REASONING, CALL, message("Hi you."))}
    whole = one(*EVENTS, done)
    assert [(s.reasoning, s.content) for s in whole.steps] == [("Look it up.", None), (None, "Hi you.")]
    assert whole.trajectory.input_tokens == 100


def test_a_stream_that_was_cut_has_what_arrived() -> None:
    whole = one(*EVENTS)
    assert [(s.reasoning, s.content) for s in whole.steps] == [("Look it up.", None), (None, "Hi you.")]
    assert whole.tool_calls[0].args_raw == '{"id": 1}'
    assert whole.trajectory.quality_flags == ("incomplete_stream",)
    assert not whole.trajectory.content_complete


def chained() -> list[dict[str, Any]]:
    before = f"resp_{1:020d}"
    return [
        {"request": {"instructions": "s", "input": "Where?"}, "response": response(CALL)},
        {
            "request": {"instructions": "s", "input": [OUTPUT], "previous_response_id": before},
            "response": response(message("There."), number=2, previous_response_id=before),
        },
    ]


def test_a_response_that_goes_on_from_another_has_its_history_in_front() -> None:
    whole = one(*chained())
    assert [s.content for s in whole.steps] == ["s", "Where?", None, "found", "There."]
    assert [made.result_text for made in whole.tool_calls] == ["found"]
    t = whole.trajectory
    assert (t.n_llm_calls, t.input_tokens, t.continued_from) == (2, 200, None)


def test_without_the_earlier_one_it_names_what_it_continues() -> None:
    first, second = chained()
    alone = one(second)
    assert alone.trajectory.continued_from == one(first).key
    assert [s.content for s in alone.steps] == ["s", "found", "There."]


def test_a_conversation_that_the_server_keeps() -> None:
    conversation = {"conversation": {"id": "conv_0123456789abcdef"}}
    records = [
        {"request": {"input": "a"}, "response": response(message("b"), **conversation)},
        {"request": {"input": "c"}, "response": response(message("d"), number=2, **conversation)},
    ]
    whole = one(*records)
    assert [s.content for s in whole.steps] == ["a", "b", "c", "d"]
    assert whole.trajectory.conversation_id == "conv_0123456789abcdef"


# --- NeMo-Gym ------------------------------------------------------------------------------------------------


def rollout(task: int, run: int, **more: Any) -> dict[str, Any]:
    params = {"input": [USER], "metadata": {"instance_id": f"task-{task}"}}
    return {
        "responses_create_params": params, "response": {**response(CALL, OUTPUT, message("ok")), "id": "same-for-all"},
        "reward": 1.0, "agent_ref": {"name": "agent"}, "_ng_task_index": task, "_ng_rollout_index": run, **more,
    }  # fmt: skip


def test_rollouts_are_told_apart_by_their_indices() -> None:
    outcome = read(jsonl(*(rollout(task, run) for task in (0, 1) for run in (0, 1))))
    assert (outcome.format, outcome.rejects) == ("nemo_gym", [])
    assert [(f.trajectory.task_id, f.trajectory.attempt) for f in outcome.fragments] == [
        ("task-0", 0),
        ("task-0", 1),
        ("task-1", 0),
        ("task-1", 1),
    ]
    first = outcome.fragments[0]
    assert (first.trajectory.agent_name, first.trajectory.n_llm_calls) == ("agent", 2)
    assert [(made.result_state, made.result_text) for made in first.tool_calls] == [("ok", "found")]


@pytest.mark.parametrize(
    ("more", "success", "polarity"),
    [
        ({"reward": 1}, True, 1),
        ({"reward": 0.0}, False, -1),
        ({"reward": -0.5}, False, -1),
        ({"reward": 0.4}, None, 0),
        ({"reward": None}, None, None),
        ({"reward": 0.4, "resolved": True}, True, 0),
    ],
)
def test_success_is_what_the_verifier_says(more: dict[str, Any], success: bool | None, polarity: int | None) -> None:
    whole = read(jsonl(rollout(0, 0, **more))).only
    assert (whole.trajectory.success, whole.outcomes[0].polarity) == (success, polarity)
    assert whole.trajectory.reward == more["reward"]


def test_masked_rows_are_not_to_be_learnt_from_and_a_timeout_ends_them() -> None:
    whole = read(jsonl(rollout(0, 0, mask_sample=True, agent_timed_out=True, model_patch="diff"))).only
    assert [step.trainable for step in whole.steps] == [None, False, None, False]
    assert whole.trajectory.end_reason == "timeout"
    assert json.loads(whole.trajectory.extra or "")["model_patch"] == "diff"


def test_token_ids_and_logprobs_are_columns() -> None:
    said = {
        **message("ok"),
        "generation_token_ids": [1, 2],
        "generation_log_probs": [-0.5, -0.25],
        "prompt_token_ids": [9],
    }
    row = rollout(0, 0)
    row["response"]["output"] = [said]
    step = read(jsonl(row)).only.steps[-1]
    assert (step.token_ids, step.logprobs) == ((1, 2), (-0.5, -0.25))
    assert json.loads(step.extra or "")["prompt_token_ids"] == [9]


def test_every_rollout_of_the_samples(samples: Path) -> None:
    for path in sorted((samples / "openai_responses").iterdir()):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        outcome = read(path.read_bytes())
        assert (outcome.format, len(outcome.fragments)) == ("nemo_gym", len(rows)), path.name
        for fragment, row in zip(outcome.fragments, rows, strict=True):
            items = row["response"]["output"]
            assert fragment.trajectory.reward == row["reward"]
            calls = [item["call_id"] for item in items if item["type"] == "function_call"]
            assert [made.call_id for made in fragment.tool_calls][-len(calls) or len(fragment.tool_calls) :] == calls
            assert sum(step.role == "tool" for step in fragment.steps) == sum(
                item.get("type") == "function_call_output"
                for item in [*row["responses_create_params"]["input"], *items]
            )
