"""Blending: shares, order and schedule are decided by seeds and ids, never by the order of the input."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from flywheel.curriculum.blend import in_order, lot, most_real, schedule, task_weight


@dataclass(frozen=True)
class R:
    row_id: str
    stage: int = 0
    weight: float = 1.0


@pytest.mark.parametrize(
    ("others", "share", "expected"),
    [(10, 0.5, 10), (10, 0.0, 0), (9, 0.25, 3), (10, 0.25, 3), (0, 0.5, 0), (7, 0.3, 3), (3, 1.0, None)],
)
def test_real_rows_never_exceed_their_share(others: int, share: float, expected: int | None) -> None:
    limit = most_real(others, share)
    assert limit == expected
    if limit is not None and others:
        assert limit / (limit + others) <= share + 1e-12
        assert (limit + 1) / (limit + 1 + others) > share


def test_lots_are_uniform_and_depend_on_the_seed() -> None:
    drawn = [lot(0, ix) for ix in range(4000)]
    assert abs(sum(drawn) / len(drawn) - 0.5) < 0.02
    assert min(drawn) >= 0 and max(drawn) < 1
    assert lot(0, "a") == lot(0, "a") != lot(1, "a")


def test_order_is_by_stage_then_shuffled_and_ignores_the_input_order() -> None:
    rows = [R(f"row-{ix:02}", stage=ix % 3) for ix in range(30)]
    ordered = in_order(rows, seed=4)
    assert in_order(rows[::-1], seed=4) == ordered
    assert [row.stage for row in ordered] == sorted(row.stage for row in rows)
    first = [row.row_id for row in ordered if row.stage == 0]
    assert first != sorted(first)
    assert in_order(rows, seed=5) != ordered


def test_the_schedule_walks_every_row_once_a_pass_in_stage_order() -> None:
    rows = in_order([R(f"row-{ix}", stage=ix % 2) for ix in range(10)], seed=0)
    plan = schedule(rows, steps=5, batch=4, seed=1)
    assert [len(step) for step in plan] == [4] * 5
    walked = [number for step in plan for number in step]
    assert walked[:10] == list(range(10))
    assert sorted(walked[10:]) == list(range(10)) and walked[10:] != walked[:10]
    assert [rows[number].stage for number in walked[10:]] == [0] * 5 + [1] * 5
    assert plan == schedule(rows, steps=5, batch=4, seed=1) != schedule(rows, steps=5, batch=4, seed=2)


def test_a_longer_schedule_begins_like_the_shorter_one() -> None:
    rows = [R(f"row-{ix}") for ix in range(7)]
    assert schedule(rows, 9, 3, 0)[:4] == schedule(rows, 4, 3, 0)


def test_a_row_of_weight_w_takes_part_in_a_share_w_of_the_passes() -> None:
    light = [R(f"light-{ix}", weight=task_weight(4)) for ix in range(8)]
    rows = [*light, *(R(f"full-{ix}") for ix in range(4))]
    counts = Counter(number for step in schedule(rows, steps=100, batch=8, seed=0) for number in step)
    passes = counts[8]
    assert passes >= 90
    assert {counts[number] for number in range(8, 12)} <= {passes, passes - 1}
    assert all(abs(counts[number] - passes / 2) <= 1 for number in range(8))


def test_no_rows_is_an_empty_schedule() -> None:
    assert schedule([], steps=3, batch=2, seed=0) == []
