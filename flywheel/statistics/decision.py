"""Promote, reject, or say how much evidence is missing: a pure function of two reports and the gate's policy.

The order is fixed. Validity (oracle, do-nothing agent, infrastructure, groups) comes first, and nothing is compared
in a trial that fails it. Then non-inferiority in every domain, reliability, superiority overall. Worse is shown, or a
check fails: REJECT. All hold: PROMOTE. Otherwise INCONCLUSIVE, with the tasks and runs that would be enough; it never
promotes. Read one decision from top to bottom in its `reasons`.

Not covered: several looks at one candidate (each is a new test at full alpha), safety and cost as grounds of refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flywheel.config import Gate
from flywheel.records import Report
from flywheel.statistics.checks import Check, comparisons, validity
from flywheel.statistics.evidence import evidence
from flywheel.statistics.reports import Pairs, pair

Verdict = Literal["PROMOTE", "REJECT", "INCONCLUSIVE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """The verdict with everything it rests on. `reasons` are the sentences of the checks, the verdict's own first."""

    verdict: Verdict
    candidate: str  # identities of the two policies
    incumbent: str
    candidate_evaluation: str
    incumbent_evaluation: str
    taskset: str
    taskset_sha256: str
    k: int
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]
    more_tasks: int | None  # of INCONCLUSIVE: tasks, at the present k, that would be about enough; None: unknown
    more_runs: int | None  # the same in rollouts of each policy


def decide(candidate: Report, incumbent: Report, policy: Gate) -> GateDecision:
    """Judge a candidate against an incumbent on the same trial.

    Errors: GateError when the reports are not of the same task set, tasks and k, or are of the same policy.
    """
    pairs = pair(candidate, incumbent)
    checks = _checks(candidate, incumbent, pairs, policy)
    deciding = [check for check in checks if check.decides]
    verdict = _verdict(deciding)
    open_checks = [check for check in deciding if check.passed is None] if verdict == "INCONCLUSIVE" else []
    more_tasks, more_runs = _largest([c.more_tasks for c in open_checks]), _largest([c.more_runs for c in open_checks])
    return GateDecision(
        verdict=verdict,
        candidate=candidate.policy,
        incumbent=incumbent.policy,
        candidate_evaluation=candidate.evaluation_id,
        incumbent_evaluation=incumbent.evaluation_id,
        taskset=candidate.taskset,
        taskset_sha256=candidate.taskset_sha256,
        k=candidate.k,
        checks=checks,
        reasons=(_headline(verdict, deciding, more_tasks, more_runs), *(check.sentence for check in checks)),
        more_tasks=more_tasks,
        more_runs=more_runs,
    )


def _checks(candidate: Report, incumbent: Report, pairs: Pairs, policy: Gate) -> tuple[Check, ...]:
    first = validity(candidate, incumbent, pairs, policy)
    if not all(check.passed for check in first):
        return first
    return (*first, *comparisons(pairs, policy), *evidence(pairs, policy))


def _verdict(deciding: Sequence[Check]) -> Verdict:
    if any(check.passed is False for check in deciding):
        return "REJECT"
    if any(check.passed is None for check in deciding):
        return "INCONCLUSIVE"
    return "PROMOTE"


def _largest(needs: Sequence[int | None]) -> int | None:
    """What satisfies every open check; unknown as soon as one of them is."""
    known = [need for need in needs if need is not None]
    return max(known) if known and len(known) == len(needs) else None


def _headline(verdict: Verdict, deciding: Sequence[Check], more_tasks: int | None, more_runs: int | None) -> str:
    if verdict == "PROMOTE":
        return f"PROMOTE: all {len(deciding)} checks hold."
    if verdict == "REJECT":
        failed = [check.name for check in deciding if check.passed is False]
        return f"REJECT: {', '.join(failed)} failed; the incumbent stays."
    undecided = [check.name for check in deciding if check.passed is None]
    need = "more runs of this kind are not expected to settle it"
    if more_tasks is not None:
        need = f"about {more_tasks} more tasks ({more_runs} rollouts of each policy) would settle it"
    return f"INCONCLUSIVE: {', '.join(undecided)} undecided; {need}; the incumbent stays."
