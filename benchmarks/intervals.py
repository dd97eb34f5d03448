"""How often the intervals of a pass rate hold the truth, against counting every run as independent.

    python benchmarks/intervals.py [--trials 2000]

Groups are drawn from a population (Beta, or all alike), each has 4 tasks of 4 runs; the truth is the population's
mean rate. Yardstick: the nominal 95 %. `value` is the lowest coverage of `rate_interval` over all shapes, the bar is
90 %: a rare success that comes in clumps (rate .05, correlation .15) is the hardest, its coverage is 92-94 %, and
everything else lies above 93 %. The naive interval over runs is printed beside it.
Prints one JSON line last; exit 1 below the bar. Half a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from flywheel.statistics.intervals import rate_interval, wilson

PER_GROUP, K = 4, 4
BAR = 0.90
SHAPES = [
    (groups, rate, spread) for groups in (6, 12, 24, 48) for rate in (0.05, 0.3, 0.5, 0.9) for spread in (0.0, 0.15)
]
"""Number of groups, true rate, and intra-group correlation: the share of p(1-p) that is between groups."""


def coverage(groups: int, rate: float, spread: float, trials: int, seed: int) -> tuple[float, float]:
    """Share of trials in which (rate_interval, naive Wilson over runs) holds the true rate."""
    random, held, naive = np.random.default_rng(seed), 0, 0
    labels, runs = [g for g in range(groups) for _ in range(PER_GROUP)], [K] * groups * PER_GROUP
    total = sum(runs)
    for _ in range(trials):
        weight = 1 / spread - 1 if spread else 0.0
        group_rates = random.beta(rate * weight, (1 - rate) * weight, groups) if spread else np.full(groups, rate)
        passed = random.binomial(K, np.repeat(group_rates, PER_GROUP))
        interval, simple = rate_interval(passed, runs, labels), wilson(float(passed.sum()) / total, total)
        held += interval.low <= rate <= interval.high
        naive += simple.low <= rate <= simple.high
    return held / trials, naive / trials


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="trials of each shape")
    trials = parser.parse_args().trials
    started = time.monotonic()
    found = {}
    for seed, (groups, rate, spread) in enumerate(SHAPES):
        found[f"{groups} groups, rate {rate}, correlation {spread}"] = coverage(groups, rate, spread, trials, seed)
    for name, (ours, naive) in found.items():
        print(f"{name}: {ours:.3f} (runs as independent: {naive:.3f})", file=sys.stderr)
    worst = min(ours for ours, _ in found.values())
    line = {
        "name": "interval_coverage",
        "value": round(worst, 4),
        "bar": BAR,
        "ok": worst >= BAR,
        "nominal": 0.95,
        "trials": trials,
        "mean": round(float(np.mean([ours for ours, _ in found.values()])), 4),
        "naive_worst": round(min(naive for _, naive in found.values()), 4),
        "worst_at": min(found, key=lambda name: found[name][0]),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(line))
    return 0 if worst >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
