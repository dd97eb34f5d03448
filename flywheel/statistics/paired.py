"""Comparing two policies on the same tasks: tests of the per-task difference, and corrections for many tests.

`d[t]` is candidate minus incumbent on task t. Tasks of one group (phrasing, template, repository) move together, so
the group is the unit of every test here: clustered t is primary, sign-flips of whole groups its check.

Not covered: planning how many runs a test needs (`power`), what follows from a test (`decision`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtr, stdtrit

from flywheel.statistics.intervals import cluster_se, cluster_sums
from flywheel.statistics.rates import Floats

Alternative = Literal["greater", "less", "two-sided"]
EXACT_GROUPS = 14
"""Up to this many groups all 2^G sign patterns are tried; above it, a seeded sample of them."""
TOLERANCE = 1e-12
"""Sums of the same numbers in another order differ by rounding; two statistics this close are a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A mean paired difference with its clustered error. `low` and `high` are one-sided bounds, each at `alpha`.

    Where every group differs by the same amount the standard error is 0 and t is undefined. A zero error is then
    not taken for certainty: the p-value is that of flipping whole groups (all G on the same side of the tested
    value: 2^-G), and with too few groups for that to reach alpha the bound is the end of the scale.
    """

    mean: float
    se: float
    clusters: int
    tasks: int
    alpha: float

    @property
    def degenerate(self) -> bool:
        """No spread between groups, so that the t distribution does not apply."""
        return self.se < TOLERANCE

    def p_above(self, value: float) -> float:
        """One-sided p of "the true mean is at most `value`"."""
        if self.degenerate:
            return 2.0**-self.clusters if self.mean > value + TOLERANCE else 1.0
        return float(stdtr(self.clusters - 1, (value - self.mean) / self.se))

    def p_below(self, value: float) -> float:
        """One-sided p of "the true mean is at least `value`"."""
        if self.degenerate:
            return 2.0**-self.clusters if self.mean < value - TOLERANCE else 1.0
        return float(stdtr(self.clusters - 1, (self.mean - value) / self.se))

    @property
    def low(self) -> float:
        """Lower one-sided 1-alpha bound, in [-1, 1]."""
        return max(-1.0, self.mean - self._half())

    @property
    def high(self) -> float:
        """Upper one-sided 1-alpha bound, in [-1, 1]."""
        return min(1.0, self.mean + self._half())

    def _half(self) -> float:
        if self.degenerate:
            return 0.0 if 2.0**-self.clusters <= self.alpha else 2.0
        return float(stdtrit(self.clusters - 1, 1 - self.alpha)) * self.se

    def non_inferior(self, margin: float) -> bool:
        """Whether the loss is shown to be smaller than `margin`: lower bound > -margin."""
        return self.p_above(-margin) <= self.alpha


def paired_difference(d: Sequence[float] | Floats, groups: Sequence[Hashable], alpha: float = 0.05) -> Difference:
    """Clustered t of per-task differences `d` in [-1, 1]. Errors: ValueError with fewer than two groups."""
    array = np.asarray(d, dtype=np.float64)
    return Difference(
        mean=float(array.mean()),
        se=cluster_se(array, groups),
        clusters=len(set(groups)),
        tasks=int(array.size),
        alpha=alpha,
    )


@lru_cache(maxsize=16)
def _signs(groups: int, draws: int, seed: int) -> tuple[NDArray[np.int8], bool]:
    """All sign patterns as rows when there are few groups (True), else `draws` random ones (False)."""
    if groups <= EXACT_GROUPS:
        bits = (np.arange(2**groups)[:, None] >> np.arange(groups)) & 1
        return (2 * bits - 1).astype(np.int8), True
    return np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.int8), size=(draws, groups)), False


def sign_flip_p(
    d: Sequence[float] | Floats,
    groups: Sequence[Hashable],
    alternative: Alternative = "greater",
    draws: int = 9999,
    seed: int = 0,
) -> float:
    """Permutation p-value of mean(d) = 0: the sign of each *group's* sum is flipped.

    Exact with up to `EXACT_GROUPS` groups; otherwise (1 + hits) / (draws + 1) over seeded draws, never 0.
    """
    sums = cluster_sums(d, groups)
    signs, exact = _signs(sums.size, draws, seed)
    permuted, seen = signs @ sums, float(sums.sum())
    if alternative == "two-sided":
        permuted, seen = np.abs(permuted), abs(seen)
    elif alternative == "less":
        permuted, seen = -permuted, -seen
    hits = int(np.sum(permuted >= seen - TOLERANCE))
    return hits / len(signs) if exact else (1 + hits) / (draws + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """Exact McNemar of `b` tasks that only the incumbent passed and `c` that only the candidate passed."""

    two_sided: float
    mid_p: float  # two-sided, half the weight on the observed table: less conservative
    one_sided: float  # of "the candidate is no better"


def mcnemar(b: int, c: int) -> McNemar:
    """For one run a task (k = 1). The discordant tasks are tosses of a fair coin if the two are alike."""
    if b < 0 or c < 0:
        raise ValueError(f"counts of tasks can't be negative: b={b}, c={c}")
    n = b + c
    if n == 0:
        return McNemar(two_sided=1.0, mid_p=1.0, one_sided=1.0)
    two = min(1.0, 2 * float(bdtr(min(b, c), n, 0.5)))
    return McNemar(
        two_sided=two,
        mid_p=min(1.0, 2 * float(bdtr(min(b, c), n, 0.5)) - comb(n, min(b, c)) / 2**n),
        one_sided=float(bdtr(b, n, 0.5)),
    )


@lru_cache(maxsize=4096)
def fisher_one_sided(passed_a: int, n_a: int, passed_b: int, n_b: int) -> float:
    """P(at least `passed_a` of n_a pass | same rate, same total): hypergeometric tail of "a is better than b"."""
    if not (0 <= passed_a <= n_a and 0 <= passed_b <= n_b):
        raise ValueError(f"{passed_a} of {n_a} against {passed_b} of {n_b}")
    total = passed_a + passed_b
    tail = sum(comb(n_a, x) * comb(n_b, total - x) for x in range(passed_a, min(n_a, total) + 1))
    return tail / comb(n_a + n_b, total)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: chance of *any* false alarm <= alpha."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, running = [0.0] * len(p), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = running
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p-values, in the order given: expected *share* of false alarms <= alpha."""
    order = sorted(range(len(p)), key=p.__getitem__, reverse=True)
    adjusted, running = [0.0] * len(p), 1.0
    for position, index in enumerate(order):
        running = min(running, p[index] * len(p) / (len(p) - position))
        adjusted[index] = running
    return adjusted
