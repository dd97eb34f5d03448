"""How many more runs or tasks an undecided comparison needs: the number behind INCONCLUSIVE.

The plan takes the measured difference and variances for the truth, so it is an estimate, not a promise.
Not covered: sequential designs, where one may look in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil, log2, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from flywheel.statistics.paired import TOLERANCE, Difference
from flywheel.statistics.rates import Floats


def required_n(variance: float, delta: float, alpha: float = 0.05, power: float = 0.8, two_sided: bool = True) -> float:
    """Independent units needed to show a difference `delta` when one unit's difference has `variance`.

    Normal approximation (Miller, arXiv 2411.00640): variance = omega^2 + sA^2/KA + sB^2/KB for K runs a task.
    Errors: ValueError unless delta > 0.
    """
    if delta <= 0:
        raise ValueError(f"no number of runs shows a difference of {delta}")
    z = float(ndtri(1 - (alpha / 2 if two_sided else alpha))) + float(ndtri(power))
    return z * z * variance / delta**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be enough to show `effect` with the asked power, one-sided. Numbers are *beyond* what was run."""

    effect: float  # the distance to be shown, in pass rate
    groups: int  # more groups of the present size, at the present k...
    tasks: int  # ...which are so many tasks...
    runs: int  # ...and so many rollouts of each policy
    k: int | None  # or this k on the same tasks; None: no k is enough, the tasks themselves differ too much
    k_runs: int | None  # rollouts of each policy beyond those made, if k is raised instead


def plan_more(
    difference: Difference,
    noise: Sequence[float] | Floats | None,
    groups: Sequence[Hashable],
    *,
    k: int,
    effect: float,
    power: float,
) -> Plan | None:
    """The plan, or None when nothing can be said: no effect to show, or no spread at all to reckon with.

    `noise[t]` is the variance of d[t] that comes from the finite number of runs, sum of W/n over both policies; None
    when k = 1, where it can't be told from real differences between tasks.
    """
    total, alpha = len(groups), difference.alpha
    run_part = 0.0 if noise is None else float(np.sum(noise)) / total**2
    variance = max(difference.se**2, run_part)
    if effect <= TOLERANCE or variance < TOLERANCE**2:
        return None
    have = difference.clusters
    need = _groups_needed(variance * have, effect, alpha, power)
    more = max(0, need - have)
    tasks = ceil(more * total / have)
    higher_k = None
    if noise is not None:
        higher_k = _k_needed(variance - run_part, run_part * k, (effect / _quantiles(have, alpha, power)) ** 2)
    return Plan(
        effect=effect,
        groups=more,
        tasks=tasks,
        runs=tasks * k,
        k=higher_k,
        k_runs=None if higher_k is None else max(0, higher_k - k) * total,
    )


def _quantiles(groups: int, alpha: float, power: float) -> float:
    """How many standard errors the effect must be: t in place of normal quantiles, one-sided."""
    return float(stdtrit(groups - 1, 1 - alpha)) + float(stdtrit(groups - 1, power))


def _groups_needed(variance: float, effect: float, alpha: float, power: float) -> int:
    """Smallest G >= 2 whose error is small enough; never fewer than a sign-flip needs to reach alpha at all."""
    groups = max(2, ceil(log2(1 / alpha)), int(required_n(variance, effect, alpha, power, two_sided=False)))
    while _quantiles(groups, alpha, power) * sqrt(variance / groups) > effect:
        groups += 1
    return groups


def _k_needed(fixed: float, per_run: float, target: float) -> int | None:
    """Smallest k with fixed + per_run / k <= target."""
    if target <= fixed:
        return None
    return max(1, ceil(per_run / (target - fixed) - TOLERANCE))
