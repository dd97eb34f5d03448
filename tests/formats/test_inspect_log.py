"""Inspect logs: archives and documents of every age say the same of a sample."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read

from flywheel.formats.inspect_events import usage_of
from flywheel.records import Fragment

EVAL = {"eval_id": "e" * 22, "run_id": "r", "task": "sums", "model": "openai/gpt-4o", "packages": {"inspect_ai": "1"}}
HEADER = {"version": 2, "status": "success", "eval": EVAL, "plan": {"name": "plan", "config": {"temperature": 0.5}}}


def sample(**more: Any) -> dict[str, Any]:
    ask = {"id": "m1", "role": "user", "content": "1 + 1?", "source": "input"}
    reply = {"id": "m2", "role": "assistant", "content": "2", "source": "generate"}
    return {"id": "a", "epoch": 1, "input": "1 + 1?", "target": "2", "messages": [ask, reply], **more}


def log(*samples: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**HEADER, "samples": list(samples), **more}).encode()


def archived(members: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, value in members.items():
            made.writestr(name, json.dumps(value))
    return file.getvalue()


def test_an_archive_and_a_document_of_one_log_give_the_same_trajectories(samples: Path) -> None:
    folder = samples / "inspect"
    archive = read((folder / "inspect_0.3.285_zstd.eval").read_bytes())
    document = read((folder / "inspect_0.3.285_nan.json").read_bytes())
    assert archive.format == document.format == "inspect_log"

    def said(fragment: Fragment) -> Any:
        t = fragment.trajectory
        return t.trajectory_id, t.content_sha256, t.input_tokens, t.success, t.session_id, t.end_reason

    assert [said(f) for f in archive.fragments] == [said(f) for f in document.fragments]
    assert [f.trajectory.success for f in archive.fragments] == [True, False, False, None]
    assert [f.trajectory.end_reason for f in archive.fragments] == ["completed", "completed", "max_tokens", "env_error"]
    denied = archive.fragments[1].tool_calls[0]
    assert (denied.result_state, denied.is_error, denied.error_type) == ("error", True, "permission")


@pytest.mark.parametrize("first", ["header.json", "samples/a_epoch_1.json"])
def test_the_header_counts_wherever_it_stands(first: str) -> None:
    members = {"samples/a_epoch_1.json": sample(), "header.json": HEADER}
    outcome = read(archived({first: members[first], **members}))
    t = outcome.only.trajectory
    assert (t.task_id, t.model, t.provider, t.format_version) == ("sums/a", "openai/gpt-4o", "openai", "1")
    assert (t.session_id, json.loads(t.sampling or "")) == ("e" * 22, {"temperature": 0.5})


def test_a_run_that_died_is_read_by_its_journal() -> None:
    start = {"version": 2, "eval": EVAL, "plan": {"name": "plan"}}
    gone = {"id": "b", "epoch": 2, "input": "2 + 2?", "target": "4", "scores": {"match": {"value": "I"}}}
    outcome = read(
        archived(
            {
                "_journal/start.json": start,
                "samples/a_epoch_1.json": sample(),
                "_journal/summaries/1.json": [{"id": "a", "epoch": 1}, gone],
            }
        )
    )
    held, lost = (fragment.trajectory for fragment in outcome.fragments)
    assert (held.task_id, held.content_complete) == ("sums/a", True)
    assert (lost.task_id, lost.attempt, lost.success, lost.content_complete) == ("sums/b", 2, False, False)
    assert lost.quality_flags == ("sample_missing",)


def test_usage_adds_what_came_from_caches() -> None:
    usage = usage_of({"input_tokens": 5, "input_tokens_cache_read": 100, "input_tokens_cache_write": 7})
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (112, 100, 7)
    t = read(
        log(sample(model_usage={"m": {"input_tokens": 1, "output_tokens": 2}, "n": {"input_tokens": 3}}))
    ).only.trajectory
    assert (t.input_tokens, t.output_tokens, t.usage_quality) == (4, 2, "total_only")


def test_model_events_give_steps_their_tokens_only_if_all_have_theirs() -> None:
    call = {
        "event": "model",
        "model": "m",
        "timestamp": "2026-01-01T00:00:00Z",
        "output": {
            "choices": [{"message": {"id": "m2", "role": "assistant", "content": "2"}, "stop_reason": "stop"}],
            "usage": {"input_tokens": 9, "input_tokens_cache_read": 1, "output_tokens": 3},
        },
    }
    whole = read(log(sample(events=[call], model_usage={"m": {"input_tokens": 50}}))).only
    assert (whole.trajectory.input_tokens, whole.trajectory.usage_quality) == (10, "per_call")
    assert (whole.steps[1].finish_reason, whole.steps[1].ts_raw) == ("stop", "2026-01-01T00:00:00Z")
    more = sample(events=[call], model_usage={"m": {"input_tokens": 50}})
    more["messages"] = [*more["messages"], {"id": "m3", "role": "assistant", "content": "?", "source": "generate"}]
    part = read(log(more)).only
    assert (part.trajectory.input_tokens, part.trajectory.usage_quality) == (50, "total_only")


@pytest.mark.parametrize(
    ("value", "polarity", "success"),
    [("C", 1, True), ("I", -1, False), ("P", 0, None), ("N", -1, False), (1, 1, True), (0.0, -1, False), (None,) * 3],
)
def test_letters_and_numbers(value: Any, polarity: int | None, success: bool | None) -> None:
    fragment = read(log(sample(scores={"match": {"value": value, "explanation": "why"}}))).only
    (outcome,) = fragment.outcomes
    assert (outcome.polarity, fragment.trajectory.success, outcome.explanation) == (polarity, success, "why")


def test_scores_of_every_type_keep_their_value() -> None:
    scores = {"d": {"value": {"a": 1, "b": "I"}}, "l": {"value": [1, 2]}, "t": {"value": "Paris"}, "b": {"value": True}}
    outcomes = {outcome.name: outcome for outcome in read(log(sample(scores=scores))).only.outcomes}
    assert sorted(outcomes) == ["b", "d", "d/a", "d/b", "l", "t"]
    assert (outcomes["d"].value_type, outcomes["d"].value_raw) == ("json", '{"a":1,"b":"I"}')
    assert (outcomes["t"].value_text, outcomes["t"].polarity) == ("Paris", None)
    assert outcomes["b"].value_bool is True


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("message", "max_turns"), ("token", "max_tokens"), ("time", "timeout"), ("operator", "user_abort")],
)
def test_limits_are_ends(kind: str, reason: str) -> None:
    t = read(log(sample(limit={"type": kind, "limit": 5}))).only.trajectory
    assert (t.end_reason, t.end_reason_raw) == (reason, kind)


def test_attachments_stand_in_messages_again_and_the_rest_is_kept() -> None:
    more = sample(attachments={"h1": "data:image/png;base64,AA", "h2": "for events"})
    more["messages"][0] = {"role": "user", "content": [{"type": "image", "image": "attachment://h1"}]}
    fragment = read(log(more)).only
    assert json.loads(fragment.steps[0].parts or "") == [{"type": "image", "image": "data:image/png;base64,AA"}]
    assert json.loads(fragment.trajectory.extra or "") == {"id": "a", "attachments": {"h2": "for events"}}


def test_reasoning_parts() -> None:
    parts = [{"type": "reasoning", "reasoning": "hm", "signature": "s"}, {"type": "text", "text": "2"}]
    more = sample()
    more["messages"][1]["content"] = parts
    step = read(log(more)).only.steps[1]
    assert (step.content, step.reasoning) == ("2", "hm")
    assert json.loads(step.reasoning_opaque or "") == [{"signature": "s"}]


def test_events_alone_give_a_trajectory_a_span_and_pools_are_looked_up(samples: Path) -> None:
    outcome = read((samples / "inspect" / "events_utility_billing_header.json").read_bytes())
    parent, child = outcome.fragments
    assert child.trajectory.parent_trajectory_id == parent.trajectory.trajectory_id
    pool = [{"role": "user", "content": "go"}, {"role": "user", "content": "not this"}]
    answer = {"choices": [{"message": {"role": "assistant", "content": "ok"}, "stop_reason": "stop"}]}
    event = {"event": "model", "span_id": "s", "input": [], "input_refs": [[0, 1]], "output": answer}
    (made,) = read(jsonl({"events": [event], "message_pool": pool})).fragments
    assert [step.content for step in made.steps] == ["go", "ok"]


def test_logs_without_samples_say_what_they_know_of_the_evaluation(samples: Path) -> None:
    outcome = read((samples / "inspect" / "2025-05-12T20-28-13-04-00_no-samples.json").read_bytes())
    assert outcome.fragments == [] and outcome.rejects == []
    (attachment,) = outcome.attachments
    values = {o.name: o.value_num for o in attachment.outcomes}
    assert values["match/accuracy"] == pytest.approx(2 / 3)
    assert {o.session_id for o in attachment.outcomes} == {"SnKtvCqGnnegLQ7qSBFDzy"}
