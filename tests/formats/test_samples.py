"""Real files by others: every record is read or refused, and no reader raises, whatever the bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sources import USER, Outcome, answers, asks, call, jsonl, read

from flywheel.formats.read import Chunks, read_records
from flywheel.formats.reader import Match, Record, Source
from flywheel.formats.sniff import READERS
from flywheel.records import Attachment, Fragment, Reject

# file -> (format, records, trajectories, mended, codes of what was refused)
MALFORMED: dict[str, tuple[str, int, int, int, list[str]]] = {
    "all_null_then_struct.jsonl": ("unknown", 1, 0, 0, ["unknown_format"]),
    "args_dict_mixed_types.jsonl": ("openai_chat", 3, 3, 0, []),
    "args_double_encoded.jsonl": ("openai_chat", 1, 1, 0, []),
    "args_str_dict_null_empty_list.jsonl": ("openai_chat", 9, 9, 0, []),
    "assistant_null_content_no_calls.jsonl": ("openai_chat", 3, 3, 0, []),
    "case_only_keys_in_args.jsonl": ("openai_chat", 1, 1, 0, []),
    "claude_code_streaming_dups.jsonl": ("claude_code", 4, 2, 0, []),
    "concatenated_docs_no_newline.json": ("openai_chat", 2, 2, 0, []),
    "consecutive_roles_parallel_calls.jsonl": ("openai_chat", 1, 1, 0, []),
    "content_str_vs_parts.jsonl": ("openai_chat", 3, 3, 0, []),
    "deep_200.json": ("unknown", 1, 0, 0, ["unknown_format"]),
    "deep_5000.json": ("unknown", 1, 0, 0, ["too_deep"]),
    "duplicate_keys.jsonl": ("openai_chat", 1, 1, 1, []),
    "empty.jsonl": ("unknown", 1, 0, 0, ["empty"]),
    "html_error_page.json": ("unknown", 1, 0, 0, ["html"]),
    "invalid_utf8_latin1.jsonl": ("openai_chat", 2, 2, 1, []),
    "late_type_change.jsonl": ("unknown", 1, 0, 0, ["unknown_format"]),
    "lone_surrogate_raw_wtf8.jsonl": ("openai_chat", 1, 1, 1, []),
    "long_line_3mb.jsonl": ("openai_chat", 2, 2, 0, []),
    "mixed_schema_versions.jsonl": ("atif", 4, 4, 0, []),
    "nan_infinity.jsonl": ("unknown", 1, 0, 0, ["unknown_format"]),
    "nul_in_content.jsonl": ("openai_chat", 2, 2, 0, []),
    "odd_roles.jsonl": ("openai_chat", 1, 1, 0, []),
    "orphans_dups_order.jsonl": ("openai_chat", 2, 2, 0, []),
    "otlp_instrumentationLibrarySpans.json": ("otlp", 1, 1, 0, []),
    "otlp_truncated_attr_json.json": ("otlp", 1, 1, 0, []),
    "otlp_usage_on_parent_and_child.json": ("otlp", 1, 1, 0, []),
    "python_repr.jsonl": ("unknown", 1, 0, 0, ["python_repr"]),
    "retry_duplicate_rows.jsonl": ("openai_chat", 3, 2, 0, []),
    "secrets_and_pii.jsonl": ("openai_chat", 1, 1, 0, []),
    "timestamps_mixed_units.jsonl": ("unknown", 1, 0, 0, ["unknown_format"]),
    "truncated_last_line.jsonl": ("openai_chat", 2, 1, 0, ["truncated_json"]),
    "utf16le_bom.json": ("openai_chat", 1, 1, 0, []),
    "utf8_bom.jsonl": ("openai_chat", 1, 1, 0, []),
}
UNREAD = {"nemo_exmp03_atof.jsonl", "nemo_exmp04_atof.jsonl", "nemo_exmp05_atof.jsonl"}  # another format beside ATIF


def test_every_malformed_file(samples: Path) -> None:
    files = sorted(path for path in (samples / "malformed").iterdir() if path.is_file())
    assert {path.name for path in files} >= set(MALFORMED)
    for path in files:
        outcome = read(path.read_bytes())
        got = (
            outcome.format,
            outcome.n_records,
            len(outcome.fragments),
            outcome.n_repaired,
            [reject.code for reject in outcome.rejects],
        )
        assert got == MALFORMED.get(path.name, got), path.name
        check_every_byte(path.read_bytes(), outcome)


def check_every_byte(data: bytes, outcome: Outcome) -> None:
    """Whatever is no blank or bracket of an array lies in a record that was read, or in one that was refused."""
    spans = [(reject.byte_offset, reject.byte_len) for reject in outcome.rejects]
    if outcome.format != "unknown":
        spans += [(r.offset, r.length) for r in read_records(lambda: iter((data,)), "record") if isinstance(r, Record)]
    left = bytearray(data)
    for offset, length in spans:
        left[offset : offset + length] = b" " * length
    assert not bytes(left).strip(b" \r\n\t[],\xef\xbb\xbf\xff\xfe\0")


def test_every_file_of_atif(samples: Path) -> None:
    for path in sorted((samples / "atif").iterdir()):
        outcome = read(path.read_bytes())
        if path.name in UNREAD:
            assert outcome.format != "atif", path.name
            continue
        assert outcome.format == "atif", path.name
        assert outcome.rejects == [], path.name
        assert len(outcome.fragments) >= outcome.n_records >= 1, path.name
        for fragment in outcome.fragments:
            assert {made.result_state for made in fragment.tool_calls} <= {"ok", "error", "missing"}, path.name


def test_texts_of_messages_are_pythons_own(samples: Path) -> None:
    """Value by value against `json`: nothing is changed on the way."""
    path = samples / "openai_chat" / "tinker_conversations.jsonl"
    expected = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    fragments = read(path.read_bytes()).fragments
    assert len(fragments) == len(expected) == 128
    for fragment, messages in zip(fragments, expected, strict=True):
        assert [(s.role, s.content) for s in fragment.steps] == [(m["role"], m["content"]) for m in messages]


def test_litellm_logs(samples: Path) -> None:
    for path in sorted((samples / "openai_chat").glob("fn_litellm_proxy*.json")):
        logged = json.loads(path.read_text(encoding="utf-8"))
        t = read(path.read_bytes()).only.trajectory
        assert t.native_id == logged["response"]["id"]
        assert (t.input_tokens, t.output_tokens) == tuple(
            logged["response"]["usage"][key] for key in ("prompt_tokens", "completion_tokens")
        )
        assert float(t.cost_usd or 0) == logged["cost"]
        assert t.ended_at is not None
        assert t.n_steps == len(logged["messages"]) + 1
        assert json.loads(t.tools or "") == logged["tools"]


# --- No reader raises ---------------------------------------------------------------------------------------

FULL: list[Any] = [
    {
        "id": "r1",
        "request": {"messages": [USER, asks(call("c")), answers("c")], "tools": [{"function": {"name": "f"}}]},
        "response": {
            "id": "x",
            "created": 1757015036,
            "choices": [{"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 1}},
        },
        "metadata": {"task_id": "t", "user_id": "u", "tags": ["a"]},
        "feedback": [{"name": "n", "score": 1, "source": {"type": "user"}}],
        "error": {"message": "m"},
        "attempt": 1,
        "latency_sec": 1.5,
        "cost": 0.1,
    },
    {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "t",
        "agent": {"name": "a", "tool_definitions": [{}]},
        "steps": [
            {
                "step_id": 1,
                "source": "agent",
                "message": [{"type": "text", "text": "x"}],
                "tool_calls": [{"tool_call_id": "a", "function_name": "f", "arguments": {"n": 1}}],
                "observation": {"results": [{"source_call_id": "a", "content": "c", "subagent_trajectory_ref": [{}]}]},
                "metrics": {"prompt_tokens": 1, "completion_token_ids": [1], "logprobs": [0.5], "extra": {"r": 1}},
            }
        ],
        "final_metrics": {"total_steps": 1},
        "subagent_trajectories": [{"agent": {}, "steps": []}],
    },
    {
        "task_id": 0,
        "trial": 1,
        "reward": 0.0,
        "info": {"task": {"user_id": "u"}, "reward_info": {"reward": 0.0}, "error": "e"},
        "traj": [USER, asks(call("c")), answers("c")],
    },
]
FULL += [
    {
        "request": {
            "model": "claude",
            "max_tokens": 9,
            "system": [{"type": "text", "text": "s"}],
            "tools": [{"name": "f", "input_schema": {}}],
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "c"}, "x"]},
            ],
        },
        "response": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "stop_reason": "end_turn",
            "content": [
                {"type": "thinking", "thinking": "h", "signature": "g"},
                {"type": "server_tool_use", "id": "w", "name": "web_search", "input": {"query": "q"}},
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "w",
                    "content": {"type": "x_error", "error_code": "e"},
                },
                {"type": "text", "text": "a", "citations": [{"url": "u"}]},
            ],
            "usage": {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3},
        },
        "metadata": {"session_id": "s"},
    },
    {
        "request": {"input": [USER], "instructions": "i", "previous_response_id": "resp_0", "tools": [{"name": "f"}]},
        "response": {
            "id": "resp_1",
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "conversation": {"id": "conv_1"},
            "output": [
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "completed"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "o"}]},
                {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "q"}},
                {"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "o", "error": None},
                {"type": "item_reference", "id": "r"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
            ],
            "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}},
        },
    },
    {
        "responses_create_params": {"input": [USER], "metadata": {"instance_id": "i"}},
        "response": {"id": "r", "output": [{"type": "message", "role": "assistant", "content": "a"}]},
        "reward": 1.0,
        "resolved": True,
        "mask_sample": True,
        "agent_ref": {"name": "a"},
        "_ng_task_index": 0,
        "_ng_rollout_index": 1,
    },
    {"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 1}}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"},
    {"type": "response.completed", "response": {"id": "resp_1", "output": []}},
    {
        "interactions": [
            {
                "request": {"uri": "u", "body": {"string": '{"messages": []}'}},
                "response": {"status": {"code": 200}, "body": {"base64_string": "e30="}},
            }
        ]
    },
    {
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": '{"name": "f", "arguments": {"a": 1}}', "weight": 0},
            {"from": "observation", "value": "r"},
            {"from": "gpt", "value": "a", "loss": True},
        ],
        "system": "s",
        "tools": "[]",
    },
    {"instruction": "i", "input": "j", "output": "o", "history": [["q", "a"]]},
    {"input": {"messages": [USER], "tools": []}, "preferred_output": [USER], "non_preferred_output": [USER]},
    {"prompt": "p", "chosen": [USER], "rejected": "r", "score_chosen": 1.0, "score_rejected": 0.5},
    {
        "function_name": "f",
        "id": "i",
        "episode_id": "e",
        "input": {"system": "s", "messages": [{"role": "user", "content": [{"type": "text", "text": "t"}]}]},
        "output": [{"type": "tool_call", "id": "c", "name": "f", "arguments": "{}"}, {"type": "thought", "text": "t"}],
        "tags": {"a": "b"},
    },
    {
        "instance_id": "i",
        "messages": [USER, asks(call("c", {"a": None, "b": 1})), answers("c")],
        "resolved": 1,
        "tools": [{"name": "f"}],
        "exit_status": "submitted",
        "patch": "p",
    },
    {
        "instance_id": "i",
        "target": False,
        "trajectory": [{"role": "ai", "text": "t", "system_prompt": None, "mask": True, "cutoff_date": None}],
        "generated_patch": "p",
    },
    {"mas_name": "m", "trace": {"key": "k", "trajectory": "t"}, "mast_annotation": {"1.1": 1}, "annotations": [{}]},
    {
        "trace": json.dumps({"trace_id": "ab" * 16, "spans": [{"span_id": "cd" * 8, "child_spans": [{}]}]}),
        "labels": {"errors": [{"category": "c", "location": "cd" * 8}], "scores": [{"overall": 1}]},
    },
    {"type": "agent.tool_use", "id": "e", "processed_at": "2026-07-06T16:26:34Z", "name": "f", "input": {"a": 1}},
    ["client.beta.sessions.events.send", ["sesn_1", {"events": [{"type": "user.message", "content": "c"}]}]],
    {"type": "span.model_request_end", "model_request_start_id": "s", "model_usage": {"input_tokens": 1}},
    {"trace": {"id": "t"}, "observations": [{"id": "o", "type": "GENERATION", "startTime": "2026-07-06T16:26:34Z"}]},
    {
        "id": "o",
        "trace_id": "t",
        "type": "TOOL",
        "start_time": "2026-07-06 16:26:34.000",
        "input": "{}",
        "level": "ERROR",
    },
    {"id": "s", "traceId": "t", "name": "n", "value": 0, "dataType": "NUMERIC", "source": "API"},
    {"id": "r", "trace_id": "t", "run_type": "llm", "dotted_order": "d", "inputs": {"messages": [[]]}, "outputs": {}},
    {"id": "f", "run_id": "r", "key": "k", "score": 1, "feedback_source": {"type": "api"}},
    {"response_id": "r", "feedback": {"name": "thumbs", "score": 0}},
]
ODD: list[Any] = [None, True, 0, -1, 2**70, 1.5, "", "x", [], {}, [[]], {"a": 1}, [None], ["x"], "\ud83d\0"]


def swapped(value: Any, rng: random.Random) -> Any:
    """The value with one or more of its parts replaced by something odd, dropped or doubled."""
    if rng.random() < 0.06:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: swapped(item, rng) for key, item in value.items() if rng.random() > 0.04}
    if isinstance(value, list):
        return [swapped(item, rng) for item in value for _ in range(rng.choice((1, 1, 1, 1, 2)))]
    return value


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_reader_raises_on_odd_values_and_each_answers_every_record(reader: Any) -> None:
    rng = random.Random(f"values {reader.name}")
    for _ in range(1500):
        record = Record(ix=3, offset=0, length=9, value=swapped(rng.choice(FULL), rng))
        items = list(reader.read(iter([record]), Source(source_id="s", uri="u")))
        assert items, record.value
        for item in items:
            if isinstance(item, Reject):
                assert (item.record_ix, item.byte_len) == (3, 9)
            elif isinstance(item, Attachment):
                assert item.outcomes
            else:
                check_rows(item)


def check_rows(fragment: Fragment) -> None:
    """What the lake and the expectation suites demand of rows, whatever the data."""
    assert [step.step_ix for step in fragment.steps] == list(range(len(fragment.steps)))
    assert fragment.trajectory.n_steps == len(fragment.steps)
    assert {step.role for step in fragment.steps} <= {"system", "user", "assistant", "tool", "event"}
    for made in fragment.tool_calls:
        assert fragment.steps[made.step_ix].role in ("assistant", "user")
        assert (made.args is not None) == (made.args_state in ("ok", "double_encoded", "lossy_reconstructed"))
        if made.result_step_ix is not None:
            assert fragment.steps[made.result_step_ix].role == "tool"
            assert made.result_step_ix > made.step_ix or made.result_state == "orphan_repaired"
    for step in fragment.steps:
        assert step.n_tool_calls == sum(made.step_ix == step.step_ix for made in fragment.tool_calls)


def test_no_bytes_make_anything_raise() -> None:
    rng = random.Random("bytes")
    sources = [jsonl(*FULL[:1] * 3), json.dumps(FULL[2:] * 3, indent=1).encode(), json.dumps(FULL[1]).encode()]
    for _ in range(600):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            kind = rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at : at + rng.randrange(40)]
            elif kind == 2:
                data[at:at] = rng.choice([b'"', b"{", b"]", b"\n", b"\\", b"\xff", b"\0", b"1e999", b"NaN"])
            else:
                data = data[: max(1, at)]
        whole = read(bytes(data))
        assert read(bytes(data), size=64) == whole
        answered = {reject.record_ix for reject in whole.rejects} | {f.record_ix for f in whole.fragments}
        assert len(answered) <= whole.n_records
        check_every_byte(bytes(data), whole)


def test_forced_readers_refuse_what_they_can_not_read() -> None:
    chunks: Chunks = lambda: iter((jsonl({"v": 1}),))  # noqa: E731
    for reader in READERS:
        records = [item for item in read_records(chunks, Match(confidence=0).unit) if isinstance(item, Record)]
        (item,) = reader.read(iter(records), Source(source_id="s", uri="u"))
        assert isinstance(item, Reject)
