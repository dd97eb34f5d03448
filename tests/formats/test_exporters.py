"""What goes out comes in again: over all samples, and case by case for what trainers need."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sources import USER, answers, asks, call, jsonl, read

from flywheel.formats.exporters import EXPORTERS, exported
from flywheel.records import Fragment

MOST = 5  # trajectories of a file; the rest is of the same kind
LARGEST = 700 << 10  # bytes of a file
CONTENT = {  # kinds of loss that the content hash sees
    *(f"step.{name}" for name in ("role", "name", "content", "parts", "reasoning", "refusal")),
    *(f"tool_call.{name}" for name in ("name", "args", "args_raw")),
    "tool_calls",
    "step_order",
}


def changed(losses: Counter[str]) -> bool:
    """Whether messages themselves were lost or changed."""
    return any(kind in CONTENT or kind.startswith("steps.") for kind in losses)


@pytest.fixture(scope="module")
def trajectories(samples: Path) -> list[tuple[str, Fragment]]:
    files = sorted(file for file in samples.rglob("*") if file.is_file() and file.stat().st_size < LARGEST)
    return [(path.name, fragment) for path in files for fragment in read(path.read_bytes()).fragments[:MOST]]


@pytest.mark.parametrize("format_name", sorted(EXPORTERS))
def test_a_copy_has_the_same_content_unless_the_report_says_otherwise(
    trajectories: list[tuple[str, Fragment]], format_name: str
) -> None:
    seen: Counter[str] = Counter()
    for name, fragment in trajectories:
        made = exported(fragment, format_name)
        assert made.copy is not None, name
        same = made.copy.trajectory.content_sha256 == fragment.trajectory.content_sha256
        assert same or changed(made.losses), (name, made.losses)
        assert len(made.copy.steps) == len(fragment.steps) or changed(made.losses), name
        again = exported(made.copy, format_name)
        assert again.line == made.line, name
        assert not again.losses, (name, again.losses)
        if not made.losses:
            assert len(made.copy.tool_calls) == len(fragment.tool_calls)
        seen.update(all=1, lossless=not made.losses, same=same)
    assert seen["all"] > 350
    assert seen["lossless"] > 40
    assert seen["same"] > 0.7 * seen["all"]


def openai(fragment: Fragment) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(exported(fragment, "openai_chat").line)
    return record


def atif(fragment: Fragment) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(exported(fragment, "atif").line)
    return document


FAILED = [
    USER,
    {**asks(call("c1", '{"n": 1.10, "x": [1,2'), call("c2", "")), "weight": 0, "reasoning_content": "hm"},
    answers("c1", "bad JSON"),
    answers("c2"),
    {"role": "assistant", "content": "Sorry.", "weight": 1},
]


def test_openai_lines_keep_what_training_needs() -> None:
    given = {
        "id": "r-1",
        "messages": FAILED,
        "tools": [{"type": "function", "function": {"name": "find_order", "parameters": {}}}],
        "metadata": {"task_id": "t1", "user_id": "u"},
        "feedback": [{"name": "thumbs", "score": "down", "source": {"type": "user", "id": "u"}, "comment": "no"}],
    }
    made = exported(read(jsonl(given)).only, "openai_chat")
    record = json.loads(made.line)
    assert record["messages"] == FAILED
    assert record["tools"] == given["tools"]
    assert record["metadata"] == given["metadata"]
    assert record["feedback"][0]["comment"] == "no"
    assert made.losses == {}
    assert made.copy is not None
    assert (made.copy.trajectory.success, made.copy.trajectory.task_id) == (False, "t1")


def test_what_the_policy_did_not_say_is_not_trained_on() -> None:
    row = {"example_id": 1, "prompt": [USER, {"role": "assistant", "content": "shown"}], "metrics": {}}
    fragment = read(jsonl({**row, "completion": [{"role": "assistant", "content": "said"}], "reward": 1.0})).only
    assert [message.get("weight") for message in openai(fragment)["messages"]] == [None, 0, None]


def test_a_verdict_that_no_outcome_gives_is_said() -> None:
    row = {"example_id": 1, "prompt": [USER], "completion": [], "reward": 1.0, "metrics": {"errors": 0.0}}
    made = exported(read(jsonl(row)).only, "openai_chat")
    assert made.copy is not None
    assert made.copy.trajectory.success is True
    numbers = {item["name"]: item.get("polarity", "clear") for item in json.loads(made.line)["feedback"]}
    assert numbers == {"reward": "clear", "metric:errors": None}


def test_records_of_one_session_stay_apart_when_they_are_read_again() -> None:
    sample = {"epoch": 1, "input": "?", "target": "!", "messages": [{"role": "user", "content": "same"}]}
    header = {"version": 2, "status": "success", "eval": {"eval_id": "e" * 22, "task": "t"}, "plan": {}}
    log = json.dumps({**header, "samples": [{"id": "a", **sample}, {"id": "b", **sample}]}).encode()
    lines = "".join(exported(fragment, "openai_chat").line + "\n" for fragment in read(log).fragments)
    again = read(lines.encode())
    assert [f.trajectory.task_id for f in again.fragments] == ["t/a", "t/b"]
    assert {f.trajectory.session_id for f in again.fragments} == {"e" * 22}


def test_branches_are_reported_and_the_last_path_is_written() -> None:
    nodes = [
        {"parent": None, "message": USER},
        {"parent": 0, "message": {"role": "assistant", "content": "first"}, "sampled": True},
        {"parent": 0, "message": {"role": "assistant", "content": "second"}, "sampled": True},
    ]
    fragment = read(jsonl({"version": 1, "id": "t" * 32, "nodes": nodes, "calls": []})).only
    for format_name in EXPORTERS:
        made = exported(fragment, format_name)
        assert made.copy is not None
        assert [step.content for step in made.copy.steps] == [USER["content"], "second"]
        assert made.losses["steps.assistant"] == 1


def test_flat_tools_are_wrapped() -> None:
    fragment = read(jsonl({"id": "x", "messages": [USER], "tools": [{"name": "f", "input_schema": {"a": 1}}]})).only
    assert openai(fragment)["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}]


def test_atif_documents_are_what_the_schema_asks_for() -> None:
    fragment = read(jsonl({"id": "r-1", "messages": FAILED})).only
    made = exported(fragment, "atif")
    document = json.loads(made.line)
    assert document["schema_version"] == "ATIF-v1.8"
    assert [step["step_id"] for step in document["steps"]] == [1, 2, 3]
    assert [step["source"] for step in document["steps"]] == ["user", "agent", "agent"]
    assert all(isinstance(step["message"], (str, list)) for step in document["steps"])
    calls = document["steps"][1]["tool_calls"]
    assert [made["arguments"] for made in calls] == [{}, {}]
    assert calls[0]["extra"] == {"arguments_raw": '{"n": 1.10, "x": [1,2'}
    results = document["steps"][1]["observation"]["results"]
    assert [result["source_call_id"] for result in results] == ["c1", "c2"]
    assert document["final_metrics"]["total_steps"] == 3
    assert made.losses == {}
    assert made.copy is not None
    assert [c.args_raw for c in made.copy.tool_calls] == ['{"n": 1.10, "x": [1,2', ""]
    assert [step.content for step in made.copy.steps] == [step.content for step in fragment.steps]


def test_atif_counts_what_it_has_no_place_for() -> None:
    given = {"id": "r-1", "messages": [USER], "metadata": {"task_id": "t"}, "feedback": {"thumbs": "down"}}
    losses = exported(read(jsonl(given)).only, "atif").losses
    assert losses["outcomes"] == losses["trajectory.success"] == losses["trajectory.task_id"] == 1


def test_images_become_atifs_and_a_foreign_part_leaves_its_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
    odd = {"type": "file", "file": {"file_id": "f"}}
    text = {"type": "text", "text": "Look."}
    messages = [{"role": "user", "content": [text, image]}, {"role": "user", "content": [text, odd]}]
    steps = atif(read(jsonl({"messages": messages})).only)["steps"]
    source = {"media_type": "image/png", "path": "https://x.org/a.png"}
    assert steps[0]["message"] == [text, {"type": "image", "source": source}]
    assert steps[1]["message"] == "Look."
