"""Intervals against tabulated values, and by how often they hold the truth."""

from __future__ import annotations

import json
from math import isinf
from pathlib import Path

import numpy as np
import pytest

from flywheel.statistics.intervals import (
    Interval,
    clopper_pearson,
    cluster_se,
    rate_interval,
    ratio_of_sums,
    t_interval,
    wilson,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("c", "n", "low", "high"), GOLDEN["wilson95"])
def test_wilson_golden(c: int, n: int, low: float, high: float) -> None:
    interval = wilson(c / n, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("c", "n", "low", "high"), GOLDEN["clopper_pearson95"])
def test_clopper_pearson_golden(c: int, n: int, low: float, high: float) -> None:
    interval = clopper_pearson(c, n)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_clopper_pearson_mirrors() -> None:
    all_passed, none_passed = clopper_pearson(30, 30), clopper_pearson(0, 30)
    assert all_passed.high == 1.0
    assert all_passed.low == pytest.approx(1 - none_passed.high)


def test_clustered_error_equals_the_error_of_group_means() -> None:
    values = np.random.default_rng(0).random(24)
    groups = [i // 4 for i in range(24)]
    means = values.reshape(6, 4).mean(axis=1)
    assert cluster_se(values, groups) == pytest.approx(means.std(ddof=1) / np.sqrt(6))


def test_copies_of_a_task_in_one_group_add_no_certainty() -> None:
    values = np.random.default_rng(0).random(6)
    alone = t_interval(values, range(6))
    copied = t_interval(np.repeat(values, 10), [g for g in range(6) for _ in range(10)])
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high))


def _coverage(kind: str, groups: int, rate: float, seed: int, times: int = 400) -> float:
    """How often the interval holds the true mean rate, when groups differ (Beta) and have 4 tasks of 4 runs."""
    random, held = np.random.default_rng(seed), 0
    labels = [g for g in range(groups) for _ in range(4)]
    for _ in range(times):
        truth = np.repeat(random.beta(4 * rate, 4 * (1 - rate), groups), 4)
        passed = random.binomial(4, truth)
        if kind == "runs":  # what not to do: every run on its own
            interval: Interval = wilson(passed.sum() / (4 * len(labels)), 4 * len(labels))
        else:
            interval = rate_interval(passed, [4] * len(labels), labels)
        held += interval.low <= rate <= interval.high
    return held / times


@pytest.mark.parametrize(("groups", "rate"), [(12, 0.5), (12, 0.1), (40, 0.5)])
def test_the_interval_holds_the_truth_where_counting_runs_does_not(groups: int, rate: float) -> None:
    error = 3 * np.sqrt(0.05 * 0.95 / 400)  # three Monte Carlo standard errors
    assert _coverage("groups", groups, rate, seed=1) >= 0.95 - error
    assert _coverage("runs", groups, rate, seed=1) < 0.85


def test_many_groups_take_t_and_few_take_wilson() -> None:
    assert rate_interval([2, 1] * 30, [4] * 60, range(60)).method == "cluster t"
    assert rate_interval([2, 1] * 10, [4] * 20, range(20)).method == "wilson, effective n"
    assert rate_interval([4] * 58 + [0, 0], [4] * 60, range(60)).method == "wilson, effective n"


@pytest.mark.parametrize("passed", [0, 4])
def test_no_spread_is_not_certainty(passed: int) -> None:
    interval = rate_interval([passed] * 12, [4] * 12, range(12))
    assert interval.estimate == passed / 4
    assert 0.2 < interval.high - interval.low < 0.4  # the width of 12 trials, not of 48 and not of 0


def test_groups_that_pass_or_fail_as_a_whole_count_as_one_trial_each() -> None:
    interval = rate_interval([4] * 20 + [0] * 28, [4] * 48, [t // 4 for t in range(48)])
    alone = wilson(5 / 12, 12, degrees=11)
    assert (interval.low, interval.high) == (alone.low, alone.high)


def test_one_group_says_nothing_about_groups() -> None:
    interval = rate_interval([2, 3], [4, 4], ["a", "a"])
    assert (interval.low, interval.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="more than 1 group"):
        t_interval([0.5, 0.75], ["a", "a"])


def test_ratio_of_sums_is_not_the_mean_of_ratios() -> None:
    cost = ratio_of_sums([100, 300], [10, 1], ["a", "b"])
    assert cost.estimate == pytest.approx(400 / 11)
    assert cost.low == pytest.approx(10.0)
    assert cost.high == pytest.approx(300.0)


def test_ratio_of_sums_holds_the_truth() -> None:
    random, held = np.random.default_rng(5), 0
    for seed in range(200):
        successes = random.binomial(4, 0.5, 30)
        tokens = 4 * 20 + 10 * successes  # 80 + 10 s tokens for s successes: 50 tokens a success on average
        cost = ratio_of_sums(tokens, successes, range(30), replicates=500, seed=seed)
        held += cost.low <= 50.0 <= cost.high
    assert held / 200 >= 0.88


def test_ratio_of_sums_is_seeded_and_honest_about_no_success() -> None:
    assert ratio_of_sums([5, 6, 7], [1, 0, 2], "abc") == ratio_of_sums([5, 6, 7], [1, 0, 2], "abc")
    assert isinf(ratio_of_sums([5, 6], [1, 0], "ab").high)
    with pytest.raises(ValueError, match="no ratio"):
        ratio_of_sums([5, 6], [0, 0], "ab")


@pytest.mark.parametrize("call", [lambda: wilson(1.2, 5), lambda: wilson(0.5, 0), lambda: clopper_pearson(3, 2)])
def test_impossible_input_raises(call: object) -> None:
    with pytest.raises(ValueError, match=r"rate|passed"):
        call()  # type: ignore[operator]
