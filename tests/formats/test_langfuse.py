"""Langfuse: one trace in each of its forms, its scores, its usage, and values of any kind."""

from __future__ import annotations

import csv
import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import Outcome, chunked, read, read_chunks

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.langfuse import Langfuse
from flywheel.formats.langfuse_spans import buckets
from flywheel.formats.reader import Record, Source
from flywheel.records import Fragment

TRACE = "trace-00000000000000000001"
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Berlin?"}]
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Berlin"}'}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
ANSWER = {"role": "assistant", "content": "It is sunny."}
TOLD = [*ASKED, CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}]


def observation(
    id_: str, at: int, kind: str = "GENERATION", parent: str | None = "root", **fields: Any
) -> dict[str, Any]:
    return {
        "id": id_, "traceId": TRACE, "type": kind, "name": id_, "parentObservationId": parent,
        "startTime": f"2025-10-30T08:45:{at:02}.000Z", "endTime": f"2025-10-30T08:45:{at + 1:02}.500Z",
        "level": "DEFAULT", **fields,
    }  # fmt: skip


OBSERVATIONS = [
    observation("second", 4, input=json.dumps(TOLD), output=json.dumps(ANSWER),
                model="gpt-5", usageDetails={"input": 20, "input_cached_tokens": 5, "output": 7, "output_reasoning": 3,
                                             "total": 35}, totalCost=0.5),
    observation("get_weather", 2, "TOOL", input='{"city": "Berlin"}', output='"Sunny"'),
    observation("first", 1, input=json.dumps(ASKED), output=json.dumps(CALLED), model="gpt-5",
                usageDetails={"input": 10, "output": 2, "total": 12}, totalCost=0.25),
    observation("root", 0, "AGENT", None, name="weather agent"),
]  # fmt: skip
HEAD = {
    "id": TRACE, "timestamp": "2025-10-30T08:45:00.000Z", "name": "weather", "projectId": "p", "userId": "jane",
    "sessionId": "session-1", "tags": ["prod"], "metadata": json.dumps({"task_id": "task-7", "plan": "pro"}),
    "input": json.dumps("Weather in Berlin?"), "output": None, "release": "r1", "version": "v9",
}  # fmt: skip
SCORE = {
    "id": "score-1", "traceId": TRACE, "observationId": None, "sessionId": None, "name": "user-feedback", "value": 0,
    "stringValue": None, "dataType": "NUMERIC", "source": "API", "comment": "wrong city", "projectId": "p",
    "timestamp": "2025-10-31T08:00:00.000Z",
}  # fmt: skip


def snake(record: dict[str, Any]) -> dict[str, Any]:
    names = {"traceId": "trace_id", "parentObservationId": "parent_observation_id", "startTime": "start_time",
             "endTime": "end_time", "usageDetails": "usage_details", "totalCost": "total_cost",
             "model": "provided_model_name", "userId": "user_id", "sessionId": "session_id", "projectId": "project_id",
             "observationId": "observation_id", "stringValue": "string_value", "dataType": "data_type"}  # fmt: skip
    return {names.get(key, key): value for key, value in record.items()}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def bundle(**more: Any) -> bytes:
    return json.dumps({"trace": {**HEAD, **more}, "observations": OBSERVATIONS}).encode()


def enriched() -> list[dict[str, Any]]:
    beside = {"session_id": "session-1", "user_id": "jane", "trace_name": "weather", "tags": ["prod"]}
    rows = [{**snake(item), **beside} for item in OBSERVATIONS]
    for row in rows:
        row["start_time"] = row["start_time"].replace("T", " ").removesuffix("Z") + "000"
        row["end_time"] = row["end_time"].replace("T", " ").removesuffix("Z") + "000"
        row["parent_observation_id"] = row["parent_observation_id"] or ""
        row.setdefault("provided_model_name", "")
        row.setdefault("input", "")
        row.setdefault("output", "")
        row.setdefault("usage_details", {})
        row.setdefault("total_cost", 0)
    return rows


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows({k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()} for row in rows)
    return file.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0]}
    columns["usage_details"] = pa.array(
        [list(v.items()) for v in columns["usage_details"]], pa.map_(pa.string(), pa.uint64())
    )
    columns["total_cost"] = pa.array([Decimal(str(v)) for v in columns["total_cost"]], pa.decimal128(18, 12))
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


FORMS = {
    "bundle": lambda: bundle(),
    "api trace": lambda: json.dumps({**HEAD, "observations": OBSERVATIONS, "htmlPath": "/t"}).encode(),
    "api page": lambda: json.dumps({"data": [{**HEAD, "observations": OBSERVATIONS}], "meta": {"page": 1}}).encode(),
    "legacy tables": lambda: lines(*(snake(item) for item in OBSERVATIONS), snake(HEAD)),
    "enriched lines": lambda: lines(*enriched()),
    "enriched csv": lambda: as_csv(enriched()),
    "enriched parquet": lambda: as_parquet(enriched()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_trace_gives_the_same_messages(form: str) -> None:
    outcome = read(FORMS[form]())
    assert outcome.format == "langfuse" and outcome.rejects == []
    fragment = outcome.only
    assert [(s.role, s.content, s.sampled, s.parent_ix) for s in fragment.steps] == [
        ("system", "Be brief.", None, None),
        ("user", "Weather in Berlin?", None, 0),
        ("assistant", "", True, 1),
        ("tool", "Sunny", None, 2),
        ("assistant", "It is sunny.", True, 3),
    ]
    (call,) = fragment.tool_calls
    assert (call.name, call.args_raw, call.result_step_ix, call.paired_by, call.span_id) == (
        "get_weather", '{"city": "Berlin"}', 3, "id", "get_weather",
    )  # fmt: skip
    head = fragment.trajectory
    assert (head.native_id, head.agent_name, head.model) == (TRACE, "weather agent", "gpt-5")
    assert (head.input_tokens, head.cache_read_tokens, head.output_tokens, head.reasoning_tokens) == (35, 5, 12, 3)
    assert head.cost_usd == Decimal("0.75") and head.usage_quality == "per_call"
    assert (head.session_id, head.user_id, head.tags) == ("session-1", "jane", ("prod",))
    if not form.startswith("enriched"):
        assert (head.task_id, head.agent_version) == ("task-7", "v9")
    assert head.success is None
    assert {s.span_id for s in fragment.steps if s.sampled} == {"first", "second"}
    assert all(row.scope == "langfuse" and row.trajectory_id == fragment.key for row in fragment.spans)


def test_the_rows_of_a_trace_join_across_files_in_any_order() -> None:
    source = [Source(source_id=str(n) * 64, uri=f"{n}") for n in range(5)]
    parts = [lines(snake(item)) for item in (*OBSERVATIONS, HEAD)]
    random.Random(3).shuffle(parts)
    fragments = [
        item
        for data, its in zip(parts, source, strict=True)
        for item in Langfuse().read((Record(ix=0, offset=0, length=0, value=json.loads(data)) for _ in (1,)), its)
    ]
    (whole,) = assemble(fragment for fragment in fragments if isinstance(fragment, Fragment))
    assert [s.content for s in complete(whole).steps] == [s.content for s in read(bundle()).only.steps]
    assert whole.key == read(bundle()).only.key


def test_a_trace_alone_has_what_it_was_asked_and_what_it_answered() -> None:
    fragment = read(lines(snake({**HEAD, "output": json.dumps("Sunny.")}))).only
    assert [(s.role, s.content) for s in fragment.steps] == [("user", "Weather in Berlin?"), ("assistant", "Sunny.")]


def test_scores_decide_where_they_are_clear_and_stand_on_their_step() -> None:
    bad = {**SCORE, "observationId": "second"}
    toxic = {**SCORE, "id": "score-2", "name": "toxicity", "source": "EVAL"}
    fragment = read(bundle(scores=[bad, toxic])).only
    by_name = {outcome.name: outcome for outcome in fragment.outcomes}
    first = by_name["user-feedback"]
    assert (first.polarity, first.source_kind, first.target_kind, first.step_ix) == (-1, "human_user", "step", 4)
    assert (first.explanation, first.source_ref) == ("wrong city", "score-1")
    assert by_name["toxicity"].polarity is None
    assert (fragment.trajectory.success, fragment.trajectory.success_source) == (False, "human_user:user-feedback")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"value": 1, "dataType": "BOOLEAN", "stringValue": "True"}, (1.0, True, "True", 1)),
        ({"value": 1, "dataType": "BOOLEAN", "name": "hallucinated"}, (1.0, True, None, -1)),
        ({"value": None, "dataType": "CATEGORICAL", "stringValue": "thumbs down"}, (None, None, "thumbs down", -1)),
        ({"value": "0.9", "dataType": "NUMERIC"}, (0.9, None, "0.9", 1)),
        ({"value": 17, "dataType": "NUMERIC"}, (17.0, None, None, None)),
        ({"value": None, "dataType": "CORRECTION", "stringValue": "Cloudy"}, (None, None, "Cloudy", None)),
    ],
)
def test_scores_in_files_of_their_own_name_their_trace(fields: dict[str, Any], expected: tuple[Any, ...]) -> None:
    for record in ({**SCORE, **fields}, snake({**SCORE, **fields})):
        outcome = read(lines(record))
        assert outcome.format == "langfuse" and not outcome.fragments
        (found,) = outcome.attachments[0].outcomes
        assert (found.trajectory_id, found.native_target_id, found.target_kind) == (None, TRACE, "trajectory")
        assert (found.value_num, found.value_bool, found.value_text, found.polarity) == expected
        assert found.outcome_id == read(bundle(scores=[{**SCORE, **fields}])).only.outcomes[0].outcome_id


def test_an_error_is_its_observation_s_and_a_cut_text_is_said() -> None:
    failed = observation(
        "fails", 6, input=json.dumps(ASKED), output=None, level="ERROR", statusMessage="429 rate limit"
    )
    cut = observation("cut", 8, input=json.dumps(TOLD)[:150], output="ok")
    fragment = read(json.dumps({"trace": HEAD, "observations": [failed, cut]}).encode()).only
    assert [s.error_message for s in fragment.steps if s.error_message] == ["429 rate limit"]
    assert "truncated_attribute" in (fragment.trajectory.quality_flags or ())
    assert fragment.trajectory.content_complete is False


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 10, "output": 5, "total": 15}, (10, None, 5, None)),
        ({"input": 179, "output": 35, "total": 278, "input_cache_read": 0, "output_reasoning": 64}, (179, 0, 99, 64)),
        ({"input": 5, "cache_read_input_tokens": 90, "output": 1}, (95, 90, 1, None)),
        ({"input": 100, "input_cached_tokens": 40, "output": 20, "total": 120}, (100, 40, 20, None)),
        ({"input": "7", "output": "1"}, (7, None, 1, None)),
    ],
)
def test_buckets_are_summed_unless_they_were_totals(usage: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = buckets(usage)
    assert found is not None
    assert (found.input_tokens, found.cache_read_tokens, found.output_tokens, found.reasoning_tokens) == expected
    assert buckets({}) is None


def test_a_manifest_of_an_export_holds_nothing() -> None:
    data = json.dumps({"table": "scores", "rows": 3}).encode()
    outcome = read_chunks(chunked(data), source=Source(source_id="0" * 64, uri="export/manifests/1.json"))
    assert (outcome.format, outcome.n_records, outcome.fragments, outcome.rejects) == ("langfuse", 1, [], [])


def test_the_samples_hold_the_conversations_that_their_frameworks_had(samples: Path) -> None:
    def steps(name: str) -> list[tuple[str, int]]:
        fragment = read((samples / "langfuse" / name).read_bytes()).only
        return [(step.role, step.n_tool_calls) for step in fragment.steps]

    weather = [("user", 0), ("assistant", 1), ("tool", 0), ("assistant", 0)]
    assert steps("langgraph-js-2025-10-30.trace.json") == weather  # the tool's message has the tool's name as its role
    assert steps("openai-agents-2025-09-30.trace.json") == [("system", 0), *weather]
    assert steps("google-adk-2025-08-28.trace.json") == [("system", 0), *weather]
    assert steps("seed_microsoft-agent-2025-10-14.json") == weather
    rows: Outcome = read((samples / "langfuse" / "observations_v2.parquet").read_bytes())
    same: Outcome = read((samples / "langfuse" / "observations_v2.jsonl").read_bytes())
    assert len(rows.fragments) == len(same.fragments) == 19
    others = {fragment.key: fragment for fragment in same.fragments}
    for fragment in rows.fragments:
        other = others[fragment.key]
        assert fragment.trajectory.content_sha256 == other.trajectory.content_sha256
        assert fragment.trajectory.input_tokens == other.trajectory.input_tokens


ODD: list[Any] = [None, True, 0, -1, 2**70, 1.5, "", "x", "[", '"[1]"', [], {}, [[]], {"a": 1}, [None], "\ud83d\0"]


def swapped(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.06:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: swapped(item, rng) for key, item in value.items() if rng.random() > 0.04}
    return [swapped(item, rng) for item in value] if isinstance(value, list) else value


def test_no_value_of_any_kind_stops_the_trace() -> None:
    rng = random.Random("langfuse")
    generation = {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "a", "additional_kwargs": {"tool_calls": [CALL]}}}
    inputs: list[Any] = [
        TOLD,
        {"contents": [{"role": "user", "parts": [{"text": "a"}, {"function_call": {"name": "f", "args": {}}}]}]},
        {"args": ["a"], "kwargs": {"messages": ASKED}},
        {"generations": [[{"message": generation}]]},
        {"candidates": [{"content": {"parts": [{"text": "a"}]}, "finish_reason": "STOP"}]},
        {"object": "response", "output": [CALLED], "instructions": "i"},
        [{"toolCallId": "c", "toolName": "f", "input": "{}"}],
    ]
    for n in range(400):
        whole = {
            "trace": {**HEAD, "scores": [SCORE]},
            "observations": [
                *OBSERVATIONS,
                observation("odd", 9, rng.choice(["GENERATION", "SPAN", "TOOL"]), input=rng.choice(inputs),
                            output=rng.choice(inputs), toolCalls=["{}"], toolDefinitions={"f": "{}"}),
            ],
        }  # fmt: skip
        record = Record(ix=n, offset=0, length=0, value=swapped(whole, rng))
        items = list(Langfuse().read(iter([record]), Source(source_id="s", uri="u")))
        assert items
        for fragment in assemble(item for item in items if isinstance(item, Fragment)):
            complete(fragment)


@pytest.mark.parametrize(
    "counted",
    [
        {"usage": {"promptTokens": 20, "completionTokens": 3, "totalTokens": 23}},
        {"usage": {"input": 20, "output": 3, "total": 23, "unit": "TOKENS"}},
        {"promptTokens": 20, "completionTokens": 3},
        {"inputUsage": 20, "outputUsage": 3, "totalUsage": 23},
    ],
)
def test_usage_in_its_older_words(counted: dict[str, Any]) -> None:
    seen = {"id": "o-1", "traceId": TRACE, "type": "GENERATION", "startTime": "2026-01-02T03:04:05Z", "input": "Hi"}
    t = read(lines({**seen, "output": "Hello", **counted})).only.trajectory
    assert (t.input_tokens, t.output_tokens) == (20, 3)
