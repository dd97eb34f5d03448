"""LangSmith: runs in any order and container, halves that come apart, feedback, and values of any kind."""

from __future__ import annotations

import io
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sources import read

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.langsmith import LangSmith
from flywheel.formats.reader import Record, Source
from flywheel.records import Fragment

ROOT, FIRST, TOOL, SECOND = (f"{n:08d}-aaaa-bbbb-cccc-000000000000" for n in range(4))


def message(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": kwargs}


CALL = {"name": "get_weather", "args": {"city": "Paris"}, "id": "call_1", "type": "tool_call"}
ASKED = [message("SystemMessage", content="Be brief."), message("HumanMessage", content="Weather in Paris?")]
CALLED = message(
    "AIMessage", content="", tool_calls=[CALL],
    usage_metadata={"input_tokens": 10, "output_tokens": 4, "total_tokens": 14,
                    "input_token_details": {"cache_read": 6}},
)  # fmt: skip
RESULT = message("ToolMessage", content="Sunny", tool_call_id="call_1")
ANSWER = message("AIMessage", content="It is sunny.")


def run(
    id_: str, at: int, kind: str, inputs: Any, outputs: Any, parent: str | None = ROOT, **more: Any
) -> dict[str, Any]:
    stamp = f"20260710T1200{at:02}000000Z"
    dotted = stamp.replace(f"{at:02}0", "000", 1) + ROOT if parent else stamp + ROOT
    return {
        "id": id_, "trace_id": ROOT, "parent_run_id": parent, "run_type": kind, "name": f"{kind} {at}",
        "start_time": f"2026-07-10T12:00:{at:02}Z", "end_time": f"2026-07-10T12:00:{at + 1:02}Z",
        "dotted_order": f"{dotted}.{stamp}{id_}" if parent else dotted, "session_id": "project-1",
        "inputs": inputs, "outputs": outputs, **more,
    }  # fmt: skip


META = {"metadata": {"ls_model_name": "gpt-4o", "ls_provider": "openai", "thread_id": "thread-9", "task_id": "task-7"}}
RUNS = [
    run(SECOND, 5, "llm", {"messages": [[*ASKED, CALLED, RESULT]]}, {"generations": [[{"message": ANSWER}]]},
        extra=META, prompt_tokens=30, completion_tokens=5, total_cost="0.002"),
    run(TOOL, 3, "tool", {"input": "{'city': 'Paris'}"}, {"output": RESULT}, name="get_weather"),
    run(FIRST, 1, "llm", {"messages": [ASKED]}, {"generations": [[{"message": CALLED}]]}, extra=META,
        total_cost="0.001"),
    run(ROOT, 0, "chain", {"question": "Weather in Paris?"}, {"answer": "It is sunny."}, None, name="weather agent",
        extra=META, prompt_tokens=40, completion_tokens=9, tags=["prod"]),
]  # fmt: skip
FEEDBACK = {
    "id": "feedback-1", "key": "user_score", "run_id": ROOT, "score": 0, "value": None, "comment": "wrong city",
    "correction": {"answer": "Rain"}, "feedback_source": {"type": "api"}, "created_at": "2026-07-11T08:00:00Z",
}  # fmt: skip


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def nested() -> dict[str, Any]:
    return {**RUNS[3], "child_runs": [{k: v for k, v in run.items() if k != "parent_run_id"} for run in RUNS[:3]]}


def as_parquet() -> bytes:
    texts = {"inputs", "outputs", "extra", "tags"}
    keys = list(dict.fromkeys(key for item in RUNS for key in item))
    columns = {
        key: [json.dumps(item.get(key)) if key in texts and key in item else item.get(key) for item in RUNS]
        for key in keys
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def sent() -> list[dict[str, Any]]:
    """As an SDK sends them: what begins a run, and later what completes it."""
    begun = [{k: v for k, v in item.items() if k not in ("outputs", "end_time")} for item in RUNS]
    done = [{k: item[k] for k in ("dotted_order", "trace_id", "outputs", "end_time")} for item in RUNS]
    return [{"post": begun, "patch": done[:1]}, {"patch": done[1:]}]


FORMS = {
    "lines": lambda: lines(*RUNS),
    "array": lambda: json.dumps(RUNS).encode(),
    "page": lambda: json.dumps({"runs": RUNS, "cursors": {}}).encode(),
    "nested": lambda: json.dumps(nested()).encode(),
    "parquet": as_parquet,
    "sdk": lambda: lines(*sent()),
    "sdk, later half first": lambda: lines(*sent()[::-1]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_trace_gives_the_same_messages(form: str) -> None:
    outcome = read(FORMS[form]())
    assert outcome.format == "langsmith" and outcome.rejects == []
    fragment = outcome.only
    assert [(s.role, s.content, s.sampled, s.span_id) for s in fragment.steps] == [
        ("system", "Be brief.", None, None),
        ("user", "Weather in Paris?", None, None),
        ("assistant", "", True, FIRST),
        ("tool", "Sunny", None, TOOL),
        ("assistant", "It is sunny.", True, SECOND),
    ]
    (call,) = fragment.tool_calls
    assert (call.name, json.loads(call.args or ""), call.result_step_ix, call.span_id) == (
        "get_weather", {"city": "Paris"}, 3, TOOL,
    )  # fmt: skip
    head = fragment.trajectory
    assert (head.native_id, head.agent_name, head.model, head.provider) == (ROOT, "weather agent", "gpt-4o", "openai")
    assert (head.session_id, head.conversation_id, head.task_id, head.tags) == (
        "thread-9",
        "thread-9",
        "task-7",
        ("prod",),
    )
    assert (head.input_tokens, head.cache_read_tokens, head.output_tokens) == (40, 6, 9)  # not those of the root again
    assert head.cost_usd == Decimal("0.003")
    assert head.success is None and head.end_reason == "completed"
    assert sorted(row.span_id or "" for row in fragment.spans) == [ROOT, FIRST, TOOL, SECOND]


def test_feedback_in_a_run_decides_and_stands_on_its_step() -> None:
    judged = [
        {**RUNS[0], "feedback_stats": {"toxicity": {"n": 1, "avg": 0}, "thumbs": {"n": 2, "avg": 0.0}}},
        *RUNS[1:],
    ]
    fragment = read(lines(*judged)).only
    by_name = {outcome.name: outcome for outcome in fragment.outcomes}
    assert (by_name["thumbs"].polarity, by_name["thumbs"].target_kind, by_name["thumbs"].step_ix) == (-1, "step", 4)
    assert by_name["toxicity"].polarity is None
    assert (fragment.trajectory.success, fragment.trajectory.success_source) == (False, "human_user:thumbs")


def test_feedback_objects_are_attachments_that_name_their_run() -> None:
    outcome = read(lines(FEEDBACK, {**FEEDBACK, "id": "feedback-2", "score": None, "value": "good", "run_id": FIRST}))
    assert outcome.format == "langsmith" and not outcome.fragments and not outcome.rejects
    first, second = (outcome for item in outcome.attachments for outcome in item.outcomes)
    assert (first.trajectory_id, first.native_target_id, first.polarity, first.source_kind) == (
        None,
        ROOT,
        -1,
        "human_user",
    )
    assert (first.explanation, json.loads(first.correction or "")) == ("wrong city", {"answer": "Rain"})
    assert (second.native_target_id, second.polarity, second.value_text) == (FIRST, 1, "good")


def test_an_error_is_its_run_s_with_its_type() -> None:
    error = "ToolException('no such city')Traceback (most recent call last): ..."
    failed = {**RUNS[1], "error": error, "outputs": None}
    fragment = read(lines(RUNS[0], failed, *RUNS[2:])).only
    (call,) = fragment.tool_calls
    assert (call.is_error, call.error_type, call.result_state) == (True, "ToolException", "error")
    assert fragment.steps[3].error_message == error
    died = {**RUNS[3], "error": "TimeoutError('deadline')", "outputs": None}
    head = read(lines(*RUNS[:3], died)).only.trajectory
    assert (head.error_type, head.end_reason) == ("TimeoutError", "timeout")


def test_the_samples_hold_their_conversations(samples: Path) -> None:
    for name in ("letta_runs_langchain_out_of_order.jsonl", "letta_runs_vercel_noisy.jsonl"):
        outcome = read((samples / "langsmith" / name).read_bytes())
        roles = [step.role for step in outcome.only.steps if step.role != "system"]
        assert roles == ["user", "assistant", "tool", "assistant"], name
        assert [reject.code for reject in outcome.rejects] == ["invalid_json"] * ("noisy" in name)
    for path in sorted((samples / "langsmith").glob("*wrap_openai*.json")):
        user, assistant = read(path.read_bytes()).only.steps
        assert (user.role, assistant.role, assistant.sampled) == ("user", "assistant", True)
        assert assistant.llm_call_id and assistant.llm_call_id.startswith("chatcmpl-")
        assert (assistant.input_tokens is None) == ("no_usage" in path.name)


ODD: list[Any] = [None, True, 0, -1, 2**70, 1.5, "", "x", "[", [], {}, [[]], {"a": 1}, [None], "\ud83d\0"]


def swapped(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.06:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: swapped(item, rng) for key, item in value.items() if rng.random() > 0.04}
    return [swapped(item, rng) for item in value] if isinstance(value, list) else value


def test_no_value_of_any_kind_stops_the_trace() -> None:
    rng = random.Random("langsmith")
    full: list[Any] = [*RUNS, nested(), *sent(), FEEDBACK, {"runs": RUNS}, {**RUNS[0], "feedback": [FEEDBACK]}]
    for _ in range(1500):
        values = [swapped(rng.choice(full), rng) for _ in range(3)]
        records = [Record(ix=n, offset=0, length=0, value=value) for n, value in enumerate(values)]
        items = list(LangSmith().read(iter(records), Source(source_id="s", uri="u")))
        assert {item.record_ix for item in items} == {0, 1, 2}
        for fragment in assemble(item for item in items if isinstance(item, Fragment)):
            complete(fragment)
