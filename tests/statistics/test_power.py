"""Planned sizes against Miller's table, and by simulating the trial that was planned."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import numpy as np
import pytest

from flywheel.statistics.paired import Difference, paired_difference
from flywheel.statistics.power import plan_more, required_n

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text(encoding="utf-8"))
MILLER = {**GOLDEN["miller_n"][0]}


@pytest.mark.parametrize("row", GOLDEN["miller_n"])
def test_miller_golden(row: dict[str, float]) -> None:
    k = inf if row["K"] == "inf" else float(row["K"])
    variance = MILLER["omega2"] + MILLER["sA2"] / k + MILLER["sB2"] / k
    assert required_n(variance, MILLER["delta"]) == pytest.approx(row["n"], abs=0.02)


def test_non_inferiority_size_of_single_runs() -> None:
    assert required_n(0.2, 0.05, two_sided=False) == pytest.approx(494.6, abs=0.1)  # discordance .2, margin .05


def _trial(random: np.random.Generator, groups: int, k: int, gain: float = 0.1) -> Difference:
    """Candidate beats incumbent by `gain`, more in some groups than in others; 4 tasks a group."""
    base = np.repeat(random.uniform(0.2, 0.6, groups), 4)
    effect = np.repeat(random.normal(gain, 0.05, groups), 4)
    d = (random.binomial(k, np.clip(base + effect, 0, 1)) - random.binomial(k, base)) / k
    return paired_difference(d, np.repeat(np.arange(groups), 4))


def test_the_planned_number_of_groups_gives_the_asked_power() -> None:
    random = np.random.default_rng(0)
    # The variance is averaged over pilots, so that the test is of the formula and not of one lucky pilot.
    se = float(np.sqrt(np.mean([_trial(random, 12, 4).se ** 2 for _ in range(300)])))
    pilot = Difference(mean=0.1, se=se, clusters=12, tasks=48, alpha=0.05)
    plan = plan_more(pilot, None, range(48), k=4, effect=0.1, power=0.8)
    assert plan is not None
    assert plan.tasks == 4 * plan.groups
    assert plan.runs == 4 * plan.tasks
    shown = sum(_trial(random, 12 + plan.groups, 4).p_above(0.0) <= 0.05 for _ in range(600)) / 600
    assert shown == pytest.approx(0.8, abs=0.06)


def test_a_higher_k_on_the_same_tasks_is_planned_where_the_noise_is_in_the_runs() -> None:
    noise = np.full(48, 2 * 0.2 / 4)  # within-task variance .2 a run, k = 4, both policies
    se = float(np.sqrt(noise.sum())) / 48
    pilot = Difference(mean=0.05, se=se, clusters=12, tasks=48, alpha=0.05)
    plan = plan_more(pilot, noise, range(48), k=4, effect=0.05, power=0.8)
    assert plan is not None
    assert plan.k is not None
    needed = (0.05 / (1.7959 + 0.8755)) ** 2  # variance at which .05 is a t_11 quantile at .95 plus one at .8
    assert se**2 * 4 / plan.k <= needed < se**2 * 4 / (plan.k - 1)
    assert plan.k_runs == (plan.k - 4) * 48


def test_no_k_is_enough_where_the_tasks_differ_too_much() -> None:
    pilot = Difference(mean=0.02, se=0.05, clusters=12, tasks=48, alpha=0.05)
    plan = plan_more(pilot, np.full(48, 1e-4), range(48), k=4, effect=0.02, power=0.8)
    assert plan is not None
    assert (plan.k, plan.k_runs) == (None, None)
    assert plan.groups > 100


def test_a_luckily_small_error_does_not_hide_the_noise_of_the_runs() -> None:
    noise = np.full(48, 0.1)
    lucky = Difference(mean=0.05, se=0.001, clusters=12, tasks=48, alpha=0.05)
    usual = Difference(mean=0.05, se=float(np.sqrt(noise.sum())) / 48, clusters=12, tasks=48, alpha=0.05)
    plans = [plan_more(one, noise, range(48), k=4, effect=0.05, power=0.8) for one in (lucky, usual)]
    assert plans[0] == plans[1]
    assert plans[0] is not None
    assert plans[0].groups > 0


def test_a_plan_has_groups_enough_for_a_sign_flip_to_reach_alpha() -> None:
    alike = Difference(mean=0.5, se=1e-6, clusters=4, tasks=16, alpha=0.001)
    plan = plan_more(alike, None, range(16), k=1, effect=0.5, power=0.8)
    assert plan is not None
    assert 4 + plan.groups == 10  # 2^-10 is the first power of two below .001


def test_nothing_is_planned_without_an_effect_or_without_any_spread() -> None:
    some = Difference(mean=0.0, se=0.05, clusters=12, tasks=48, alpha=0.05)
    none = Difference(mean=0.0, se=0.0, clusters=12, tasks=48, alpha=0.05)
    assert plan_more(some, None, range(48), k=4, effect=0.0, power=0.8) is None
    assert plan_more(none, np.zeros(48), range(48), k=4, effect=0.05, power=0.8) is None


def test_no_number_of_units_shows_nothing() -> None:
    with pytest.raises(ValueError, match="no number of runs"):
        required_n(0.2, 0.0)
