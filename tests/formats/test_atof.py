"""NeMo's event streams, and what NeMo itself makes of them: the ATIF beside each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read


def event(category: str, edge: str, uuid: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "scope",
        "scope_category": edge,
        "atof_version": "0.1",
        "category": category,
        "uuid": uuid,
        "parent_uuid": "agent-1",
        "timestamp": "2026-01-03T00:00:01Z",
        "name": category,
        **more,
    }


START = event("agent", "start", "agent-1", parent_uuid=None, name="helper")
END = event("agent", "end", "agent-1", parent_uuid=None, name="helper")
ASK = {"role": "user", "content": "Which?"}
SAYS = {
    "id": "chatcmpl-1",
    "choices": [{"message": {"role": "assistant", "content": "This."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}


@pytest.mark.parametrize("stem", ["nemo_exmp03", "nemo_exmp04", "nemo_exmp05"])
def test_a_stream_says_what_its_atif_says(samples: Path, stem: str) -> None:
    stream = read((samples / "atif" / f"{stem}_atof.jsonl").read_bytes())
    document = read((samples / "atif" / f"{stem}_atif.json").read_bytes())
    assert (stream.format, stream.rejects) == ("atof", [])

    def said(outcome: Any) -> Any:
        steps = [s for s in outcome.only.steps if s.role not in ("event", "system")]
        calls = [(c.name, c.call_id, json.loads(c.args), c.result_text) for c in outcome.only.tool_calls]
        return [(s.role, s.content) for s in steps], [(name, args, text) for name, _, args, text in calls]

    assert said(stream) == said(document)
    assert stream.only.trajectory.end_reason == "completed"


def test_histories_are_told_once_and_answers_have_their_numbers() -> None:
    again = [ASK, {"role": "assistant", "content": "This."}, {"role": "user", "content": "And?"}]
    fragment = read(
        jsonl(
            START,
            event("llm", "start", "l1", data={"messages": [ASK]}),
            event("llm", "end", "l1", data=SAYS, category_profile={"model_name": "m"}),
            event("llm", "start", "l2", data={"messages": again}),
            event("llm", "end", "l2", data=SAYS),
            END,
        )
    ).only
    assert [step.content for step in fragment.steps] == ["Which?", "This.", "And?", "This."]
    answer = fragment.steps[1]
    assert (answer.sampled, answer.model, answer.llm_call_id, answer.input_tokens, answer.finish_reason) == (
        True,
        "m",
        "chatcmpl-1",
        5,
        "stop",
    )
    assert fragment.trajectory.agent_name == "helper"


def test_a_tool_that_nobody_asked_for_and_a_subagent_and_an_open_end() -> None:
    fragments = read(
        jsonl(
            START,
            event("tool", "start", "t1", name="look", data={"at": 1}, category_profile={"tool_call_id": "c1"}),
            event("tool", "end", "t1", name="look", data={"result": "seen"}, category_profile={"tool_call_id": "c1"}),
            event("agent", "start", "agent-2", name="child"),
            event("llm", "start", "l1", data={"messages": [ASK]}, parent_uuid="agent-2"),
            event("agent", "end", "agent-2", name="child"),
        )
    ).fragments
    child, parent = fragments
    assert child.trajectory.parent_trajectory_id == parent.key
    assert (child.trajectory.quality_flags, parent.trajectory.quality_flags) == (None, ("unfinished",))
    (made,) = parent.tool_calls
    assert (made.name, made.call_id, made.args, made.result_text) == ("look", "c1", '{"at":1}', "seen")
    assert parent.steps[0].sampled is False


def test_marks_are_events_and_the_stream_is_kept() -> None:
    mark = {**event("guardrail", "start", "g1", data={"passed": True}), "kind": "mark"}
    fragment = read(jsonl(START, mark, END)).only
    assert [(step.role, step.content) for step in fragment.steps] == [("event", '{"passed":true}')]
    assert [e["uuid"] for e in json.loads(fragment.trajectory.extra or "")["events"]] == ["agent-1", "g1", "agent-1"]
