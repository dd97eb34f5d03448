"""OTLP containers and GenAI dialects, end to end: bytes to trajectories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import Outcome, jsonl, read, read_chunks

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.reader import Source
from flywheel.formats.sniff import Reading, open_readings
from flywheel.records import Attachment, Fragment

TRACE = "5b8efff798038103d269b633813fc60c"


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def attributes(values: dict[str, Any]) -> list[Any]:
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(span_id: str, start: int, parent: str = "", error: str = "", **values: Any) -> dict[str, Any]:
    """A span; `gen_ai__x` stands for the attribute `gen_ai.x`."""
    return {
        "traceId": TRACE,
        "spanId": span_id * 16,
        "parentSpanId": parent * 16,
        "name": f"span {span_id}",
        "startTimeUnixNano": str(1_796_062_483_000_000_000 + start * 10**9),
        "endTimeUnixNano": str(1_796_062_483_500_000_000 + start * 10**9),
        "attributes": attributes({key.replace("__", "."): value for key, value in values.items()}),
        "status": {"code": 2, "message": error} if error else {},
    }


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(spans)}]}]}


def chat(span_id: str, start: int, told: list[Any] | None, said: Any = None, parent: str = "a", **more: Any) -> Any:
    values: dict[str, Any] = {"gen_ai__operation__name": "chat", **more}
    if told is not None:
        values["gen_ai__input__messages"] = json.dumps(told)
    if said is not None:
        values["gen_ai__output__messages"] = json.dumps([said])
    return span(span_id, start, parent, **values)


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def calls(call_id: str, name: str = "find") -> dict[str, Any]:
    return {"role": "assistant", "parts": [{"type": "tool_call", "id": call_id, "name": name, "arguments": {"n": 1}}]}


def result(call_id: str, content: str = "found") -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": content}]}


AGENT = span("a", 0, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="boss")


def roles(fragment: Fragment) -> list[tuple[str, int | None, bool | None]]:
    return [(step.role, step.parent_ix, step.sampled) for step in fragment.steps]


# --- The samples -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "genai_openai_1.3b0_traces.otlp.jsonl",
        "openai_v2_2.4b0_semconv_latest_traces.otlp.jsonl",
        "traceloop_openai_0.40.14_traces.otlp.jsonl",
        "traceloop_openai_0.62.4_traces.otlp.jsonl",
    ],
)
def test_four_conversations_in_every_dialect(samples: Path, name: str) -> None:
    ok, bad, limited, long = read((samples / "otlp" / name).read_bytes()).fragments
    assert [step.role for step in ok.steps] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [step.sampled for step in ok.steps] == [None, None, True, None, None, True]
    assert [(c.call_id, c.result_step_ix, c.paired_by) for c in ok.tool_calls] == [
        ("call_O8NOz8VlxosSASEsOY7LDUcP", 3, "id"),
        ("call_3m7cyuckijnpiWr6tq0Tl8Mg", 4, "id"),
    ]
    assert all(c.started_at and c.ended_at and c.span_id for c in ok.tool_calls)
    t = ok.trajectory
    assert (t.conversation_id, t.session_id, t.user_id, t.agent_name) == (
        "conv_ok",
        "s_conv_ok",
        "u_42",
        "weather-agent",
    )
    assert (t.environment, t.end_reason, t.usage_quality, t.n_llm_calls) == ("prod", "completed", "per_call", 2)
    assert t.output_tokens == 102
    (call,) = bad.tool_calls
    assert (call.args_raw, call.args_state) == ('{"location": "Seattle, WA", "unit": ', "invalid_json")
    assert (call.is_error, call.error_type, bad.trajectory.error_type) == (True, "JSONDecodeError", None)
    assert (limited.trajectory.end_reason, limited.trajectory.error_type) == ("model_error", "RateLimitError")
    assert limited.steps[-1].role == "event"
    assert long.trajectory.end_reason == "max_tokens"


def read_all(*files: bytes) -> list[Fragment]:
    """Several objects as one batch."""
    found: list[Fragment] = []
    for n, data in enumerate(files):
        for opened in open_readings(lambda data=data: iter((data,)), Source(source_id=str(n), uri="u")):  # type: ignore[misc]
            assert isinstance(opened, Reading)
            found += [item for item in opened.items() if isinstance(item, Fragment)]
    return [complete(fragment) for fragment in assemble(found)]


def test_logs_and_traces_of_one_run_join_in_any_order(samples: Path) -> None:
    traces = (samples / "otlp" / "openai_v2_2.4b0_semconv_default_traces.otlp.jsonl").read_bytes()
    logs = (samples / "otlp" / "openai_v2_2.4b0_semconv_default_logs_01.pb").read_bytes()
    alone = read(traces).fragments[0]
    assert not alone.trajectory.content_complete
    assert "content_not_captured" in (alone.trajectory.quality_flags or ())
    for files in ((traces, logs), (logs, traces), (traces, logs, traces)):
        whole = next(f for f in read_all(*files) if f.key == alone.key)
        assert [step.role for step in whole.steps] == ["system", "user", "assistant", "tool", "tool", "assistant"]
        assert whole.trajectory.content_complete
        assert (whole.trajectory.conversation_id, whole.trajectory.input_tokens) == ("conv_ok", 197)
        assert whole.trajectory.quality_flags is None
        assert len(whole.spans) == 5 + 9


def test_usage_counts_once(samples: Path) -> None:
    path = samples / "malformed" / "otlp_usage_on_parent_and_child.json"
    assert read(path.read_bytes()).only.trajectory.input_tokens == 300


def test_cut_json_stays_text(samples: Path) -> None:
    fragment = read((samples / "malformed" / "otlp_truncated_attr_json.json").read_bytes()).only
    assert fragment.steps[0].content_state == "truncated"
    assert fragment.steps[0].content is not None
    assert {"truncated_attribute", "dropped_attributes"} <= set(fragment.trajectory.quality_flags or ())
    assert not fragment.trajectory.content_complete


def test_an_agent_that_a_tool_calls_is_a_trajectory_of_its_own(samples: Path) -> None:
    path = samples / "otlp" / "openai_agents_0.24.0_oi_2.5.3_as_tool.json"
    boss, helper = read(path.read_bytes()).fragments
    assert helper.trajectory.parent_trajectory_id == boss.key == boss.trajectory.trajectory_id
    assert helper.trajectory.parent_step_ix == 2
    assert boss.tool_calls[0].subagent_trajectory_id == helper.key
    assert (boss.trajectory.input_tokens, helper.trajectory.input_tokens) == (90, 30)
    assert {row.trajectory_id for row in helper.spans} == {helper.key}
    assert len(boss.spans) + len(helper.spans) == 12


# --- The graph ---------------------------------------------------------------------------------------------


def test_repeated_histories_are_one_graph_and_only_answers_are_sampled() -> None:
    told = [text("system", "s"), text("user", "u")]
    first = chat("b", 1, told, calls("c1"))
    second = chat("c", 2, [*told, calls("c1"), result("c1")], text("assistant", "done"))
    fragment = read(jsonl(request(AGENT, second, first))).only
    assert roles(fragment) == [
        ("system", None, None), ("user", 0, None), ("assistant", 1, True), ("tool", 2, None), ("assistant", 3, True),
    ]  # fmt: skip


def test_paths_that_part_branch_and_a_repeated_answer_is_another_sample() -> None:
    told = [text("user", "u")]
    answers = [chat(name, n, told, text("assistant", "same")) for n, name in enumerate("bc", 1)]
    other = chat("d", 3, [text("user", "other")], text("assistant", "x"))
    fragment = read(jsonl(request(AGENT, *answers, other))).only
    assert [step.parent_ix for step in fragment.steps] == [None, 0, 0, None, 3]
    assert [step.sampled for step in fragment.steps] == [None, True, True, None, True]
    assert fragment.trajectory.n_llm_calls == 3


def test_a_call_that_is_told_results_alone_goes_on_where_they_were_called() -> None:
    first, second = chat("b", 1, [text("user", "u")], calls("c1")), chat("c", 2, [result("c1")], text("assistant", "x"))
    assert [step.parent_ix for step in read(jsonl(request(AGENT, first, second))).only.steps] == [None, 0, 1, 2]


def test_tools_without_a_message_get_rows() -> None:
    """Content is off by default: the tool's span is all that is known of the call."""
    tool = span(
        "d", 2, "a", "boom", gen_ai__operation__name="execute_tool", gen_ai__tool__name="find",
        gen_ai__tool__call__id="c9", gen_ai__tool__call__arguments='{"q": 1}', error__type="ValueError",
    )  # fmt: skip
    fragment = read(jsonl(request(AGENT, chat("b", 1, None), tool, chat("c", 3, None)))).only
    assert roles(fragment) == [("assistant", None, True), ("tool", 0, None), ("assistant", 1, True)]
    (call,) = fragment.tool_calls
    assert (call.call_id, call.args, call.result_state, call.error_type) == ("c9", '{"q":1}', "error", "ValueError")
    assert not fragment.trajectory.content_complete


def test_layers_around_a_call_are_no_calls() -> None:
    used = {"gen_ai__usage__input_tokens": 10, "gen_ai__usage__output_tokens": 1}
    outer = chat("b", 1, [text("user", "u")], text("assistant", "x"), **used)
    inner = chat("c", 2, [text("user", "u")], text("assistant", "x"), parent="b", **used)
    fragment = read(jsonl(request(AGENT, outer, inner))).only
    assert len(fragment.steps) == 2
    assert fragment.trajectory.input_tokens == 10


@pytest.mark.parametrize(
    ("given", "read_", "total", "expected"),
    [(10, 90, 101, 100), (100, 90, 101, 100), (10, 90, None, 100), (100, 90, None, 100)],
)
def test_cache_that_is_apart_from_the_input_is_added(given: int, read_: int, total: int | None, expected: int) -> None:
    used = {"gen_ai__usage__prompt_tokens": given, "gen_ai__usage__completion_tokens": 1}
    used |= {"gen_ai__usage__cache_read_input_tokens": read_}
    used |= {} if total is None else {"llm__usage__total_tokens": total}
    trajectory = read(jsonl(request(AGENT, chat("b", 1, None, **used)))).only.trajectory
    assert (trajectory.input_tokens, trajectory.cache_read_tokens) == (expected, read_)


def test_evaluations_join_the_answer_they_name() -> None:
    event = {
        "traceId": TRACE,
        "spanId": "b" * 16,
        "observedTimeUnixNano": "1796062490000000000",
        "eventName": "gen_ai.evaluation.result",
        "attributes": attributes(
            {"gen_ai.evaluation.name": "relevance", "gen_ai.evaluation.score.label": "fail",
             "gen_ai.evaluation.score.value": 0.2, "gen_ai.response.id": "r1"}
        ),
    }  # fmt: skip
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [event]}]}]}
    answer = chat("b", 1, [text("user", "u")], text("assistant", "x"), gen_ai__response__id="r1")
    fragment = read(jsonl(request(AGENT, answer), logs)).only
    (outcome,) = fragment.outcomes
    assert (outcome.name, outcome.value_num, outcome.polarity, outcome.step_ix) == ("relevance", 0.2, -1, 1)
    assert fragment.trajectory.success is False
    alone = read(jsonl({"resourceLogs": [{"scopeLogs": [{"logRecords": [{**event, "traceId": ""}]}]}]}))
    (attachment,) = alone.attachments
    assert isinstance(attachment, Attachment)
    assert attachment.outcomes[0].native_target_id == "r1"


# --- Containers --------------------------------------------------------------------------------------------

WHOLE = request(AGENT, chat("b", 1, [text("user", "u")], text("assistant", "x")))


def snake(value: Any) -> Any:
    names = {"resourceSpans": "resource_spans", "scopeSpans": "scope_spans", "traceId": "trace_id", "spanId": "span_id"}
    names |= {"parentSpanId": "parent_span_id", "startTimeUnixNano": "start_time_unix_nano"}
    names |= {"endTimeUnixNano": "end_time_unix_nano", "stringValue": "string_value"}
    if isinstance(value, dict):
        return {names.get(key, key): snake(item) for key, item in value.items()}
    return [snake(item) for item in value] if isinstance(value, list) else value


def rows(outcome: Outcome) -> list[Any]:
    return [(f.key, [(s.role, s.content, s.ts) for s in f.steps]) for f in outcome.fragments]


def test_spellings_and_wrappings_of_one_request_are_one_trace() -> None:
    plain = read(jsonl(WHOLE))
    assert plain.format == "otlp"
    upper = json.loads(json.dumps(WHOLE).replace(TRACE, TRACE.upper()))
    old = json.loads(json.dumps(WHOLE).replace("scopeSpans", "instrumentationLibrarySpans"))
    tempo = {"batches": WHOLE["resourceSpans"]}
    for other in (snake(WHOLE), upper, old, tempo, {"trace": tempo}, {"trace": WHOLE}):
        assert rows(read(jsonl(other))) == rows(plain)
    assert rows(read(json.dumps([WHOLE, WHOLE], indent=1).encode())) == rows(plain)


def test_console_and_jaeger_dumps() -> None:
    told, said = json.dumps([text("user", "u")]), json.dumps([text("assistant", "x")])
    values = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": told, "gen_ai.output.messages": said}
    console = {
        "name": "chat", "context": {"trace_id": "0x" + TRACE, "span_id": "0x" + "b" * 16, "trace_state": "[]"},
        "kind": "SpanKind.CLIENT", "parent_id": None, "start_time": "2026-11-30T18:14:43.132860Z",
        "end_time": "2026-11-30T18:14:43.232860Z", "status": {"status_code": "UNSET"}, "attributes": values,
        "events": [], "links": [], "resource": {"attributes": {"service.name": "agent"}, "schema_url": ""},
    }  # fmt: skip
    jaeger = {
        "data": [{"traceID": TRACE, "processes": {"p1": {"serviceName": "agent", "tags": []}}, "spans": [{
            "traceID": TRACE, "spanID": "b" * 16, "operationName": "chat", "references": [], "processID": "p1",
            "startTime": 1_796_062_483_132_860, "duration": 100_000, "logs": [],
            "tags": [{"key": key, "type": "string", "value": value} for key, value in values.items()],
        }]}]
    }  # fmt: skip
    assert rows(read(json.dumps(console, indent=4).encode())) == rows(read(jsonl(jaeger)))
    fragment = read(jsonl(console)).only
    assert fragment.trajectory.agent_name == "agent"
    assert fragment.spans[0].start_ns == 1_796_062_483_132_860_000
    assert fragment.spans[0].trace_id == TRACE


def test_what_gives_no_trajectory_is_refused_by_name() -> None:
    metrics = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m"}]}]}]}
    assert [reject.code for reject in read(jsonl(metrics)).rejects] == ["metrics"]
    assert [reject.code for reject in read(jsonl({"resourceSpans": []})).rejects] == ["no_spans"]


def test_senseless_times_are_kept_and_not_believed() -> None:
    odd = {**chat("b", 1, None), "startTimeUnixNano": "1", "endTimeUnixNano": "99999999999999999"}
    fragment = read(jsonl(request(odd))).only
    assert (fragment.spans[0].start_ns, fragment.spans[0].end_ns) == (1, 99999999999999999)
    assert fragment.trajectory.started_at is None
    assert fragment.trajectory.time_quality == "missing"


def test_spans_are_lossless() -> None:
    one = chat("b", 1, None, big=2**53 + 1, mixed=[1, "x", True], nested={"a": {"b": [0.1]}})
    one |= {
        "traceState": "k=v",
        "flags": 256,
        "droppedAttributesCount": 2,
        "links": [{"traceId": TRACE, "spanId": "c" * 16}],
    }
    (row,) = read(jsonl(request(one))).only.spans
    kept = json.loads(row.attributes or "")
    assert kept["big"] == 2**53 + 1
    assert kept["mixed"] == [1, "x", True]
    assert kept["nested"] == {"a": {"b": [0.1]}}
    assert kept["flywheel.rest"] == {"traceState": "k=v", "flags": 256}
    assert row.dropped_attributes == 2
    assert json.loads(row.links or "") == [{"traceId": TRACE, "spanId": "c" * 16}]
    assert read_chunks(lambda: iter((jsonl(request(one)),))).only.spans == (row,)
