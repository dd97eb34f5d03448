"""Each detector on a planted trajectory and on a look-alike that must stay silent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from flywheel.records import Outcome, Step, ToolCall, Trajectory
from flywheel.trajectory.call_detectors import schema_errors
from flywheel.trajectory.detectors import DETECTORS, Detector, detect, root_cause
from flywheel.trajectory.trace import Label, Trace, is_error, view, writes

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_order",
            "parameters": {
                "type": "object",
                "properties": {
                    "order_id": {"type": "string"},
                    "fields": {"type": "array", "items": {"enum": ["a", "b"]}},
                },
                "required": ["order_id"],
                "additionalProperties": False,
            },
        },
    },
    {"name": "set_order", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    {"type": "function", "name": "job_status", "parameters": {}},
]


def call(name: str, arguments: Mapping[str, Any] | str, result: str | None = "ok", **more: Any) -> dict[str, Any]:
    """One assistant call and the result paired to it."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"call": name, "args": raw, "result": result, "more": more}


def plan(*turns: str | dict[str, Any], outcomes: Sequence[Outcome] = (), **head: Any) -> Trace:
    """A trajectory from `role: text` lines and calls, as a reader would give it."""
    steps: list[Step] = []
    calls: list[ToolCall] = []

    def say(role: str, text: str | None, **more: Any) -> int:
        state = "null" if text is None else "present"
        fields = {"trajectory_id": "t", "role": role, "content": text, "content_state": state}
        steps.append(Step(step_ix=len(steps), **(fields | more)))
        return len(steps) - 1

    for turn in turns:
        if isinstance(turn, str):
            role, _, text = turn.partition(": ")
            say(role, text)
        elif "call" in turn:
            at = say("assistant", None, n_tool_calls=1)
            result_at = say("tool", turn["result"]) if turn["result"] is not None else None
            fields = {
                "trajectory_id": "t", "step_ix": at, "call_ix": 0, "name": turn["call"], "args_raw": turn["args"],
                "args": turn["args"], "args_state": "ok", "result_step_ix": result_at, "result_text": turn["result"],
                "result_state": "ok" if turn["result"] is not None else "missing",
            }  # fmt: skip
            calls.append(ToolCall(**(fields | turn["more"])))
        else:
            say(**turn)
    fields = {
        "trajectory_id": "t", "content_sha256": "0", "source_id": "s", "source_record_ix": 0, "format": "openai_chat",
        "n_steps": len(steps), "content_complete": True,
    }  # fmt: skip
    return view(Trajectory(**(fields | head)), steps, calls, outcomes)


def say(role: str, text: str | None, **more: Any) -> dict[str, Any]:
    """A message with fields that a `role: text` line cannot carry."""
    return {"role": role, "text": text, **more}


def outcome(**fields: Any) -> Outcome:
    base = {"outcome_id": "o", "trajectory_id": "t", "name": "correct", "value_type": "boolean", "polarity": -1}
    return Outcome(**(base | {"source_kind": "verifier"} | fields))


def found(trace: Trace, code: str) -> list[Label]:
    return [label for label in detect(trace) if label.code == code]


GET = ("get_order", {"order_id": "A-1001"})
SET = ("set_order", {"n": 1})
ERROR = "Error: no such order"
USER = "user: my order is A-1001"

PLANTED: list[tuple[str, int | None, Trace]] = [
    ("loop.same", 7, plan(USER, *[call(*GET, result="late")] * 4)),
    ("loop.same", 7, plan(USER, *[call(*GET, result=f"late since 2026-01-0{i} 12:00:00") for i in range(1, 5)])),
    ("loop.error", 5, plan(USER, *[call(*GET, result=f"{ERROR} ({i} tries)") for i in range(3)])),
    ("loop.alternate", 11, plan(USER, *[call(*GET, result="x"), call("get_user", {"id": "u_77"}, result="y")] * 3)),
    ("monologue", 3, plan("user: hi", "assistant: Let me think", "assistant: Still thinking", "assistant: Soon")),
    ("repeat", 7, plan(USER, call(*GET, "a"), call("get_user", {}), call(*GET, "b"), call(*GET, "c"))),
    ("err.retry_same", 5, plan(USER, call(*GET, result=ERROR), call("get_user", {}), call(*GET, result="ok"))),
    ("err.ignored", 1, plan(USER, call(*SET, ERROR), "assistant: It has been updated.")),
    ("tool.unknown", 1, plan(USER, call("get_oder", {"order_id": "A-1001"}), tools=json.dumps(TOOLS))),
    ("tool.unknown", 1, plan(USER, call("get_oder", {}, result="Unknown action get_oder"))),
    ("args.invalid", 1, plan(USER, call("get_order", {"orderId": "A-1001"}), tools=json.dumps(TOOLS))),
    ("args.invalid", 1, plan(USER, call("set_order", {"n": "1"}), tools=json.dumps(TOOLS))),
    ("args.ungrounded", 1, plan(USER, call("get_order", {"order_id": "B-2002"}))),
    ("args.ungrounded", 1, plan(USER, call("set", {"lines": [{"sku": "SKU_9"}]}))),
    ("format.json", 1, plan(USER, call("get_order", "{'order_id': 1}", args=None, args_state="invalid_json"))),
    ("format.json", 1, plan(USER, "assistant: <tool_call>{\"name\": \"get_order\"}</tool_call>")),
    ("format.json", 1, plan(USER, say("assistant", "One moment", finish_reason="tool_calls"))),
    ("format.json", 2, plan("system: Answer with one JSON object.", USER, "assistant: The order is A-1001.")),
    ("format.json", 1, plan(USER, "assistant: ok", sampling='{"response_format":{"type":"json_schema"}}')),
    ("ctx.overflow", 1, plan(USER, say("assistant", "and then and then", finish_reason="length"))),
    ("ctx.overflow", 0, plan(USER, error_message="This model's maximum context length is 8192 tokens")),
    ("budget.steps", 1, plan(USER, "assistant: next I will", end_reason="max_turns", end_reason_raw="max_steps")),
    ("empty", 1, plan(USER, "assistant:  \n")),
    ("empty", 1, plan(USER, say("assistant", None))),
    ("refusal", 1, plan(USER, "assistant: I’m sorry, but I can’t help with that.")),
    ("refusal", 1, plan(USER, say("assistant", None, refusal="No."))),
    ("user.neg", 2, plan(USER, "assistant: It is B-7.", "user: That's wrong, look again")),
    ("user.neg", 2, plan("user: where is my blue bag", "assistant: Which?", "user: where is my blue bag now")),
    ("user.neg", None, plan(USER, "assistant: B-7", outcomes=[outcome(source_kind="human_user", explanation="no")])),
    ("infra", 1, plan(USER, call(*GET, result="Error: HTTP 503 Service Unavailable"))),
    ("infra", 0, plan(USER, error_type="APIConnectionError", error_message="Connection reset by peer")),
    ("infra", 0, plan(USER, end_reason="env_error")),
    ("answer.wrong", 1, plan(USER, "assistant: B-7", success=False, outcomes=[outcome(explanation="expected A-1001")])),
    ("answer.wrong", 1, plan(USER, "assistant: B-7", success=False)),
]  # fmt: skip

LOOK_ALIKES: list[tuple[str, Trace]] = [
    ("loop.same", plan(USER, *[call(*GET, result=f"attempt {w}") for w in ("one", "two", "three", "four")])),
    ("loop.same", plan(USER, *[call("job_status", {"job": "j"}, result="running")] * 5)),
    ("loop.same", plan(USER, *[call(*GET, result="x")] * 3)),
    ("loop.error", plan(USER, *[call("get_order", {"order_id": f"A-{i}"}, result=ERROR) for i in range(3)])),
    ("loop.error", plan(USER, call(*GET, result=ERROR), call(*GET, result=ERROR), call(*GET, result="found"))),
    ("loop.alternate", plan(USER, *[call(*GET, result="x")] * 6)),
    ("loop.alternate", plan(USER, *[c for i in range(3) for c in (call(*GET, result=f"n{i}"), call("b", {}, "y"))])),
    ("monologue", plan("user: hi", "assistant: a", "assistant: b", "user: yes?", "assistant: c")),
    ("monologue", plan("user: hi", "assistant: a", "assistant: b", call(*GET), "assistant: c")),
    ("repeat", plan(USER, *[call(*GET), call(*SET)] * 3)),
    ("repeat", plan(USER, *[call("think", {"thought": "hm"})] * 4)),
    ("err.retry_same", plan(USER, call(*GET, result=ERROR), call("get_order", {"order_id": "A1001"}))),
    ("err.retry_same", plan(USER, call(*GET, result="Error rate is 2%"), call(*GET))),
    ("err.ignored", plan(USER, call(*SET, result=ERROR), "assistant: I could not update it, sorry.")),
    ("err.ignored", plan(USER, call(*SET, ERROR), call("set_order", {}), "assistant: It was updated.")),
    ("tool.unknown", plan(USER, call(*GET, result="Unknown author"), tools=json.dumps(TOOLS))),
    ("tool.unknown", plan(USER, call("anything", {}))),
    ("tool.unknown", plan(USER, call("web_search", {}, kind="server"), tools=json.dumps(TOOLS))),
    ("args.invalid", plan(USER, call("get_order", {"order_id": "A-1001", "fields": ["b"]}), tools=json.dumps(TOOLS))),
    ("args.invalid", plan(USER, call("set_order", {"n": 1.0, "extra": None}), tools=json.dumps(TOOLS))),
    ("args.ungrounded", plan(USER, call("get_order", {"order_id": "a1001"}))),
    ("args.ungrounded", plan("user: on May 20th, $12.50", call("set", {"date": "2026-05-20", "amount": "12.50"}))),
    ("args.ungrounded", plan(USER, call("find", {}, result="id: Z_9000"), call("get_order", {"order_id": "Z_9000"}))),
    ("format.json", plan("system: Answer with JSON only.", USER, 'assistant: ```json\n{"order": "A-1001"}\n```')),
    ("format.json", plan("user: what is JSON", "assistant: A notation.")),
    ("format.json", plan(USER, call("set_order", "", args=None, args_state="empty"))),
    ("ctx.overflow", plan(USER, say("assistant", "Our context window is 8192 tokens", finish_reason="stop"))),
    ("budget.steps", plan(USER, "assistant: Set max_steps to 10.", end_reason="completed")),
    ("empty", plan(USER, say("assistant", None, content_state="redacted"))),
    ("empty", plan(USER, call(*GET, result=None))),
    ("empty", plan(USER, say("assistant", "", parts='[{"type":"image_url"}]'))),
    ("refusal", plan(USER, call(*SET), "assistant: I can't do more, but the order is changed.")),
    ("refusal", plan(USER, "assistant: I'm sorry, but I can't share that.", task='{"expected_refusal":true}')),
    ("refusal", plan(USER, "assistant: I can't wait to hear from you.")),
    ("user.neg", plan("user: the invoice says that's wrong, why", "assistant: Because.")),
    ("user.neg", plan("user: yes please", "assistant: Which?", "user: yes please")),
    ("user.neg", plan(USER, "assistant: x", outcomes=[outcome(source_kind="human_user", polarity=1)])),
    ("infra", plan(USER, call(*GET, result="The rate limit of the API is 503 a day")),),
    ("infra", plan(USER, call(*GET, result="Error: HTTP 503"), call(*GET, result="found"))),
    ("infra", plan(USER, call(*GET, result="Error: HTTP 404 Not Found"))),
    ("answer.wrong", plan(USER, "assistant: A-1001", success=None, outcomes=[outcome()])),
    ("answer.wrong", plan(USER, "assistant: A-1001", success=True)),
    ("answer.wrong", plan(USER, success=False, end_reason="env_error")),
]  # fmt: skip


@pytest.mark.parametrize(("code", "step_ix", "trace"), PLANTED, ids=[f"{c}-{i}" for i, (c, *_) in enumerate(PLANTED)])
def test_planted_failure_is_found_at_its_step(code: str, step_ix: int | None, trace: Trace) -> None:
    labels = found(trace, code)
    assert [label.step_ix for label in labels] == [step_ix]
    assert len(labels[0].evidence) <= 200 and labels[0].detector_version


@pytest.mark.parametrize(("code", "trace"), LOOK_ALIKES, ids=[f"{c}-{i}" for i, (c, _) in enumerate(LOOK_ALIKES)])
def test_look_alike_stays_silent(code: str, trace: Trace) -> None:
    assert found(trace, code) == []


def test_every_detector_is_planted_and_has_a_look_alike() -> None:
    codes = {d.code for d in DETECTORS}
    assert codes == {code for code, *_ in PLANTED} == {code for code, _ in LOOK_ALIKES}


def test_a_clean_success_has_no_label() -> None:
    trace = plan(
        USER, call(*GET, result="shipped"), "assistant: It was shipped.", success=True, tools=json.dumps(TOOLS)
    )
    assert detect(trace) == []


def test_evidence_quotes_the_explanation_or_the_correction() -> None:
    explained = plan(
        USER, "assistant: B", success=False, outcomes=[outcome(correction='{"a":1}', explanation="a: 1, not 2")]
    )
    corrected = plan(USER, "assistant: B", success=False, outcomes=[outcome(correction='{"a":1}')])
    assert found(explained, "answer.wrong")[0].evidence == "a: 1, not 2"
    assert found(corrected, "answer.wrong")[0].evidence == '{"a":1}'


def test_scores_by_part_are_told_apart_by_the_parts_that_failed() -> None:
    scores = '{"json": true, "total": false, "date": 0.0, "n": 2}'
    trace = plan(
        USER, "assistant: B", success=False, outcomes=[outcome(polarity=None, value_num=0.0, explanation=scores)]
    )
    assert found(trace, "answer.wrong")[0].detail == "wrong: date, total"


def test_root_cause_goes_by_owner_then_step() -> None:
    trace = plan(USER, *[call(*GET, result=ERROR)] * 3, "assistant: B-7", success=False)
    root = root_cause(detect(trace))
    assert root and (root.code, root.step_ix) == ("err.retry_same", 3)
    dead = plan(USER, *[call(*GET, result="Error: HTTP 503")] * 3, success=False)
    assert (infra := root_cause(detect(dead))) and (infra.code, infra.owner) == ("infra", "infra")
    assert root_cause([]) is None


def test_an_objection_is_a_root_cause_only_where_nothing_else_was_found() -> None:
    objected = plan(USER, "assistant: B-7", "user: that's wrong", "assistant: Sorry.")
    assert (only := root_cause(detect(objected))) and only.code == "user.neg"
    failed = plan(USER, "assistant: B-7", "user: that's wrong", "assistant: Sorry.", success=False)
    assert (wrong := root_cause(detect(failed))) and wrong.code == "answer.wrong"


def test_one_step_ties_go_to_the_more_specific_label() -> None:
    trace = plan("system: Reply in JSON.", USER, "assistant: It is A-1001.", success=False)
    assert (root := root_cause(detect(trace))) and root.code == "format.json"


def test_copied_context_is_not_counted_again() -> None:
    trace = plan(USER, *[call(*GET, result="x")] * 4)
    head, acts = trace.trajectory, trace.acts
    copied = [replace(s, is_copied_context=True) if s.step_ix < 5 else s for s in trace.steps]
    assert found(view(head, copied, [a.call for a in acts]), "loop.same") == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Error: gift card balance is not enough", True),
        ("Traceback (most recent call last):\n  File", True),
        ("requests.exceptions.HTTPError: 404", True),
        ('{"error": "not found"}', True),
        ("make: failed\nexit code: 2", True),
        ('{"status_code": 404}', True),
        ('{"error": null, "ok": true}', False),
        ("Errors found: 0", False),
        ("exit code: 0", False),
        ("Total 404 rows", False),
        ("", False),
    ],
)
def test_error_by_text(text: str, error: bool) -> None:
    plain = ToolCall(trajectory_id="t", step_ix=0, call_ix=0, args_state="ok", result_state="ok")
    assert is_error(plain, text) is error
    assert is_error(replace(plain, is_error=True), text)


def test_tool_names_say_whether_they_write() -> None:
    assert not any(map(writes, ["get_order", "listFiles", "search", "fs.read_file"]))
    assert all(map(writes, ["book_flight", "cancelOrder", "bash", ""]))


def test_schema_errors_name_code_and_path() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "array", "items": {"enum": [1, 2]}}},
    }
    assert list(schema_errors({"a": None, "b": [1, 2], "c": 1}, schema)) == []
    assert list(schema_errors({"b": [3]}, schema)) == ["missing_required: a", "enum: b[]"]
    assert list(schema_errors({"a": True}, schema)) == ["type: a"]
    assert list(schema_errors({"a": 1, "x": 1}, schema | {"additionalProperties": False})) == ["unexpected_param: x"]


def test_evidence_is_short_however_long_the_call_is() -> None:
    one, other = call("set_order", {"text": "x" * 999}), call("set_order", {"text": "y" * 999})
    labels = detect(plan(USER, *[one, other] * 3, "assistant: " + "z" * 999, success=False))
    assert {"loop.alternate", "answer.wrong"} <= {label.code for label in labels}
    assert max(len(label.evidence) for label in labels) <= 200


def test_detectors_take_an_empty_trajectory() -> None:
    assert detect(plan()) == []
    assert all(isinstance(d, Detector) for d in DETECTORS)
