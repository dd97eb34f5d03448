"""Intervals for one policy's numbers, with the task group as the unit of inference.

Runs of one task, and tasks of one group, are not independent: treating T*k runs as independent gives 74-80 %
coverage of a nominal 95 % interval at k = 4-5. So the standard error is clustered and the quantile is t.

Not covered: differences of two policies (`paired`), sequential looks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, stdtrit

from flywheel.statistics.rates import Counts, Floats, task_rates

FEW_CLUSTERS = 30
"""Below this many clusters the t interval of a rate under-covers (.87-.93); `rate_interval` then takes Wilson."""
NEAR_EDGE = 0.1
"""Likewise for rates within this distance of 0 or 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with a two-sided interval."""

    estimate: float
    low: float
    high: float
    method: str
    se: float | None = None
    clusters: int | None = None


def cluster_sums(values: Sequence[float] | Floats, groups: Sequence[Hashable]) -> Floats:
    """Sum of the values of each group, in order of first appearance: shape (groups,)."""
    order: dict[Hashable, int] = {}
    index = np.array([order.setdefault(group, len(order)) for group in groups], dtype=np.int64)
    array = np.asarray(values, dtype=np.float64)
    if index.size != array.size or array.size == 0:
        raise ValueError(f"{array.size} values and {index.size} groups: need one group a value, at least one")
    return np.bincount(index, weights=array).astype(np.float64)


def cluster_se(values: Sequence[float] | Floats, groups: Sequence[Hashable], ddof: int = 1) -> float:
    """Standard error of the mean of `values`, clustered: sqrt(sum_g (sum_{i in g} (v_i - mean))^2) / n.

    `ddof` 1 multiplies the variance by G/(G-1); 0 is Miller's formula (arXiv 2411.00640) as printed. With each
    value its own group and ddof 1 it is sd/sqrt(n). Errors: ValueError with no more than `ddof` groups.
    """
    array = np.asarray(values, dtype=np.float64)
    sums = cluster_sums(array - array.mean() if array.size else array, groups)
    if sums.size <= ddof:
        raise ValueError(f"a clustered standard error needs more than {ddof} group(s), got {sums.size}")
    return float(np.sqrt(np.sum(sums**2) * sums.size / (sums.size - ddof)) / array.size)


def t_interval(values: Sequence[float] | Floats, groups: Sequence[Hashable], confidence: float = 0.95) -> Interval:
    """Mean of `values` with a two-sided clustered t interval of G-1 degrees of freedom. Needs two groups."""
    array = np.asarray(values, dtype=np.float64)
    se, clusters = cluster_se(array, groups), len(set(groups))
    half = float(stdtrit(clusters - 1, 0.5 + confidence / 2)) * se
    mean = float(array.mean())
    return Interval(estimate=mean, low=mean - half, high=mean + half, method="cluster t", se=se, clusters=clusters)


def wilson(rate: float, n: float, confidence: float = 0.95, degrees: int | None = None) -> Interval:
    """Wilson score interval of a rate over `n` trials (an effective n may be fractional).

    `degrees` takes the t quantile of that many degrees of freedom in place of the normal one.
    """
    if not 0.0 <= rate <= 1.0 or n <= 0:
        raise ValueError(f"a Wilson interval needs a rate in [0, 1] and n > 0, got {rate} and {n}")
    level = 0.5 + confidence / 2
    z = float(ndtri(level)) if degrees is None else float(stdtrit(degrees, level))
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z / scale * float(np.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)))
    return Interval(estimate=rate, low=max(0.0, centre - half), high=min(1.0, centre + half), method="wilson")


def clopper_pearson(passed: int, n: int, confidence: float = 0.95) -> Interval:
    """Exact binomial interval of `passed` in `n` independent trials (beta quantiles)."""
    if not 0 <= passed <= n or n < 1:
        raise ValueError(f"{passed} passed of {n}")
    tail = (1 - confidence) / 2
    low = 0.0 if passed == 0 else float(betaincinv(passed, n - passed + 1, tail))
    high = 1.0 if passed == n else float(betaincinv(passed + 1, n - passed, 1 - tail))
    return Interval(estimate=passed / n, low=low, high=high, method="clopper-pearson")


def rate_interval(passed: Counts, runs: Counts, groups: Sequence[Hashable], confidence: float = 0.95) -> Interval:
    """The pass rate (macro over tasks) with an interval whose unit is the group.

    Clustered t with many groups and a rate away from 0 and 1. Otherwise (fewer than `FEW_CLUSTERS` groups, or
    a rate within `NEAR_EDGE` of an edge) Wilson with the t quantile and an effective n = p(1-p)/SE^2, held
    between the number of groups and the number of runs; where SE is 0, the number of groups. One group alone says
    nothing about the spread of groups: its interval is all of [0, 1].
    """
    rates = task_rates(passed, runs)
    if len(set(groups)) < 2:
        return Interval(estimate=float(rates.mean()), low=0.0, high=1.0, method="one group, no interval", clusters=1)
    plain = t_interval(rates, groups, confidence)
    clusters, se = len(set(groups)), plain.se or 0.0
    p = min(1.0, max(0.0, plain.estimate))
    if clusters >= FEW_CLUSTERS and NEAR_EDGE <= p <= 1 - NEAR_EDGE:
        return plain
    spread = p * (1 - p)
    n_eff = float(np.clip(spread / se**2, clusters, np.sum(runs))) if se > 0 and spread > 0 else float(clusters)
    score = wilson(p, n_eff, confidence, degrees=clusters - 1)
    return Interval(
        estimate=p, low=score.low, high=score.high, method="wilson, effective n", se=plain.se, clusters=clusters
    )


@lru_cache(maxsize=4)
def _resamples(clusters: int, replicates: int, seed: int) -> Floats:
    """How often each cluster appears in each bootstrap replicate: one matrix product then does them all."""
    draws = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=replicates)
    return draws.astype(np.float64)


def ratio_of_sums(
    numerators: Sequence[float] | NDArray[np.int64],
    denominators: Sequence[float] | NDArray[np.int64],
    groups: Sequence[Hashable],
    *,
    confidence: float = 0.95,
    replicates: int = 2000,
    seed: int = 0,
) -> Interval:
    """Ratio of two sums (tokens per success) with a percentile bootstrap over groups.

    A mean of per-task ratios is not the cost of a success; this is. Replicates whose denominator is 0 count as
    infinite, so `high` may be inf. With ten groups the percentile interval covers about 91 % of a nominal 95 %.
    Errors: ValueError when the denominators sum to 0.
    """
    top = cluster_sums(np.asarray(numerators, dtype=np.float64), groups)
    bottom = cluster_sums(np.asarray(denominators, dtype=np.float64), groups)
    if bottom.sum() <= 0:
        raise ValueError("the denominators sum to 0: there is no ratio")
    counts = _resamples(int(top.size), replicates, seed)
    tops, bottoms = counts @ top, counts @ bottom
    ratios = np.divide(tops, bottoms, out=np.full(replicates, np.inf), where=bottoms > 0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail], method="inverted_cdf")  # no interpolation: inf - inf is nan
    return Interval(
        estimate=float(top.sum() / bottom.sum()),
        low=float(low),
        high=float(high),
        method="bootstrap of groups",
        clusters=int(top.size),
    )
