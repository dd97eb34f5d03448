"""The checks that a verdict rests on, each a plain sentence with its numbers.

`validity` asks whether the trial can be believed, `comparisons` whether the candidate is worse or better: a loss
below the margin in every domain, no loss of reliability (pass^k), a gain overall. Not covered: what is told but
decides nothing (`evidence`), the order of the checks and the verdict (`decision`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from flywheel.config import Gate
from flywheel.records import Report
from flywheel.statistics.paired import Difference, holm, paired_difference
from flywheel.statistics.power import Plan, plan_more
from flywheel.statistics.rates import Floats, task_pass_hat_k
from flywheel.statistics.reports import Ints, Pairs

Number = float | int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `passed` None: the evidence shows neither, so it can't promote and doesn't refuse."""

    name: str
    passed: bool | None
    decides: bool = True
    sentence: str
    numbers: Mapping[str, Number]
    more_tasks: int | None = None  # of an undecided check: tasks (at the present k) that would be enough...
    more_runs: int | None = None  # ...which are so many rollouts of each policy


def percent(rate: float) -> str:
    """`61.5%`."""
    return f"{100 * rate:.1f}%"


def points(difference: float) -> str:
    """`+39.1 points`; a difference that rounds to nothing has no sign."""
    text = f"{100 * difference:+.1f} points"
    return text[1:] if float(text.split()[0]) == 0 else text


def validity(candidate: Report, incumbent: Report, pairs: Pairs, policy: Gate) -> tuple[Check, ...]:
    """Whether the trial itself can be believed: oracle, do-nothing agent, infrastructure, number of groups."""
    return (
        _control("oracle", "knows the answer", min(candidate.oracle_pass, incumbent.oracle_pass), 1.0),
        _control("null", "does nothing", max(candidate.null_pass, incumbent.null_pass), 0.0),
        _infra(candidate, incumbent, pairs, policy),
        _groups(pairs, policy),
    )


def _control(name: str, who: str, share: float, wanted: float) -> Check:
    passed = share == wanted
    end = "as it must" if passed else f"and it must be {percent(wanted)}: mend the task set or its verifier"
    return Check(
        name=name,
        passed=passed,
        sentence=f"On this task set an agent that {who} passes {percent(share)} of the tasks, {end}.",
        numbers={"share": share, "wanted": wanted},
    )


def _infra(candidate: Report, incumbent: Report, pairs: Pairs, policy: Gate) -> Check:
    ours, theirs = (sum(r.excluded for r in x.results) / (x.k * len(x.results)) for x in (candidate, incumbent))
    passed = max(ours, theirs) <= policy.max_infra
    gone = f"; {len(pairs.unpaired)} task(s) are left out, one side has no verdict on them" if pairs.unpaired else ""
    end = "" if passed else ": mend the infrastructure and evaluate again"
    return Check(
        name="infra",
        passed=passed,
        sentence=f"No verdict could be had for {percent(ours)} of the candidate's and {percent(theirs)} of the "
        f"incumbent's rollouts ({percent(policy.max_infra)} is allowed){gone}{end}.",
        numbers={
            "candidate": ours,
            "incumbent": theirs,
            "allowed": policy.max_infra,
            "unpaired_tasks": len(pairs.unpaired),
        },
    )


def _groups(pairs: Pairs, policy: Gate) -> Check:
    have, tasks = len(set(pairs.groups)), len(pairs.tasks)
    missing = max(0, policy.min_groups - have)
    more = ceil(missing * tasks / have) if missing and have else None
    end = f"at least {policy.min_groups} groups are needed" + (f": add {missing}" if missing else "")
    return Check(
        name="groups",
        passed=None if missing else True,
        sentence=f"The trial has {tasks} tasks in {have} independent groups; {end}.",
        numbers={"groups": have, "tasks": tasks, "needed": policy.min_groups},
        more_tasks=more,
        more_runs=None if more is None else more * pairs.k,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One paired difference, and what is needed to plan a larger trial of it."""

    name: str
    difference: Difference | None  # None: fewer than two groups, so its error can't be estimated
    noise: Floats | None
    groups: Sequence[Hashable]
    worse: bool = False  # a loss is shown, Holm-adjusted over everything that is compared


def comparisons(pairs: Pairs, policy: Gate) -> tuple[Check, ...]:
    """Non-inferiority of each domain, then reliability, then superiority: the order in which they must hold.

    Non-inferiority of *all* domains is an intersection-union test: each at full alpha. A *loss* may turn up in any
    of the comparisons, so that is Holm-adjusted over them: a candidate that changes nothing is refused with
    probability alpha at most. With one domain, that domain is the overall comparison and counts once.
    """
    domains = sorted(set(pairs.domains))
    found = [_domain(pairs, pairs.where(pairs.domains, name), name, policy) for name in domains]
    if len(domains) > 1:
        found.append(_domain(pairs, np.arange(len(pairs.tasks)), "overall", policy))
    found.append(_reliability(pairs, policy))
    adjusted = holm([1.0 if one.difference is None else one.difference.p_below(0.0) for one in found])
    marked = [replace(one, worse=p <= policy.alpha) for one, p in zip(found, adjusted, strict=True)]
    overall = marked[len(domains)] if len(domains) > 1 else marked[0]
    return (
        *(_non_inferiority(one, pairs, policy) for one in marked[: len(domains)]),
        _not_less_reliable(marked[-1], pairs, policy),
        _superiority(overall, pairs, policy),
    )


def _domain(pairs: Pairs, at: Ints, name: str, policy: Gate) -> Comparison:
    groups = [pairs.groups[i] for i in at]
    return Comparison(
        name=name,
        difference=paired_difference(pairs.differences[at], groups, policy.alpha) if len(set(groups)) > 1 else None,
        noise=None if pairs.noise is None else pairs.noise[at],
        groups=groups,
    )


def _reliability(pairs: Pairs, policy: Gate) -> Comparison:
    k = common_k(pairs)
    d = task_pass_hat_k(pairs.passed_c, pairs.runs_c, k) - task_pass_hat_k(pairs.passed_i, pairs.runs_i, k)
    difference = paired_difference(d, pairs.groups, policy.alpha)
    return Comparison(name="reliability", difference=difference, noise=None, groups=pairs.groups)


def common_k(pairs: Pairs) -> int:
    """The largest k for which every task has k runs with a verdict on both sides."""
    return int(min(pairs.runs_c.min(), pairs.runs_i.min()))


def _non_inferiority(one: Comparison, pairs: Pairs, policy: Gate) -> Check:
    name, limit = f"domain:{one.name}", points(policy.margin).lstrip("+")
    if one.difference is None:
        sentence = f"Domain {one.name} has one group of tasks, which says nothing about its error: add groups."
        return Check(name=name, passed=None, sentence=sentence, numbers={"groups": 1})
    d = one.difference
    passed = True if d.non_inferior(policy.margin) else False if one.worse else None
    says = {True: f"a loss of {limit} or more is ruled out", False: "worse is shown", None: "neither is shown"}[passed]
    plan = None if passed is not None else _plan(one, d.mean + policy.margin, pairs, policy)
    return Check(
        name=name,
        passed=passed,
        sentence=f"Domain {one.name}: {measured(d)}; the margin is {limit}: {says}{_more(plan, passed)}.",
        numbers={**as_numbers(d), "margin": policy.margin, "p": d.p_above(-policy.margin)},
        more_tasks=plan.tasks if plan else None,
        more_runs=plan.runs if plan else None,
    )


def _not_less_reliable(one: Comparison, pairs: Pairs, policy: Gate) -> Check:
    k, d = common_k(pairs), one.difference
    assert d is not None, "validity has asked for at least two groups"
    ours, theirs = (
        float(task_pass_hat_k(passed, runs, k).mean())
        for passed, runs in ((pairs.passed_c, pairs.runs_c), (pairs.passed_i, pairs.runs_i))
    )
    says = "worse is shown" if one.worse else "no loss is shown"
    return Check(
        name="reliability",
        passed=not one.worse,
        sentence=f"All of {k} runs pass (pass^{k}) on {percent(ours)} of tasks, the incumbent's on {percent(theirs)}"
        f"; {measured(d)}: {says}.",
        numbers={"k": k, "candidate": ours, "incumbent": theirs, **as_numbers(d)},
    )


def _superiority(one: Comparison, pairs: Pairs, policy: Gate) -> Check:
    d = one.difference
    assert d is not None, "validity has asked for at least two groups"
    p = d.p_above(0.0)
    passed = True if p <= policy.alpha else False if one.worse else None
    ours, theirs = float((pairs.passed_c / pairs.runs_c).mean()), float((pairs.passed_i / pairs.runs_i).mean())
    says = {True: "better is shown", False: "worse is shown", None: "neither better nor worse is shown"}[passed]
    plan = None if passed is not None else _plan(one, d.mean if d.mean > 0 else policy.margin, pairs, policy)
    return Check(
        name="superiority",
        passed=passed,
        sentence=f"The candidate passes {percent(ours)} of runs and the incumbent {percent(theirs)}; {measured(d)}: "
        f"{says}{_more(plan, passed)}.",
        numbers={**as_numbers(d), "candidate": ours, "incumbent": theirs, "p": p},
        more_tasks=plan.tasks if plan else None,
        more_runs=plan.runs if plan else None,
    )


def _plan(one: Comparison, effect: float, pairs: Pairs, policy: Gate) -> Plan | None:
    if one.difference is None:
        return None
    plan = plan_more(one.difference, one.noise, one.groups, k=pairs.k, effect=effect, power=policy.power)
    return plan if plan and plan.groups else None  # nothing more to ask for: such an effect would have shown already


def _more(plan: Plan | None, passed: bool | None) -> str:
    if passed is not None:
        return ""
    if plan is None:
        return ", and what was measured gives no reason to expect that more runs would show it"
    same = f", or k={plan.k} on the same tasks" if plan.k is not None else ""
    return (
        f"; to show {points(plan.effect)} it needs about {plan.tasks} more tasks in {plan.groups} more groups "
        f"({plan.runs} rollouts of each policy){same}"
    )


def measured(d: Difference) -> str:
    """The difference with its one-sided bounds, as part of a sentence."""
    level = percent(1 - d.alpha).replace(".0%", "%")
    if d.degenerate:
        return f"difference {points(d.mean)}, the same in all {d.clusters} groups"
    return (
        f"difference {points(d.mean)}, one-sided {level} bounds {points(d.low)} and {points(d.high)} "
        f"({d.clusters} groups)"
    )


def as_numbers(d: Difference) -> dict[str, Number]:
    """The numbers behind `measured`."""
    return {
        "difference": d.mean,
        "se": d.se,
        "low": d.low,
        "high": d.high,
        "alpha": d.alpha,
        "groups": d.clusters,
        "tasks": d.tasks,
    }
