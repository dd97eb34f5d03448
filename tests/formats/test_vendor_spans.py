"""Vendors' attributes on spans, and that no mutation of a span makes the finishing of a trace raise."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read
from test_otlp import attributes
from test_samples import check_rows, swapped

from flywheel.formats.assemble import assemble
from flywheel.formats.mlflow import MLflow
from flywheel.formats.otlp import Otlp
from flywheel.formats.reader import Record, Source
from flywheel.records import Fragment


def traced(name: str, values: dict[str, Any]) -> Fragment:
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": name,
        "startTimeUnixNano": "1796062483132860919",
        "endTimeUnixNano": "1796062484132860919",
        "attributes": attributes(values),
    }
    return read(jsonl({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})).only


def test_langfuse() -> None:
    fragment = traced(
        "generation",
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": json.dumps([{"role": "user", "content": "u"}]),
            "langfuse.observation.output": json.dumps({"role": "assistant", "content": "a"}),
            "langfuse.observation.usage_details": json.dumps({"input": 10, "input_cached_tokens": 5, "output": 3}),
            "langfuse.session.id": "s1",
            "langfuse.user.id": "u1",
            "langfuse.trace.metadata.task_id": "t1",
            "langfuse.trace.tags": ["x"],
        },
    )
    assert [(step.role, step.content, step.sampled) for step in fragment.steps] == [
        ("user", "u", None),
        ("assistant", "a", True),
    ]
    t = fragment.trajectory
    assert (t.session_id, t.user_id, t.task_id, t.tags) == ("s1", "u1", "t1", ("x",))
    assert (t.input_tokens, t.cache_read_tokens, t.output_tokens) == (15, 5, 3)


def test_vercel() -> None:
    fragment = traced(
        "ai.generateText.doGenerate",
        {
            "ai.operationId": "ai.generateText.doGenerate",
            "ai.prompt.messages": json.dumps(
                [
                    {"role": "user", "content": [{"type": "text", "text": "u"}]},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool-call", "toolCallId": "c0", "toolName": "f", "args": {}}],
                    },
                    {
                        "role": "tool",
                        "content": [{"type": "tool-result", "toolCallId": "c0", "toolName": "f", "result": 1}],
                    },
                ]
            ),
            "ai.response.toolCalls": json.dumps([{"toolCallId": "c1", "toolName": "f", "args": '{"n": 1'}]),
            "ai.usage.promptTokens": 7,
            "ai.telemetry.metadata.userId": "u1",
        },
    )
    assert [step.role for step in fragment.steps] == ["user", "assistant", "tool", "assistant"]
    assert [(c.call_id, c.args_state, c.result_state) for c in fragment.tool_calls] == [
        ("c0", "ok", "ok"),
        ("c1", "invalid_json", "missing"),
    ]
    assert (fragment.trajectory.input_tokens, fragment.trajectory.user_id) == (7, "u1")


def test_langsmith_and_langchain_messages() -> None:
    human = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "HumanMessage"],
        "kwargs": {"content": "u", "type": "human"},
    }
    said = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {
        "content": "", "tool_calls": [{"name": "f", "args": {"n": 1}, "id": "c1"}]}}  # fmt: skip
    fragment = traced(
        "ChatOpenAI",
        {
            "langsmith.span.kind": "llm",
            "gen_ai.operation.name": "chat",
            "gen_ai.prompt": json.dumps({"messages": [[human]]}),
            "gen_ai.completion": json.dumps({"generations": [[{"text": "", "message": said}]]}),
            "langsmith.metadata.thread_id": "th1",
        },
    )
    assert [(step.role, step.content) for step in fragment.steps] == [("user", "u"), ("assistant", "")]
    assert fragment.tool_calls[0].args == '{"n":1}'
    assert fragment.trajectory.session_id == "th1"


@pytest.mark.parametrize("reader", [Otlp(), MLflow()], ids=["otlp", "mlflow"])
def test_no_span_makes_a_trace_raise(samples: Path, reader: Any) -> None:
    names = {"otlp": "otlp/traceloop_openai_0.40.14_traces.otlp.jsonl", "mlflow": "mlflow/mlflow_traces.jsonl"}
    text = (samples / names[reader.name]).read_text(encoding="utf-8")
    values = [json.loads(line) for line in text.splitlines()]
    rng = random.Random(f"spans {reader.name}")
    for _ in range(60):
        records = [Record(ix=n, offset=0, length=9, value=swapped(value, rng)) for n, value in enumerate(values)]
        items = list(reader.read(iter(records), Source(source_id="s", uri="u")))
        assert {item.record_ix for item in items} == set(range(len(records)))
        for fragment in assemble(item for item in items if isinstance(item, Fragment)):
            check_rows(fragment)
