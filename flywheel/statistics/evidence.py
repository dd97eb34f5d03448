"""What the gate tells beside its checks, and what decides nothing: second tests, levels, tasks fixed, chance, cost.

A level is an alarm only: many levels are looked at, and a loss at one of them is a reason to look, not a proof
(Holm-adjusted, so that a false alarm at *any* level has probability alpha at most).
"""

from __future__ import annotations

import json
from math import isfinite

import numpy as np

from flywheel.config import Gate
from flywheel.statistics.checks import Check, Number, as_numbers, measured, percent
from flywheel.statistics.intervals import ratio_of_sums
from flywheel.statistics.paired import (
    benjamini_hochberg,
    fisher_one_sided,
    holm,
    mcnemar,
    paired_difference,
    sign_flip_p,
)
from flywheel.statistics.rates import Counts, flip_rates, stability
from flywheel.statistics.reports import Ints, Pairs


def evidence(pairs: Pairs, policy: Gate) -> tuple[Check, ...]:
    """Everything below, for a trial with at least two groups."""
    found = [_sign_flip(pairs, policy)]
    if pairs.k == 1:
        found.append(_mcnemar(pairs, policy))
    found += [*_levels(pairs, policy), _fixed(pairs, policy)]
    if pairs.noise is not None:
        found += [_chance(pairs), _stability(pairs)]
    return (*found, _tokens(pairs, policy))


def _told(name: str, passed: bool | None, sentence: str, numbers: dict[str, Number]) -> Check:
    return Check(name=name, passed=passed, decides=False, sentence=sentence, numbers=numbers)


def _sign_flip(pairs: Pairs, policy: Gate) -> Check:
    p = sign_flip_p(pairs.differences, pairs.groups, "greater")
    says = "agrees that the candidate is better" if p <= policy.alpha else "does not show that the candidate is better"
    sentence = f"Sensitivity: flipping the sign of whole groups gives a one-sided p of {p:.2g}, which {says}."
    return _told("sign-flip", p <= policy.alpha or None, sentence, {"p": p, "alpha": policy.alpha})


def _mcnemar(pairs: Pairs, policy: Gate) -> Check:
    lost = int(np.sum((pairs.passed_i > 0) & (pairs.passed_c == 0)))
    won = int(np.sum((pairs.passed_c > 0) & (pairs.passed_i == 0)))
    test = mcnemar(lost, won)
    sentence = (
        f"Sensitivity: only the candidate passes {won} tasks, only the incumbent {lost}; exact McNemar one-sided p "
        f"{test.one_sided:.2g}, two-sided mid-p {test.mid_p:.2g} (tasks taken as independent)."
    )
    numbers: dict[str, Number] = {"won": won, "lost": lost, "p": test.one_sided, "mid_p": test.mid_p}
    return _told("mcnemar", test.one_sided <= policy.alpha or None, sentence, numbers)


def _levels(pairs: Pairs, policy: Gate) -> list[Check]:
    names = sorted(set(pairs.levels))
    found = {}
    for name in names:
        at = pairs.where(pairs.levels, name)
        groups = [pairs.groups[i] for i in at]
        if len(set(groups)) > 1:
            found[name] = paired_difference(pairs.differences[at], groups, policy.alpha)
    adjusted = dict(zip(found, holm([d.p_below(0.0) for d in found.values()]), strict=True))
    checks = []
    for name in names:
        title = _readable(name)
        if name not in found:
            sentence = f"Level {title}: its tasks are all of one group, so a loss could not be told from chance."
            checks.append(_told(f"level:{title}", None, sentence, {"groups": 1}))
            continue
        alarm = adjusted[name] <= policy.alpha
        says = "ALARM, a loss at this level is shown" if alarm else "no loss is shown"
        sentence = f"Level {title}: {measured(found[name])}: {says}."
        numbers = {**as_numbers(found[name]), "p_adjusted": adjusted[name]}
        checks.append(_told(f"level:{title}", not alarm, sentence, numbers))
    return checks


def _readable(level: str) -> str:
    """A level is the JSON of its axes: `fields 2, style terse`. Any other text stays as it is."""
    try:
        axes = json.loads(level)
    except ValueError:
        return level or "unnamed"
    return ", ".join(f"{axis} {value}" for axis, value in axes.items()) if isinstance(axes, dict) else level


def _fixed(pairs: Pairs, policy: Gate) -> Check:
    failed, solid = pairs.passed_i == 0, pairs.passed_i == pairs.runs_i
    fixed = _shown(pairs.passed_c[failed], pairs.runs_c[failed], pairs.passed_i[failed], pairs.runs_i[failed], policy)
    lost = _shown(pairs.passed_i[solid], pairs.runs_i[solid], pairs.passed_c[solid], pairs.runs_c[solid], policy)
    sentence = (
        f"Of {int(failed.sum())} tasks that the incumbent failed in every run {fixed} are shown fixed, of "
        f"{int(solid.sum())} that it passed in every run {lost} are shown lost (Fisher, one-sided, Benjamini-Hochberg)."
    )
    numbers: dict[str, Number] = {
        "reproducible_failures": int(failed.sum()),
        "fixed": fixed,
        "reproducible_passes": int(solid.sum()),
        "lost": lost,
    }
    return _told("fixed", lost == 0, sentence, numbers)


def _shown(passed_a: Ints, runs_a: Ints, passed_b: Ints, runs_b: Ints, policy: Gate) -> int:
    """How many tasks are individually shown better under a than under b, at a false share of alpha."""
    rows = zip(passed_a, runs_a, passed_b, runs_b, strict=True)
    tests = [fisher_one_sided(int(a), int(n), int(b), int(m)) for a, n, b, m in rows]
    return sum(p <= policy.alpha for p in benjamini_hochberg(tests))


def _chance(pairs: Pairs) -> Check:
    flips = flip_rates(pairs.passed_i, pairs.runs_i)
    gain, loss = flips.pass_given_failed, flips.fail_given_passed
    sentence = (
        f"By chance alone, another run of the incumbent passes {_share(gain)} of the runs it failed and fails "
        f"{_share(loss)} of the runs it passed: that much is neither fix nor regression."
    )
    numbers: dict[str, Number] = {"pass_given_failed": gain, "fail_given_passed": loss, "flip": flips.negative_flip}
    return _told("chance", None, sentence, numbers)


def _share(rate: float | None) -> str:
    return "none" if rate is None else percent(rate)


def _stability(pairs: Pairs) -> Check:
    ours, theirs = stability(pairs.passed_c, pairs.runs_c), stability(pairs.passed_i, pairs.runs_i)
    sentence = (
        f"Stability (1 - std over runs, ddof 0; 1 also for a policy that always fails): {ours:.3f} and {theirs:.3f}."
    )
    return _told("stability", None, sentence, {"candidate": ours, "incumbent": theirs})


def _tokens(pairs: Pairs, policy: Gate) -> Check:
    ours, our_text = _cost(pairs.tokens_c, pairs.passed_c, pairs, policy)
    theirs, their_text = _cost(pairs.tokens_i, pairs.passed_i, pairs, policy)
    sentence = f"Output tokens for each success: candidate {our_text}, incumbent {their_text}."
    return _told("tokens", None, sentence, {"candidate": ours, "incumbent": theirs})


def _cost(tokens: Ints, passed: Counts, pairs: Pairs, policy: Gate) -> tuple[float | None, str]:
    if not np.sum(passed):
        return None, "has no success"
    cost = ratio_of_sums(tokens, np.asarray(passed, dtype=np.int64), pairs.groups, confidence=1 - policy.alpha)
    high = f"{cost.high:.0f}" if isfinite(cost.high) else "no upper bound"
    return cost.estimate, f"{cost.estimate:.0f} ({cost.low:.0f} to {high})"
