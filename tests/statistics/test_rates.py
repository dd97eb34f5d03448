"""Rates against published and hand-computed values, and against counting all subsets."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from flywheel.statistics.intervals import cluster_se
from flywheel.statistics.rates import (
    between_variance,
    flip_rates,
    mean_pass_at_k,
    mean_pass_hat_k,
    pass_at_k,
    pass_hat_k,
    pass_rate,
    stability,
    task_mean_variance,
    task_rates,
    within_variances,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))
TAU = GOLDEN["tau_airline_gpt4o"]
PASSED = [int(c) for c, tasks in TAU["success_count_histogram"].items() for _ in range(tasks)]
RUNS = [TAU["trials"]] * TAU["tasks"]


@pytest.mark.parametrize(("n", "c", "k", "value"), GOLDEN["pass_at_k"])
def test_pass_at_k_golden(n: int, c: int, k: int, value: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(value)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_published_tau_row_follows_from_its_histogram(k: int) -> None:
    assert mean_pass_hat_k(PASSED, RUNS, k) == pytest.approx(TAU["pass_hat"][str(k)], abs=1e-9)
    assert mean_pass_at_k(PASSED, RUNS, k) == pytest.approx(TAU["pass_at"][str(k)], abs=1e-9)


def test_tau_spread_and_chance() -> None:
    flips = flip_rates(PASSED, RUNS)
    measured = {
        "within_var_unbiased": float(within_variances(PASSED, RUNS).mean()),
        "between_var_of_task_means": task_mean_variance(PASSED, RUNS),
        "stability_mean_ddof0": stability(PASSED, RUNS),
        "stability_mean_ddof1": stability(PASSED, RUNS, ddof=1),
        "aa_p_pass_given_failed_once": flips.pass_given_failed,
        "aa_p_fail_given_passed_once": flips.fail_given_passed,
        "aa_nfr": flips.negative_flip,
    }
    assert measured == pytest.approx({name: TAU[name] for name in measured}, abs=1e-9)
    assert between_variance(PASSED, RUNS) == pytest.approx(0.0997, abs=5e-5)
    assert pass_rate(PASSED, RUNS) == pytest.approx(0.42)


def test_tau_standard_errors() -> None:
    rates, own = task_rates(PASSED, RUNS), range(len(PASSED))
    scores = np.array([float(j < c) for c in PASSED for j in range(4)])
    task_of = [t for t in own for _ in range(4)]
    assert cluster_se(scores, range(200), ddof=0) == pytest.approx(TAU["se_naive_iid_200"], abs=1e-9)
    assert cluster_se(rates, own, ddof=0) == pytest.approx(TAU["se_cluster_n"], abs=1e-9)
    # The table's own variance gives .05221619; its printed error differs in the eighth decimal.
    assert cluster_se(rates, own) == pytest.approx(np.sqrt(TAU["between_var_of_task_means"] / 50), abs=1e-9)
    assert cluster_se(rates, own) == pytest.approx(TAU["se_cluster_n_minus_1"], abs=1e-7)
    assert cluster_se(scores, task_of) == pytest.approx(TAU["se_cluster_n_minus_1"], abs=1e-7)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_pass_at_and_hat_count_every_subset(n: int) -> None:
    for c in range(n + 1):
        scores = [1] * c + [0] * (n - c)
        for k in range(1, n + 1):
            draws = list(combinations(scores, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(any(d) for d in draws) / len(draws))
            assert pass_hat_k(n, c, k) == pytest.approx(sum(all(d) for d in draws) / len(draws))


@pytest.mark.parametrize("function", [pass_at_k, pass_hat_k])
@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 2), (3, 1, 0), (3, -1, 2)])
def test_what_can_not_be_estimated_raises(function: object, n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"k=|c="):
        function(n, c, k)  # type: ignore[operator]


def test_one_task_with_too_few_runs_raises_for_the_mean() -> None:
    with pytest.raises(ValueError, match="n=3"):
        mean_pass_hat_k([4, 3], [4, 3], 4)


def test_the_mean_is_over_tasks_not_over_runs() -> None:
    assert pass_rate([1, 0], [1, 9]) == 0.5


def test_stability_is_blind_to_a_policy_that_always_fails_and_pass_hat_is_not() -> None:
    assert stability([0, 0], [4, 4]) == 1.0
    assert mean_pass_hat_k([0, 0], [4, 4], 4) == 0.0


def test_four_of_five_shows_what_ddof_changes() -> None:
    assert stability([4], [5]) == pytest.approx(0.6)
    assert stability([4], [5], ddof=1) == pytest.approx(0.5528, abs=1e-4)


def test_a_policy_that_never_fails_has_no_rate_of_passing_after_a_failure() -> None:
    flips = flip_rates([4, 4], [4, 4])
    assert flips.pass_given_failed is None
    assert flips.fail_given_passed == 0.0


@pytest.mark.parametrize(("passed", "runs"), [([5], [4]), ([0], [0]), ([], []), ([1, 1], [2]), ([-1], [2])])
def test_impossible_counts_raise(passed: list[int], runs: list[int]) -> None:
    with pytest.raises(ValueError, match="run"):
        task_rates(passed, runs)
