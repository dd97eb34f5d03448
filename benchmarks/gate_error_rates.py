"""How often the gate is wrong, on simulated trials of the demo's shape (48 tasks, 12 groups, k = 4).

    python benchmarks/gate_error_rates.py [--trials 1000]

Yardstick: with a candidate that changes nothing, PROMOTE and REJECT each at most alpha (5 %), whatever the base rate
and however tasks and groups differ; the bar adds three Monte Carlo standard errors. A gain of 20 points is promoted
in at least 90 % of trials, and a loss of 20 points never. Told and not judged: `skewed`, where the mean gain is 0 but
a quarter of all groups loses much and the others gain a little; with few groups t errs most often there.
Prints one JSON line last; exit 1 below a bar. About a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from flywheel.config import Gate
from flywheel.statistics.decision import decide
from flywheel.statistics.rates import Floats
from flywheel.statistics.simulate import simulated_report

GROUPS, PER_GROUP = 12, 4
TASKS = GROUPS * PER_GROUP
LABELS = [f"g{t // PER_GROUP:02d}" for t in range(TASKS)]
LEVELS = [("easy", "middle", "hard")[t % 3] for t in range(TASKS)]
POLICY = Gate()

Random = np.random.Generator
Truth = Callable[[Random], tuple[Floats, Floats]]
"""Draws the true pass rates (candidate, incumbent) of one trial's tasks."""


def same(draw: Callable[[Random], Floats]) -> Truth:
    """A candidate that changes nothing."""

    def truth(random: Random) -> tuple[Floats, Floats]:
        rates = np.clip(draw(random), 0, 1)
        return rates, rates

    return truth


def mixed(random: Random) -> Floats:
    """Tasks from hopeless to easy, as in real task sets; groups differ."""
    return random.beta(0.6, 0.8, TASKS) + per_group(random.normal(0, 0.1, GROUPS))


def per_group(values: Floats) -> Floats:
    return np.repeat(values, PER_GROUP)


def shifted(gain: float) -> Truth:
    """A candidate that gains (or loses) the same in the middle of the scale everywhere."""

    def truth(random: Random) -> tuple[Floats, Floats]:
        base = 0.1 + 0.6 * random.beta(0.6, 0.8, TASKS)
        return (base + gain, base) if gain >= 0 else (base, base - gain)

    return truth


def trade(random: Random) -> tuple[Floats, Floats]:
    """Some groups gain and as many lose: no gain on average."""
    base = np.full(TASKS, 0.5)
    return base + per_group(random.choice([-0.15, 0.15], GROUPS)), base


def skewed(random: Random) -> tuple[Floats, Floats]:
    """A quarter of the groups loses 30 points, the others gain 10: no gain on average."""
    base = np.full(TASKS, 0.5)
    return base + per_group(np.where(random.random(GROUPS) < 0.25, -0.3, 0.1)), base


NULLS: dict[str, tuple[Truth, dict[str, object]]] = {
    "mixed tasks": (same(mixed), {}),
    "base rate 2%": (same(lambda random: np.full(TASKS, 0.02)), {}),
    "base rate 97%": (same(lambda random: np.full(TASKS, 0.97)), {}),
    "groups all or nothing": (same(lambda random: per_group(random.beta(0.2, 0.2, GROUPS))), {}),
    "two domains": (same(mixed), {"domains": [("documents", "math")[t % 2] for t in range(TASKS)]}),
    "one run a task": (same(mixed), {"k": 1}),
    "2% without verdict": (same(mixed), {"infra": 0.02}),
    "groups trade": (trade, {}),
}


def verdicts(truth: Truth, trials: int, seed: int, options: dict[str, object]) -> dict[str, float]:
    """Share of each verdict over seeded trials."""
    random, found = np.random.default_rng(seed), Counter[str]()
    for _ in range(trials):
        ours, theirs = truth(random)
        settings = {"k": 4, "levels": LEVELS, **options}
        reports = [
            simulated_report(name, rates, LABELS, seed=int(random.integers(2**31)), **settings)  # type: ignore[arg-type]
            for name, rates in (("candidate", ours), ("incumbent", theirs))
        ]
        found[decide(reports[0], reports[1], POLICY).verdict] += 1
    return {name: found[name] / trials for name in ("PROMOTE", "REJECT", "INCONCLUSIVE")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="trials of each null (powers take a fifth)")
    trials = parser.parse_args().trials
    started = time.monotonic()
    nulls = {}
    for seed, (name, (truth, options)) in enumerate(NULLS.items()):
        nulls[name] = verdicts(truth, trials, seed, options)
        print(f"no change, {name}: {nulls[name]}", file=sys.stderr)
    power = {points: verdicts(shifted(points / 100), trials // 5, 100 + points, {}) for points in (5, 10, 20, -20)}
    worst = max(max(shares["PROMOTE"], shares["REJECT"]) for shares in nulls.values())
    bar = POLICY.alpha + 3 * (POLICY.alpha * (1 - POLICY.alpha) / trials) ** 0.5
    ok = worst <= bar and power[20]["PROMOTE"] >= 0.9 and power[-20]["PROMOTE"] == 0
    line = {
        "name": "gate_error_rates",
        "value": round(worst, 4),
        "bar": round(bar, 4),
        "ok": ok,
        "alpha": POLICY.alpha,
        "trials": trials,
        "promote_without_change": {name: round(shares["PROMOTE"], 4) for name, shares in nulls.items()},
        "reject_without_change": {name: round(shares["REJECT"], 4) for name, shares in nulls.items()},
        "promote_at_gain": {f"{points:+d} points": round(shares["PROMOTE"], 3) for points, shares in power.items()},
        "reject_at_loss_of_20": round(power[-20]["REJECT"], 3),
        "promote_skewed": round(verdicts(skewed, trials, 99, {})["PROMOTE"], 4),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(line))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
