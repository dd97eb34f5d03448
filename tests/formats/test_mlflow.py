"""MLflow traces: schema 3 and 2, tables, assessments."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sources import jsonl, read


def logged(samples: Path) -> list[dict[str, Any]]:
    path = samples / "mlflow" / "mlflow_traces.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_traces_of_the_samples(samples: Path) -> None:
    outcome = read((samples / "mlflow" / "mlflow_traces.jsonl").read_bytes())
    assert (outcome.format, outcome.version, outcome.rejects) == ("mlflow", "3", [])
    long, limited, bad, ok = outcome.fragments
    t = ok.trajectory
    assert (t.native_id, t.session_id, t.user_id, t.tenant) == (
        "tr-aa985f07e9b89a2a4a910b64e0662a6f", "sess-1", "u_42", "acme",
    )  # fmt: skip
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens, t.reasoning_tokens) == (275, 128, 102, 24)
    assert t.trace_id == "aa985f07e9b89a2a4a910b64e0662a6f"
    assert (t.success, t.success_source) == (True, "human_user:user_satisfaction")
    assert str(t.cost_usd) == "0.00009285000000000001"  # as the tool wrote it
    assert [step.role for step in ok.steps] == ["user", "assistant", "tool", "tool", "assistant"]
    assert all(call.span_id and call.paired_by == "id" for call in ok.tool_calls)
    assert long.trajectory.end_reason == "max_tokens"
    assert limited.trajectory.end_reason == "model_error"
    assert (bad.tool_calls[0].args_state, bad.trajectory.error_type) == ("invalid_json", "JSONDecodeError")
    correctness, expected = bad.outcomes
    assert (correctness.value_num, correctness.source_kind, correctness.polarity) == (0.1, "llm_judge", -1)
    assert (expected.correction, expected.polarity, expected.value_type) == ('{"answer":"rain"}', None, "null")


def row(trace: dict[str, Any]) -> dict[str, Any]:
    """As mlflow.search_traces() gives it, its objects as JSON text."""
    info = trace["info"]
    return {
        "trace_id": info["trace_id"],
        "client_request_id": None,
        "state": info["state"],
        "request_time": 1796062721884,
        "execution_duration": info["execution_duration_ms"],
        "request": info.get("request_preview"),
        "response": info.get("response_preview"),
        "trace_metadata": json.dumps(info["trace_metadata"]),
        "tags": json.dumps(info["tags"]),
        "spans": json.dumps(trace["data"]["spans"]),
        "assessments": json.dumps(info.get("assessments", [])),
    }


def test_a_table_gives_the_same_steps_as_json(samples: Path) -> None:
    traces = logged(samples)
    whole = {fragment.key: fragment for fragment in read(jsonl(*traces)).fragments}
    rows = [row(trace) for trace in traces]
    with_trace = [{**row(trace), "trace": json.dumps(trace)} for trace in traces]
    for table in (rows, with_trace):
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(table), buffer)
        outcome = read(buffer.getvalue())
        assert (outcome.format, outcome.rejects, len(outcome.fragments)) == ("mlflow", [], 4)
        for fragment in outcome.fragments:
            same = whole[fragment.key]
            assert (fragment.steps, fragment.tool_calls) == (same.steps, same.tool_calls)
            assert [o.outcome_id for o in fragment.outcomes] == [o.outcome_id for o in same.outcomes]
            assert fragment.trajectory.session_id == same.trajectory.session_id


def test_schema_2_and_spans_that_are_missing() -> None:
    info = {
        "request_id": "0123456789abcdef0123456789abcdef", "experiment_id": "0", "timestamp_ms": 1733000000000,
        "execution_time_ms": 12, "status": "OK", "request_metadata": {"mlflow.trace_schema.version": "2"},
        "tags": [{"key": "mlflow.traceName", "value": "agent"}, {"key": "task_id", "value": "t1"}],
    }  # fmt: skip
    span = {
        "name": "predict", "context": {"span_id": "0xb1", "trace_id": "0xa1"}, "parent_id": None,
        "start_time": 1733000000000000123, "end_time": 1733000000012000000, "status_code": "OK", "status_message": "",
        "attributes": {
            "mlflow.spanType": json.dumps("CHAT_MODEL"),
            "mlflow.spanInputs": json.dumps(json.dumps({"messages": [{"role": "user", "content": "u"}]})),
            "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": "a"}}]}),
        },
        "events": [],
    }  # fmt: skip
    fragment = read(jsonl({"info": info, "data": {"spans": [span]}})).only
    assert [(step.role, step.content) for step in fragment.steps] == [("user", "u"), ("assistant", "a")]
    t = fragment.trajectory
    assert (t.format_version, t.task_id, t.duration_ms, t.agent_name) == ("2", "t1", 12.0, "agent")
    assert t.quality_flags == ("double_encoded",)
    assert fragment.spans[0].start_ns == 1733000000000000123
    bare = {"info": {**info, "status": "ERROR"}, "data": {"request": '{"q": "u"}', "response": None, "spans": []}}
    missing = read(jsonl({**bare, "request": '{"q": "u"}'})).only
    assert missing.steps[0].content == '{"q":"u"}'
    assert missing.trajectory.end_reason == "agent_error"
