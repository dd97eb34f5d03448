"""Calls of whichever protocol: conversations out of growing histories, streams out of pieces, envelopes opened."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from sources import USER, answers, asks, call, jsonl, read

from flywheel.formats.histories import Histories
from flywheel.records import Fragment


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def logged(n: int, messages: list[Any], answer: Any, **more: Any) -> dict[str, Any]:
    """One call as a gateway logs it."""
    choice = {"index": 0, "message": answer, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10 * n, "completion_tokens": n}
    response = {
        "id": f"chatcmpl-{n:020d}",
        "created": 1757015036 + n,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return {"request": {"model": "m", "messages": messages}, "response": response, **more}


def growing() -> list[dict[str, Any]]:
    """Three calls of one agent: each request repeats all that was said before."""
    first = [{"role": "system", "content": "s"}, USER]
    second = [*first, asks(call("c1")), answers("c1", "found it")]
    third = [*second, said("It is on its way."), {"role": "user", "content": "And when?"}]
    return [
        logged(1, first, {**asks(call("c1")), "refusal": None}),
        logged(2, second, {**said("It is on its way."), "reasoning_content": "tell them"}),
        logged(3, third, said("Tomorrow.")),
    ]


def one(*records: Any) -> Fragment:
    return read(jsonl(*records)).only


# --- One conversation is one trajectory ---------------------------------------------------------------------


def test_a_growing_history_is_one_graph_with_every_call_counted_once() -> None:
    whole = one(*growing())
    assert [step.role for step in whole.steps] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [step.parent_ix for step in whole.steps] == [None, 0, 1, 2, 3, 4, 5]
    assert [step.llm_call_id for step in whole.steps if step.llm_call_id] == [f"chatcmpl-{n:020d}" for n in (1, 2, 3)]
    assert [step.sampled for step in whole.steps if step.role == "assistant"] == [True, True, True]
    assert whole.steps[4].reasoning == "tell them", "the request that repeats it has no reasoning"
    assert [(made.call_id, made.result_text, made.result_state) for made in whole.tool_calls] == [
        ("c1", "found it", "ok")
    ]
    t = whole.trajectory
    assert (t.n_llm_calls, t.input_tokens, t.output_tokens) == (3, 60, 6)
    assert t.native_id == f"chatcmpl-{3:020d}"


def test_calls_that_continue_nothing_stay_apart() -> None:
    a, b, c = growing()
    other = logged(9, [USER], said("x"))
    outcome = read(jsonl(a, other, b, c))
    assert [len(fragment.steps) for fragment in outcome.fragments] == [7, 2]
    # the same question twice is two calls: the second goes on from nothing
    twice = read(jsonl(other, logged(8, [USER], said("y"))))
    assert [len(fragment.steps) for fragment in twice.fragments] == [2, 2]
    # other tasks, and numbered attempts, are never one conversation
    for more in ({"metadata": {"task_id": "t"}}, {"attempt": 2}):
        assert len(read(jsonl(a, {**b, **more})).fragments) == 2, more


def test_rows_of_a_data_set_are_no_calls() -> None:
    rows = [
        {"messages": [USER, said("a")]},
        {"messages": [USER, said("a"), {"role": "user", "content": "b"}, said("c")]},
    ]
    assert [len(fragment.steps) for fragment in read(jsonl(*rows)).fragments] == [2, 4]


def test_a_conversation_id_joins_calls_wherever_they_are() -> None:
    records = [record | {"metadata": {"conversation_id": "conversation-0123456789"}} for record in growing()]
    whole = one(*records)
    assert (len(whole.steps), whole.trajectory.conversation_id) == (7, "conversation-0123456789")
    assert whole.trajectory.native_id == "conversation-0123456789"
    assert one(records[2]).key == whole.key, "in a file of its own it is the same trajectory"
    branch = logged(4, [{"role": "system", "content": "s"}, USER], said("No order."), metadata=records[0]["metadata"])
    forked = one(*records, branch)
    leaves = {step.step_ix for step in forked.steps} - {step.parent_ix for step in forked.steps}
    assert (len(forked.steps), len(leaves)) == (8, 2)


def test_a_session_holds_conversations_that_open_alike() -> None:
    session = {"metadata": {"session_id": "s-1"}}
    title = logged(7, [{"role": "user", "content": "Give a title"}], said("Orders"), **session)
    outcome = read(jsonl(*(record | session for record in growing()), title))
    assert [len(fragment.steps) for fragment in outcome.fragments] == [7, 2]
    assert {fragment.trajectory.session_id for fragment in outcome.fragments} == {"s-1"}


def test_feedback_on_each_call_is_kept_and_points_to_its_answer() -> None:
    records = [record | {"feedback": {"name": "thumbs", "score": n}} for n, record in enumerate(growing()) if n != 1]
    whole = one(records[0], growing()[1], records[1])
    assert sorted((item.value_num, item.step_ix) for item in whole.outcomes) == [(0.0, None), (2.0, 6)]


def test_what_is_held_of_a_source_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flywheel.formats.histories.MOST", 2)
    histories = Histories()
    first, answer = [USER], said("a")
    assert histories.key(first, [answer], "k1", "") == "k1"
    for n in range(2):
        histories.key([{"role": "user", "content": str(n)}], [answer], f"other{n}", "")
    assert histories.key([*first, answer, USER], [answer], "k2", "") == "k2", "forgotten: the oldest of three"


# --- Streams -------------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any], index: int = 0, answer: str = "chatcmpl-a", **more: Any) -> dict[str, Any]:
    return {
        "id": answer, "object": "chat.completion.chunk", "created": 1757015036, "model": "m",
        "choices": [{"index": index, "delta": delta, "finish_reason": more.pop("finish_reason", None)}], **more,
    }  # fmt: skip


def test_deltas_of_tool_calls_are_merged_by_index_and_only_the_first_has_an_id() -> None:
    def part(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        return {"index": index, **more, "function": {"arguments": arguments, **({"name": "f"} if more else {})}}

    chunks = [
        chunk({"role": "assistant", "content": "Let "}),
        chunk({"content": "me see."}),
        chunk({"tool_calls": [part(0, '{"a"', id="c0", type="function")]}),
        chunk({"tool_calls": [part(1, '{"b"', id="c1", type="function")]}),
        chunk({"tool_calls": [part(0, ":1}"), part(1, ":2}")]}),
        chunk({}, finish_reason="tool_calls"),
        {**chunk({}), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    ]
    outcome = read(jsonl(*chunks))
    assert (outcome.format, outcome.n_records, outcome.rejects) == ("openai_chat", 7, [])
    (step,) = outcome.only.steps
    assert (step.content, step.sampled, step.input_tokens, step.finish_reason) == ("Let me see.", True, 7, "tool_calls")
    assert [(c.call_id, c.name, c.args_raw) for c in outcome.only.tool_calls] == [
        ("c0", "f", '{"a":1}'),
        ("c1", "f", '{"b":2}'),
    ]
    assert outcome.only.trajectory.content_complete


def test_calls_without_an_index_begin_with_an_id() -> None:
    chunks = [
        chunk({"tool_calls": [{"id": "c0", "function": {"name": "f", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"function": {"arguments": "}"}}]}),
        chunk({"tool_calls": [{"id": "c1", "function": {"name": "g", "arguments": "{}"}}]}, finish_reason="stop"),
    ]
    made = read(jsonl(*chunks)).only.tool_calls
    assert [(c.call_id, c.name, c.args_raw) for c in made] == [("c0", "f", "{}"), ("c1", "g", "{}")]


def test_streams_that_arrive_together_are_told_apart_and_a_cut_one_says_so() -> None:
    chunks = [
        chunk({"role": "assistant", "content": "a"}, answer="chatcmpl-a"),
        chunk({"role": "assistant", "content": "x"}, answer="chatcmpl-x"),
        chunk({"content": "b"}, answer="chatcmpl-a", finish_reason="stop"),
        chunk({"content": "y"}, answer="chatcmpl-x"),
    ]
    found = {f.trajectory.native_id: f for f in read(jsonl(*chunks)).fragments}
    assert {key: f.steps[0].content for key, f in found.items()} == {"chatcmpl-a": "ab", "chatcmpl-x": "xy"}
    assert not found["chatcmpl-x"].trajectory.content_complete
    assert found["chatcmpl-x"].trajectory.quality_flags == ("incomplete_stream",)
    assert found["chatcmpl-a"].trajectory.content_complete


def events(*items: Any) -> str:
    return "".join(f"event: x\ndata: {json.dumps(item)}\n\n" for item in items) + "data: [DONE]\n\n"


@pytest.mark.parametrize("as_text", [True, False])
def test_a_streamed_response_beside_its_request(as_text: bool) -> None:
    chunks = [chunk({"role": "assistant", "content": "Good "}), chunk({"content": "day."}, finish_reason="stop")]
    record = {"request": {"messages": [USER]}, "response": {"body": events(*chunks)} if as_text else chunks}
    assert [step.content for step in one(record).steps] == [USER["content"], "Good day."]


def test_a_saved_event_stream_is_a_source() -> None:
    data = events(chunk({"role": "assistant", "content": "Hi"}, finish_reason="stop")).encode() + b"data: {broken\n\n"
    outcome = read(data)
    assert (outcome.format, outcome.only.steps[0].content) == ("openai_chat", "Hi")
    (reject,) = outcome.rejects
    assert data[reject.byte_offset : reject.byte_offset + reject.byte_len] == b"data: {broken\n"
    assert read(data, size=7) == outcome


# --- Envelopes -----------------------------------------------------------------------------------------------

RESPONSE = {"id": "chatcmpl-1", "choices": [{"message": said("Hi"), "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "record",
    [
        {
            "request": {"body": json.dumps({"messages": [USER]})},
            "response": {"status": 200, "body": json.dumps(RESPONSE)},
        },
        {"request_body": {"messages": [USER]}, "response_body": RESPONSE, "status": 200},
        {"custom_id": "r-1", "method": "POST", "body": {"messages": [USER]}, "response": RESPONSE},
        {"request": {"messages": [USER]}, "chunks": [{**RESPONSE, "choices": [{"index": 0, "delta": said("Hi")}]}]},
        {"messages": json.dumps([USER]), "response": json.dumps(RESPONSE), "spend": 0.1},
        {
            "interactions": [
                {"request": {"body": {"string": json.dumps({"messages": [USER]})}}, "response": {"body": RESPONSE}}
            ]
        },
    ],
)
def test_bodies_are_opened_wherever_they_are(record: dict[str, Any]) -> None:
    whole = one(record)
    assert [step.content for step in whole.steps] == [USER["content"], "Hi"]
    assert whole.steps[1].llm_call_id == "chatcmpl-1"


def test_what_stands_around_a_body_is_kept() -> None:
    record = {
        "request": {"uri": "https://x/v1", "body": {"messages": [USER]}},
        "response": {"status": 200, "body": RESPONSE},
    }
    assert json.loads(one(record).trajectory.extra or "")["around"] == {
        "request": {"uri": "https://x/v1"},
        "response": {"status": 200},
    }


@pytest.mark.parametrize(
    "beside",
    [
        {"properties": {"Helicone-Session-Id": "s-1"}, "request_user_id": "u-1"},
        {"metadata": {"requester_metadata": {"session_id": "s-1", "user_id": "u-1"}}},
        {"litellm_session_id": "s-1", "end_user": "u-1"},
    ],
)
def test_who_asked_in_which_session_as_gateways_say_it(beside: dict[str, Any]) -> None:
    t = one({"request": {"messages": [USER]}, "response": RESPONSE, **beside}).trajectory
    assert (t.session_id, t.user_id) == ("s-1", "u-1")


def test_a_failed_call_of_the_batch_api_has_its_question_and_its_error() -> None:
    error = {"code": "server_error", "message": "try again"}
    t = one({"custom_id": "r-1", "body": {"messages": [USER]}, "response": None, "error": error}).trajectory
    assert (t.n_steps, t.end_reason, t.error_type, t.error_message) == (1, "model_error", "server_error", "try again")


YAML = """interactions:
- request:
    body: '{request}'
    headers: {{date: 2026-01-02}}
    method: POST
    uri: https://api.example.com/v1/chat/completions
  response:
    body:
      string: {string}
    status: {{code: 200, message: OK}}
version: 1
"""


@pytest.mark.parametrize("pack", ["text", "binary", "gzip"])
def test_cassettes_of_vcr(pack: str) -> None:
    body = json.dumps(RESPONSE)
    data = gzip.compress(body.encode()) if pack == "gzip" else body.encode()
    string = f"'{body}'" if pack == "text" else f"!!binary {base64.b64encode(data).decode()}"
    outcome = read(YAML.format(request=json.dumps({"messages": [USER]}), string=string).encode())
    assert outcome.format == "openai_chat"
    assert [step.content for step in outcome.only.steps] == [USER["content"], "Hi"]
    around = json.loads(outcome.only.trajectory.extra or "")["around"]
    assert around["request"]["headers"] == {"date": "2026-01-02"}, "a date stays the text that it was"
    assert around["response"]["status"] == {"code": 200, "message": "OK"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("interactions:\n- &a {x: 1}\n- *a\n", "yaml_alias"),
        ("interactions:\n- {a: [}\n", "invalid_yaml"),
        ("interactions:\n- " + "[" * 300 + "]" * 300, "too_deep"),
        ("interactions:\n- " + "[" * 5000, "invalid_yaml"),
        ("interactions:\n- a: 1\n", "unknown_format"),
    ],
)
def test_yaml_that_is_not_read(text: str, code: str) -> None:
    assert [reject.code for reject in read(text.encode()).rejects] == [code]


def test_calls_of_three_protocols_in_one_log() -> None:
    claude = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "A"}],
              "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2}}  # fmt: skip
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "R"}]}
    records = [
        {"request": {"messages": [USER]}, "response": RESPONSE},
        {"request": {"messages": [USER], "max_tokens": 9}, "response": claude},
        {"request": {"input": "q"}, "response": {"id": "resp_1", "object": "response", "output": [item]}},
    ]
    for order in (records, records[::-1]):
        outcome = read(jsonl(*order, order[0] | {"id": "again"}))
        formats = [fragment.trajectory.format for fragment in outcome.fragments]
        assert sorted(set(formats)) == ["anthropic_messages", "openai_chat", "openai_responses"]
        assert outcome.rejects == []
