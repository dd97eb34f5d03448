"""Feedback files of applications: what they name, what they say, and what is none of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sources import read


def outcomes(*records: Any) -> list[Any]:
    found = read(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    assert found.format == "feedback_jsonl" and found.rejects == [] and found.fragments == []
    return [outcome for attachment in found.attachments for outcome in attachment.outcomes]


@pytest.mark.parametrize(
    ("record", "target"),
    [
        ({"trajectory_id": "trajectory-1"}, ("trajectory", "trajectory-1", None)),
        ({"trace_id": "t-1"}, ("trajectory", "t-1", None)),
        ({"response_id": "chatcmpl-1", "session_id": "s"}, ("step", "chatcmpl-1", "s")),
        ({"message_id": 17}, ("step", "17", None)),
        ({"conversation_id": "c"}, ("session", "c", None)),
        ({"sessionId": "s"}, ("session", None, "s")),
    ],
)
def test_the_target_is_named_by_the_best_of_its_ids(record: dict[str, Any], target: tuple[Any, ...]) -> None:
    (found,) = outcomes({**record, "feedback": {"name": "thumbs", "score": 0, "comment": "wrong total"}})
    assert (found.target_kind, found.native_target_id, found.session_id) == target
    assert (found.trajectory_id, found.name, found.polarity, found.explanation) == (None, "thumbs", -1, "wrong total")


def test_feedback_stands_in_a_field_of_any_shape_or_in_the_record_itself() -> None:
    at = "2026-07-10T12:00:00Z"
    found = outcomes(
        {"trace_id": "a", "feedback": [{"key": "x", "value": True}, 0.9], "timestamp": at, "page": "checkout"},
        {"trace_id": "b", "thumbs": "down", "created_at": at, "source": "expert", "reason": {"code": 7}},
        {"trace_id": "c", "rating": 5},
        {"trace_id": "d", "correction": "Rain"},
    )
    assert [(o.native_target_id, o.name, o.polarity, o.source_kind) for o in found] == [
        ("a", "x", 1, "human_user"), ("a", "feedback", 1, "human_user"), ("b", "feedback", -1, "human_expert"),
        ("c", "feedback", 1, "human_user"), ("d", "feedback", None, "human_user"),
    ]  # fmt: skip
    assert {o.created_at for o in found[:3]} == {datetime(2026, 7, 10, 12, tzinfo=UTC)}
    assert json.loads(found[0].metadata) == {"page": "checkout"}
    assert json.loads(found[2].metadata) == {"reason": {"code": 7}}
    assert len({o.outcome_id for o in found}) == 5


def test_a_csv_of_feedback_is_read_too() -> None:
    found = read(b'trace_id,thumbs,comment\nt-1,down,"wrong,\nvery"\nt-2,up,\n')
    said = [outcome for attachment in found.attachments for outcome in attachment.outcomes]
    assert [(o.native_target_id, o.polarity, o.explanation) for o in said] == [
        ("t-1", -1, "wrong,\nvery"),
        ("t-2", 1, ""),
    ]


@pytest.mark.parametrize(
    "record",
    [
        {"trace_id": "t"},
        {"feedback": {"score": 1}},
        {"trace_id": "t", "feedback": {"score": 1}, "messages": [{"role": "user", "content": "q"}]},
        {"trace_id": "t", "span_id": "s", "name": "x", "attributes": {}, "value": 1},
        {"trace_id": {"a": 1}, "score": 1},
    ],
)
def test_what_names_nothing_or_says_nothing_or_is_more_than_feedback_is_not_taken(record: dict[str, Any]) -> None:
    assert read(json.dumps(record).encode()).format != "feedback_jsonl"


def test_a_line_that_says_nothing_is_refused_by_itself() -> None:
    good = [{"trace_id": str(n), "score": 1} for n in range(9)]
    found = read(b"".join(json.dumps(r).encode() + b"\n" for r in (*good, {"trace_id": "t"})))
    assert len(found.attachments) == 9 and [reject.code for reject in found.rejects] == ["no_feedback"]
