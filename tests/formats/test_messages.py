"""Calls and results: arguments in every shape, pairing by id and then by order, nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sources import USER, answers, asks, call, jsonl, read

from flywheel.records import ToolCall


def calls_of(*messages: Any) -> tuple[ToolCall, ...]:
    return read(jsonl({"messages": list(messages)})).only.tool_calls


@pytest.mark.parametrize(
    ("arguments", "raw", "args", "state"),
    [
        ('{"x":1}', '{"x":1}', '{"x":1}', "ok"),
        ('{ "x": 1.10 }', '{ "x": 1.10 }', '{"x":1.10}', "ok"),
        ({"x": 1}, None, '{"x":1}', "ok"),
        ({}, None, "{}", "ok"),
        (None, None, None, "null"),
        ("null", "null", None, "null"),
        ("", "", None, "empty"),
        (" \n", " \n", None, "empty"),
        ("[]", "[]", None, "not_object"),
        ('"x"', '"x"', None, "not_object"),
        ([1, 2], None, None, "not_object"),
        (7, None, None, "not_object"),
        ('{"x": 1,', '{"x": 1,', None, "invalid_json"),
        ("{'x': 1}", "{'x': 1}", None, "invalid_json"),
        (json.dumps('{"city": "SF"}'), json.dumps('{"city": "SF"}'), '{"city":"SF"}', "double_encoded"),
        ("[" * 5000, "[" * 5000, None, "invalid_json"),
    ],
)
def test_arguments(arguments: Any, raw: str | None, args: str | None, state: str) -> None:
    (made,) = calls_of(asks(call("c", arguments)), answers("c"))
    assert (made.args_raw, made.args, made.args_state) == (raw, args, state)
    if raw is None and state == "not_object":
        assert json.loads(made.extra or "") == {"arguments": arguments}


def test_parallel_calls_pair_by_id_whatever_the_order_of_the_results() -> None:
    made = calls_of(USER, asks(call("a"), call("b")), answers("b", "of b"), answers("a", "of a"))
    assert [(c.call_id, c.call_ix, c.result_text, c.paired_by, c.result_step_ix) for c in made] == [
        ("a", 0, "of a", "id", 3),
        ("b", 1, "of b", "id", 2),
    ]


def test_an_id_that_is_used_again_belongs_to_the_latest_call() -> None:
    first, second = calls_of(asks(call("c")), answers("c", "1"), asks(call("c")), answers("c", "2"))
    assert (first.result_text, second.result_text) == ("1", "2")
    # and of two with one id in one message, in order
    first, second = calls_of(asks(call("c"), call("c")), answers("c", "1"), answers("c", "2"))
    assert (first.result_text, second.result_text) == ("1", "2")


def test_without_ids_results_pair_in_order_and_by_name() -> None:
    first, second = calls_of(asks(call(None), call("")), answers(None, "1"), answers(None, "2"))
    assert [c.paired_by for c in (first, second)] == ["order", "order"]
    assert (first.result_text, second.result_text) == ("1", "2")
    assert first.call_id_generated
    assert first.call_id != second.call_id
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}}
    (made,) = calls_of(legacy, {"role": "function", "name": "f", "content": "not g's"})
    assert made.result_state == "missing"
    (made,) = calls_of(legacy, {"role": "function", "name": "g", "content": "g's"})
    assert (made.result_text, made.paired_by) == ("g's", "order")


def test_second_results_orphans_and_results_before_their_call_stay_marked() -> None:
    fragment = read(
        jsonl(
            {
                "messages": [
                    answers("late", "too early"),
                    asks(call("c"), call("late")),
                    answers("c", "first"),
                    answers("c", "second"),
                    answers("nobody", "orphan"),
                ]
            }
        )
    ).only
    c, late = fragment.tool_calls
    assert (c.result_text, c.result_state) == ("first", "duplicate")
    assert (late.result_text, late.result_state, late.result_step_ix) == ("too early", "orphan_repaired", 0)
    assert [step.quality_flags for step in fragment.steps] == [
        ("result_before_call",),
        None,
        None,
        ("duplicate_result",),
        ("orphan_result",),
    ]
    assert fragment.trajectory.quality_flags == ("result_before_call", "duplicate_result", "orphan_result")


@pytest.mark.parametrize(
    ("message", "content", "state", "parts"),
    [
        ({"content": "hi"}, "hi", "present", None),
        ({"content": ""}, "", "present", None),
        ({"content": None}, None, "null", None),
        ({}, None, "missing", None),
        ({"content": []}, "", "present", "[]"),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}, "b"]},
            "a\nb",
            "present",
            '[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},"b"]',
        ),
        ({"content": {"k": 1}}, '{"k":1}', "present", '{"k":1}'),
        ({"content": 7}, "7", "present", "7"),
    ],
)
def test_content(message: dict[str, Any], content: str | None, state: str, parts: str | None) -> None:
    (step,) = read(jsonl({"messages": [{"role": "user", **message}]})).only.steps
    assert (step.content, step.content_state, step.parts) == (content, state, parts)


def test_roles_of_other_frameworks() -> None:
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "model", "content": "m"},
        asks(call("c", name="get_weather")),
        {"role": "get_weather", "content": "sunny"},
        {"role": "critic", "content": "hm"},
        {"role": "planner", "content": None, "tool_calls": [call("p")]},
        {"content": "who?"},
        "not even an object",
    ]
    fragment = read(jsonl({"messages": messages})).only
    roles = ["system", "assistant", "assistant", "tool", "event", "assistant", "event", "event"]
    assert [step.role for step in fragment.steps] == roles
    assert fragment.tool_calls[0].result_text == "sunny"
    assert fragment.steps[-1].raw == '"not even an object"'


def test_who_can_not_call_keeps_the_calls_as_extra() -> None:
    fragment = read(jsonl({"messages": [{"role": "system", "content": "s", "tool_calls": [call("c")]}]})).only
    assert fragment.tool_calls == ()
    assert json.loads(fragment.steps[0].extra or "") == {"tool_calls": [call("c")]}


def test_reasoning_weight_refusal_and_unknown_keys() -> None:
    messages = [
        {"role": "assistant", "content": "a", "reasoning_content": "because", "weight": 0},
        {"role": "assistant", "content": "b", "thinking_blocks": [{"thinking": "so", "signature": "s"}], "weight": 1},
        {"role": "assistant", "content": None, "refusal": "no", "audio": {"id": "x"}, "name": {"odd": 1}},
    ]
    first, second, third = read(jsonl({"messages": messages})).only.steps
    assert (first.reasoning, first.trainable, first.extra) == ("because", False, None)
    assert (second.reasoning, second.trainable) == ("so", True)
    assert json.loads(second.reasoning_opaque or "") == {"thinking_blocks": messages[1]["thinking_blocks"]}
    assert (third.refusal, third.trainable) == ("no", None)
    assert json.loads(third.extra or "") == {"audio": {"id": "x"}, "name": {"odd": 1}}
