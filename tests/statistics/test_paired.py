"""Paired tests against tabulated values, against scipy's own, and by their error rates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from flywheel.statistics.paired import (
    EXACT_GROUPS,
    benjamini_hochberg,
    fisher_one_sided,
    holm,
    mcnemar,
    paired_difference,
    sign_flip_p,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", GOLDEN["mcnemar"])
def test_mcnemar_golden(row: dict[str, float]) -> None:
    test = mcnemar(int(row["b"]), int(row["c"]))
    assert test.two_sided == pytest.approx(row["exact_two_sided"], abs=1e-9)
    if "mid_p" in row:
        assert test.mid_p == pytest.approx(row["mid_p"], abs=1e-9)
        assert test.one_sided == pytest.approx(row["one_sided"], abs=1e-9)


def test_mcnemar_is_one_where_nothing_or_everything_balances() -> None:
    assert mcnemar(0, 0).two_sided == 1.0
    assert mcnemar(4, 4).two_sided == 1.0
    assert mcnemar(8, 1).one_sided > 0.99  # losses are no sign of a gain


@pytest.mark.parametrize(("a", "n", "b", "m", "p"), GOLDEN["fisher_one_sided"])
def test_fisher_golden(a: int, n: int, b: int, m: int, p: float) -> None:
    assert fisher_one_sided(a, n, b, m) == pytest.approx(p, abs=5e-5)


@pytest.mark.parametrize(("a", "n", "b", "m"), [(3, 7, 2, 5), (0, 4, 4, 4), (5, 5, 5, 5), (0, 3, 0, 8)])
def test_fisher_agrees_with_scipy(a: int, n: int, b: int, m: int) -> None:
    expected = stats.fisher_exact([[a, n - a], [b, m - b]], alternative="greater").pvalue
    assert fisher_one_sided(a, n, b, m) == pytest.approx(expected)


@pytest.mark.parametrize(("correct", "name"), [(holm, "holm"), (benjamini_hochberg, "bh")])
def test_corrections_golden(correct: object, name: str) -> None:
    assert correct(GOLDEN[name]["p"]) == pytest.approx(GOLDEN[name]["adjusted"])  # type: ignore[operator]
    assert correct([]) == []  # type: ignore[operator]


def test_corrections_keep_order_and_stay_below_one() -> None:
    p = list(np.random.default_rng(3).random(40))
    for adjusted in (holm(p), benjamini_hochberg(p)):
        assert sorted(range(40), key=p.__getitem__) == sorted(range(40), key=lambda i: (adjusted[i], p[i]))
        assert all(raw <= value <= 1 for raw, value in zip(p, adjusted, strict=True))
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))


def test_cluster_t_is_the_t_test_on_group_means() -> None:
    d = np.random.default_rng(1).normal(0.05, 0.2, 48)
    groups = [i // 4 for i in range(48)]
    found = paired_difference(d, groups)
    expected = stats.ttest_1samp(d.reshape(12, 4).mean(axis=1), 0.0, alternative="greater")
    assert found.p_above(0.0) == pytest.approx(expected.pvalue)
    assert found.low == pytest.approx(expected.confidence_interval(0.95).low)
    assert found.p_below(0.0) == pytest.approx(1 - expected.pvalue)


def test_the_bound_and_the_p_value_say_the_same() -> None:
    d = np.random.default_rng(2).normal(0.0, 0.3, 30)
    found = paired_difference(d, range(30), alpha=0.1)
    assert found.p_above(found.low) == pytest.approx(0.1)
    assert found.p_below(found.high) == pytest.approx(0.1)
    assert found.non_inferior(-found.low + 1e-6)
    assert not found.non_inferior(-found.low - 1e-6)


def test_a_gain_that_is_the_same_in_every_group_is_judged_by_sign_flips() -> None:
    few, enough = paired_difference([0.25] * 4, range(4)), paired_difference([0.25] * 5, range(5))
    assert few.degenerate
    assert few.p_above(0.0) == 1 / 16 == sign_flip_p([0.25] * 4, range(4))
    assert (few.low, few.high) == (-1.0, 1.0)  # four groups can't show anything at 5 %, however alike they are
    assert enough.p_above(0.0) == 1 / 32
    assert enough.low == 0.25
    assert enough.p_below(0.0) == 1.0


def test_no_difference_anywhere_is_neither_better_nor_worse() -> None:
    same = paired_difference([0.0] * 12, range(12))
    assert same.p_above(0.0) == same.p_below(0.0) == 1.0
    assert same.non_inferior(0.05)
    assert not same.non_inferior(0.0)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_exact_sign_flip_agrees_with_scipy(alternative: str) -> None:
    sums = np.random.default_rng(4).normal(0.2, 0.5, 9)
    expected = stats.permutation_test(
        (sums,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative=alternative
    )
    found = sign_flip_p(sums, range(9), alternative)  # type: ignore[arg-type]
    assert found == pytest.approx(expected.pvalue)


def test_sampled_sign_flip_approaches_the_exact_one_and_is_never_zero() -> None:
    d = np.random.default_rng(6).normal(0.15, 0.4, EXACT_GROUPS + 6)
    sampled = sign_flip_p(d, range(d.size), draws=40_000)
    exact = stats.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=40_000, alternative="greater")
    assert sampled == pytest.approx(exact.pvalue, abs=0.01)
    assert sign_flip_p([1.0] * 40, range(40), draws=99) == 1 / 100


def test_sign_flips_move_whole_groups() -> None:
    d, groups = [0.5] * 8, [0, 0, 0, 0, 1, 1, 1, 1]
    assert sign_flip_p(d, groups) == 1 / 4  # two groups, not eight tasks


def test_type_one_error_of_both_tests_under_no_difference() -> None:
    random = np.random.default_rng(7)
    groups, times = np.repeat(np.arange(12), 4), 1000
    t_errors = flip_errors = 0
    for _ in range(times):
        rates = np.repeat(random.beta(0.6, 0.8, 12), 4)
        d = (random.binomial(4, rates) - random.binomial(4, rates)) / 4
        t_errors += paired_difference(d, groups).p_above(0.0) <= 0.05
        flip_errors += sign_flip_p(d, groups) <= 0.05
    error = 3 * np.sqrt(0.05 * 0.95 / times)
    assert t_errors / times <= 0.05 + error
    assert flip_errors / times <= 0.05 + error
    assert t_errors / times >= 0.02  # a test that never errs would be a test that never looks


@pytest.mark.parametrize("call", [lambda: mcnemar(-1, 2), lambda: fisher_one_sided(3, 2, 0, 2)])
def test_impossible_counts_raise(call: object) -> None:
    with pytest.raises(ValueError, match=r"negative|of"):
        call()  # type: ignore[operator]
