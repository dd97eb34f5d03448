"""Corpora of agent trajectories: tables whose structs are full of nulls, JSON in text, verdicts, annotations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import USER, answers, asks, call, jsonl, read

from flywheel.records import Fragment


def parquet(*rows: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file.getvalue()


def swe(n: int = 0, **more: Any) -> dict[str, Any]:
    messages = [USER, asks(call("c", '{"path": "x"}')), answers("c", "ok")]
    return {"instance_id": f"repo__{n}", "resolved": True, "messages": json.dumps(messages), "patch": "diff", **more}


def one(data: bytes) -> Fragment:
    outcome = read(data)
    assert (outcome.format, outcome.rejects) == ("hf_corpora", [])
    return outcome.only


@pytest.mark.parametrize("pack", [jsonl, parquet])
def test_messages_that_are_json_text(pack: Any) -> None:
    whole = one(pack(swe(traj_id="repo__0.run7-unique", model="m")))
    assert [s.role for s in whole.steps] == ["user", "assistant", "tool"]
    assert whole.tool_calls[0].args_raw == '{"path": "x"}'
    t = whole.trajectory
    assert (t.native_id, t.task_id, t.model) == ("repo__0.run7-unique", "repo__0", "m")
    assert (t.success, t.success_source) == (True, "verifier:resolved")
    assert json.loads(t.extra or "") == {"patch": "diff"}


def test_nulls_that_parquet_added_are_dropped_and_arguments_say_so() -> None:
    """bugs 4 and 9: rows with other tools give every struct all members."""

    def calls(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}],
        }

    rows = [
        swe(0, messages=[calls("read", {"path": "x"}), {"role": "tool", "content": "r", "tool_call_id": "c"}]),
        swe(
            1, messages=[calls("run", {"command": "ls", "timeout": 5}), {"role": "user", "content": "q", "mood": "ok"}]
        ),
    ]
    outcome = read(parquet(*rows))
    first, second = outcome.fragments
    assert [json.loads(f.tool_calls[0].args or "") for f in (first, second)] == [
        {"path": "x"},
        {"command": "ls", "timeout": 5},
    ]
    assert {f.tool_calls[0].args_state for f in (first, second)} == {"lossy_reconstructed"}
    assert "lossy_reconstructed" in (first.trajectory.quality_flags or ())
    assert [s.extra for s in first.steps] == [None, None]
    assert json.loads(second.steps[1].extra or "") == {"mood": "ok"}
    assert first.steps[0].content_state == "null", "a content of null says something"
    # of JSON lines nothing is lost, nulls included
    kept = read(jsonl(swe(0, messages=[calls("read", {"path": None})]))).only
    assert (kept.tool_calls[0].args, kept.tool_calls[0].args_state) == ('{"path":null}', "ok")


def test_tools_of_a_table_lose_the_members_they_never_had() -> None:
    def tool(name: str, **properties: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}

    row = swe(0, messages=[USER], tools=[tool("f", a={"type": "string"}), tool("g", b={"type": "integer"})])
    tools = json.loads(one(parquet(row)).trajectory.tools or "")
    assert [t["function"]["parameters"]["properties"] for t in tools] == [
        {"a": {"type": "string"}},
        {"b": {"type": "integer"}},
    ]


def test_chats_in_a_table_are_read_without_any_id() -> None:
    row = {"prompt": "q", "messages": [USER, {"role": "assistant", "content": "a", "name": "bot"}]}
    whole = one(parquet(row))
    assert [(s.content, s.extra) for s in whole.steps] == [(USER["content"], None), ("a", None)]
    assert read(jsonl(row)).format == "openai_chat", "JSON lines have no nulls that nobody wrote"


@pytest.mark.parametrize(("resolved", "success"), [(1, True), (0, False), (None, None), (False, False), ("yes", None)])
def test_verdicts(resolved: Any, success: bool | None) -> None:
    whole = one(jsonl(swe(resolved=resolved)))
    assert whole.trajectory.success is success
    assert [o.value_bool for o in whole.outcomes] == ([] if success is None else [success])
    if resolved == "yes":
        assert json.loads(whole.trajectory.extra or "")["resolved"] == "yes"


def test_nebius() -> None:
    def message(role: str, text: str | None, mask: bool, **more: Any) -> dict[str, Any]:
        return {"role": role, "text": text, "mask": mask, "system_prompt": None, "cutoff_date": None, **more}

    row = {
        "instance_id": "repo__1", "model_name": "m", "target": False, "exit_status": "submitted (exit_context)",
        "generated_patch": "", "eval_logs": "FAILED",
        "trajectory": [
            message("system", None, False, system_prompt="You are", cutoff_date="01.01.2023"),
            message("user", "Fix it", False),
            message("ai", "open x", True),
        ],
    }  # fmt: skip
    whole = one(parquet(row))
    assert [(s.role, s.content, s.trainable) for s in whole.steps] == [
        ("system", "You are", False),
        ("user", "Fix it", False),
        ("assistant", "open x", True),
    ]
    assert json.loads(whole.steps[0].extra or "") == {"cutoff_date": "01.01.2023"}
    t = whole.trajectory
    assert (t.success, t.success_source, t.end_reason) == (False, "verifier:target", "completed")
    # the same instance tried twice is two trajectories, the same row twice is one
    twice = read(parquet(row, {**row, "trajectory": row["trajectory"][:2]}, row))
    assert len(twice.fragments) == 2


def test_a_large_table_is_read_row_by_row() -> None:
    from flywheel.formats.containers import records_of
    from flywheel.formats.hf_corpora import HFCorpora
    from flywheel.formats.reader import Record, Source

    data = parquet(*(swe(n) for n in range(300)))
    asked = 0

    def rows() -> Any:
        nonlocal asked
        for item in records_of(lambda: iter((data,)), "parquet", "record"):
            asked += 1
            assert isinstance(item, Record)
            yield item

    items = HFCorpora().read(rows(), Source(source_id="s", uri="u"))
    next(items)
    assert asked == 1


def test_rows_that_are_none() -> None:
    outcome = read(jsonl(swe(), {"instance_id": "x", "messages": "no JSON"}, 7))
    assert [reject.code for reject in outcome.rejects] == ["not_hf_corpora", "not_hf_corpora"]


# --- Annotated traces ----------------------------------------------------------------------------------------


def test_failure_modes_of_mast() -> None:
    row = {
        "mas_name": "AG2", "llm_name": "m", "benchmark_name": "GSM", "trace_id": 3,
        "trace": {"key": "k", "index": 0, "trajectory": "log of the system"},
        "mast_annotation": {"1.1": 0, "1.3": 1, "3.3": None},
    }  # fmt: skip
    whole = read(jsonl(row)).only
    assert [(s.role, s.content) for s in whole.steps] == [("event", "log of the system")]
    assert {o.name: (o.value_num, o.polarity, o.value_type) for o in whole.outcomes} == {
        "mast/1.1": (0.0, 0, "number"),
        "mast/1.3": (1.0, -1, "number"),
        "mast/3.3": (None, None, "null"),
    }
    assert whole.outcomes[1].explanation == "step repetition"
    assert whole.trajectory.success is None, "a failure mode is no verdict on the task"
    human = {**row, "annotations": [{"failure mode": "1.1 Disobey", "annotator_1": True, "annotator_2": False}]}
    del human["mast_annotation"]
    assert [(o.name, o.source_id, o.value_bool, o.polarity) for o in read(jsonl(human)).only.outcomes] == [
        ("mast/1.1", "annotator_1", True, -1),
        ("mast/1.1", "annotator_2", False, 0),
    ]


def test_errors_of_trail_are_about_spans() -> None:
    def span(span_id: str, parent: str | None, *children: Any, **attributes: Any) -> dict[str, Any]:
        return {
            "span_id": span_id, "parent_span_id": parent, "trace_id": "ab" * 16, "span_name": "s",
            "span_kind": "Internal",
            "timestamp": "2025-01-01T12:00:00Z", "duration": "PT1M1.5S", "status_code": "Ok",
            "span_attributes": attributes, "child_spans": list(children),
        }  # fmt: skip

    llm = {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q", "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "a",
    }  # fmt: skip
    trace = {"trace_id": "ab" * 16, "spans": [span("1" * 16, None, span("2" * 16, "1" * 16, **llm))]}
    errors = [{"category": "Loop", "location": "2" * 16, "evidence": "e", "description": "d", "impact": "HIGH"}] * 2
    labels = {"errors": errors, "scores": [{"reliability_score": 1, "reliability_reasoning": "r", "overall": 2.5}]}
    outcome = read(jsonl({"trace": json.dumps(trace), "labels": json.dumps(labels)}))
    assert outcome.format == "trail"
    whole = outcome.only
    assert [(s.role, s.content) for s in whole.steps] == [("user", "q"), ("assistant", "a")]
    parent, child = whole.spans
    assert (child.parent_span_id, (parent.end_ns or 0) - (parent.start_ns or 0)) == (parent.span_id, 61_500_000_000)
    (attached,) = outcome.attachments
    assert [(o.name, o.native_target_id, o.polarity, o.explanation) for o in attached.outcomes] == [
        ("trail/error", "2" * 16, -1, "d"),
        ("trail/error", "2" * 16, -1, "d"),
        ("trail/reliability_score", "ab" * 16, None, "r"),
        ("trail/overall", "ab" * 16, None, None),
    ]
    assert len({o.outcome_id for o in attached.outcomes}) == 4
    assert whole.trajectory.success is None, "an error in a span is no verdict on the task"


def test_every_row_of_the_samples(samples: Path) -> None:
    for path in sorted((samples / "hf_parquet").glob("swe*.parquet")):
        rows = pq.read_table(path).to_pylist()
        outcome = read(path.read_bytes())
        assert (outcome.format, len(outcome.fragments)) == ("hf_corpora", len(rows)), path.name
        for fragment, row in zip(outcome.fragments, rows, strict=True):
            messages = row.get("messages", row.get("trajectory"))
            texts = [m["content"] if "content" in m else m["text"] or m["system_prompt"] for m in messages]
            assert [step.content for step in fragment.steps] == texts
            assert fragment.trajectory.success is row.get("resolved", row.get("target"))
