"""Rates of a policy over tasks that were each run k times: pass rate, pass@k, pass^k, stability, variance split.

Everywhere `passed[t]` of `runs[t]` rollouts of task t passed; rollouts without a verdict are in neither number
(the caller counts them). Means are macro: over tasks, each task with the same weight. Counts that can't be
(more passes than runs, a task without runs) raise ValueError: dropping such tasks is the caller's to decide and say.

Not covered: intervals (`intervals`), comparing two policies (`paired`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = Sequence[int] | NDArray[np.int64]


def checked(passed: Counts, runs: Counts) -> tuple[Floats, Floats]:
    """Both counts as float arrays of shape (tasks,). Errors: ValueError on lengths that differ or impossible counts."""
    c, n = np.asarray(passed, dtype=np.float64), np.asarray(runs, dtype=np.float64)
    if c.shape != n.shape or c.ndim != 1 or c.size == 0:
        raise ValueError(f"passed has shape {c.shape} and runs {n.shape}: both need one number a task, at least one")
    if bool(np.any(n < 1)) or bool(np.any(c < 0)) or bool(np.any(c > n)):
        raise ValueError("every task needs at least one run, and 0 <= passed <= runs")
    return c, n


def task_rates(passed: Counts, runs: Counts) -> Floats:
    """Share of runs that passed, per task: shape (tasks,), in [0, 1]."""
    c, n = checked(passed, runs)
    return c / n


def pass_rate(passed: Counts, runs: Counts) -> float:
    """Mean over tasks of the share of runs that passed, in [0, 1]."""
    return float(task_rates(passed, runs).mean())


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k runs passes, unbiased from c passes in n runs of one task.

    Source: Chen et al. 2021 (arXiv 2107.03374). Errors: ValueError when n < k, where no unbiased estimate exists.
    """
    _need(n, c, k)
    return 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """pass^k: probability that all of k runs pass, unbiased from c passes in n runs of one task.

    Source: tau-bench (arXiv 2406.12045). Errors: ValueError when n < k, where no unbiased estimate exists.
    """
    _need(n, c, k)
    return comb(c, k) / comb(n, k)


def _need(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k={k} needs at least k runs of the task, and it has n={n}")
    if not 0 <= c <= n:
        raise ValueError(f"c={c} passes in n={n} runs")


def mean_pass_at_k(passed: Counts, runs: Counts, k: int) -> float:
    """pass@k averaged over tasks. Errors: ValueError when any task has fewer than k runs."""
    c, n = checked(passed, runs)
    return float(np.mean([pass_at_k(int(nt), int(ct), k) for nt, ct in zip(n, c, strict=True)]))


def task_pass_hat_k(passed: Counts, runs: Counts, k: int) -> Floats:
    """pass^k per task: shape (tasks,). Errors: ValueError when any task has fewer than k runs."""
    c, n = checked(passed, runs)
    return np.array([pass_hat_k(int(nt), int(ct), k) for nt, ct in zip(n, c, strict=True)])


def mean_pass_hat_k(passed: Counts, runs: Counts, k: int) -> float:
    """pass^k averaged over tasks. Errors: ValueError when any task has fewer than k runs."""
    return float(task_pass_hat_k(passed, runs, k).mean())


def stability(passed: Counts, runs: Counts, ddof: int = 0) -> float:
    """Mean over tasks of 1 - standard deviation of the task's 0/1 scores.

    `ddof` 0 (the default) is the population deviation, 1 the sample deviation; they differ much at small k
    (4 of 5 passed: 0.600 and 0.553), so always say which. It is 1.0 for a policy that always fails: report it,
    decide on pass^k. Errors: ValueError when a task has no more than `ddof` runs.
    """
    c, n = checked(passed, runs)
    if bool(np.any(n <= ddof)):
        raise ValueError(f"stability with ddof={ddof} needs more than {ddof} run(s) of each task")
    return float(np.mean(1.0 - np.sqrt(c * (n - c) / (n * (n - ddof)))))


def within_variances(passed: Counts, runs: Counts) -> Floats:
    """Unbiased variance between runs of the same task, per task: c(n-c) / (n(n-1)).

    Errors: ValueError when a task has one run only: one run says nothing about the spread of runs.
    """
    c, n = checked(passed, runs)
    if bool(np.any(n < 2)):
        raise ValueError("the variance within a task needs at least two runs of it")
    return np.asarray(c * (n - c) / (n * (n - 1)), dtype=np.float64)


def task_mean_variance(passed: Counts, runs: Counts) -> float:
    """Sample variance (ddof 1) of the task rates, the noise of the runs included. Needs two tasks (ValueError)."""
    rates = task_rates(passed, runs)
    if rates.size < 2:
        raise ValueError("the variance between tasks needs at least two tasks")
    return float(rates.var(ddof=1))


def between_variance(passed: Counts, runs: Counts) -> float:
    """Variance between tasks with the noise of the runs taken out. A noisy estimate: it may fall below 0."""
    _, n = checked(passed, runs)
    return task_mean_variance(passed, runs) - float(np.mean(within_variances(passed, runs) / n))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRates:
    """What re-running the *same* policy changes by chance: the yardstick for every "fixed" and "regressed"."""

    pass_given_failed: float | None  # of runs that failed, the share that another run of the task passes
    fail_given_passed: float | None
    negative_flip: float  # P(one run passes and the other fails), mean over tasks


def flip_rates(passed: Counts, runs: Counts) -> FlipRates:
    """A/A flips from pairs of runs of the same task. A rate over no run at all is None. Needs two runs a task."""
    c, n = checked(passed, runs)
    within = within_variances(passed, runs)
    flips, failures, passes = float(np.sum(c * (n - c) / (n - 1))), float(np.sum(n - c)), float(np.sum(c))
    return FlipRates(
        pass_given_failed=flips / failures if failures else None,
        fail_given_passed=flips / passes if passes else None,
        negative_flip=float(within.mean()),
    )
