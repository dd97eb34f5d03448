"""Feedback of any shape to outcomes; a polarity only where it is clear."""

from __future__ import annotations

from typing import Any

import pytest

from flywheel.formats.feedback import headline, polarity_of, read_feedback
from flywheel.formats.parse import NumberText


@pytest.mark.parametrize(
    ("value", "polarity"),
    [
        (True, 1), (False, -1), ("up", 1), ("Thumbs down", -1), ("👎", -1), ("thumbs-up", 1), ("meh", None), (1, 1),
        (0, -1), (0.5, 0), (0.49, -1), (1.0, 1), (-1, -1), (5, 1), (3, 0), (2, -1), (4.5, None), (87, None),
        (None, None), ([], None), (NumberText("1.00"), 1), (NumberText("NaN"), None), (NumberText("1e400"), None),
    ],
)  # fmt: skip
def test_polarity(value: Any, polarity: int | None) -> None:
    assert polarity_of(value) == polarity


def test_one_star_is_bad_though_a_score_of_one_is_good() -> None:
    ((rating,), (score,)) = (read_feedback({key: 1}, "t") for key in ("rating", "score"))
    assert (rating.polarity, score.polarity) == (-1, 1)


def test_values_go_to_the_column_of_their_type_and_keep_their_text() -> None:
    number, boolean, text, other, odd, nothing = read_feedback(
        [{"score": 0.25}, {"value": True}, {"thumbs": "up"}, {"value": {"a": 1}}, NumberText("NaN"), {"comment": "x"}],
        "t",
    )
    assert (number.value_type, number.value_num, number.value_raw) == ("number", 0.25, "0.25")
    assert (boolean.value_type, boolean.value_bool, boolean.value_num) == ("boolean", True, None)
    assert (text.value_type, text.value_text) == ("text", "up")
    assert (other.value_type, other.value_raw) == ("json", '{"a":1}')
    assert (odd.value_type, odd.value_num, odd.value_raw) == ("number", None, '"NaN"')
    assert (nothing.value_type, nothing.explanation, nothing.polarity) == ("null", "x", None)


def test_names_sources_corrections_and_the_rest() -> None:
    plain, judged = read_feedback(
        [
            {"key": "csat", "score": 1},
            {
                "name": "correct",
                "value": False,
                "source": {"type": "expert", "id": "ann-7"},
                "correction": {"order": "A-1"},
                "created_at": "2026-01-05T00:00:01Z",
                "extra_key": 3,
            },
        ],
        "t",
    )
    assert (plain.name, plain.source_kind, plain.source_id) == ("csat", "human_user", "user")
    assert (judged.name, judged.source_kind, judged.source_id) == ("correct", "human_expert", "ann-7")
    assert (judged.correction, judged.metadata) == ('{"order":"A-1"}', '{"extra_key":3}')
    assert judged.created_at is not None
    assert read_feedback({"score": 1, "source": "our-cron-job"}, "t")[0].source_kind == "system"


def test_a_bad_outcome_outweighs_good_ones_and_nothing_clear_is_unknown() -> None:
    assert headline(read_feedback([True, False, True], "t")).success is False
    assert headline(read_feedback([{"value": "meh"}, 0.5], "t")).success is None
    said = headline(read_feedback([{"name": "csat", "score": 0.9}], "t"))
    assert (said.success, said.reward, said.source) == (True, 0.9, "human_user:csat")
    assert headline(read_feedback([{"score": 1}, {"score": 0.2}], "t")).reward is None


def test_ids_are_of_what_was_said() -> None:
    first, second = read_feedback([{"score": 1}, {"score": 1}], "t")
    assert first.outcome_id != second.outcome_id
    assert read_feedback({"score": 1}, "t")[0].outcome_id == first.outcome_id
    assert read_feedback({"score": 0}, "t")[0].outcome_id != first.outcome_id
    said_twice = [{"id": "f1", "score": 1, "comment": "a"}, {"id": "f1", "score": 1, "comment": "b"}]
    assert [outcome.explanation for outcome in read_feedback(said_twice, "t")] == ["b"]
