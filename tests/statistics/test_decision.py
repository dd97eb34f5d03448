"""The gate on trials whose truth is known: it promotes, refuses, and says how much is missing."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from flywheel.config import Gate
from flywheel.records import Report
from flywheel.statistics.decision import GateDecision, decide
from flywheel.statistics.simulate import simulated_report

POLICY = Gate()
N_GROUPS, PER_GROUP, K = 12, 4, 4  # the demo's trial
T = N_GROUPS * PER_GROUP
GROUPS = [f"phrasing-{t // PER_GROUP:02d}" for t in range(T)]
LEVELS = [("easy", "middle", "hard")[t % 3] for t in range(T)]


def report(policy: str, rates: object, seed: int, **changes: object) -> Report:
    options: dict[str, object] = {"k": K, "levels": LEVELS, **changes}
    return simulated_report(policy, np.broadcast_to(np.asarray(rates), T), GROUPS, seed=seed, **options)  # type: ignore[arg-type]


def exactly(policy: str, passed: list[int], **changes: object) -> Report:
    """A report with these very counts."""
    empty = report(policy, 0.0, seed=0, **changes)
    results = tuple(replace(r, passed=c) for r, c in zip(empty.results, passed, strict=True))
    return replace(empty, results=results)


def check(decision: GateDecision, name: str) -> object:
    return {c.name: c for c in decision.checks}[name].passed


def test_a_real_gain_is_promoted_with_every_number_in_a_sentence() -> None:
    decision = decide(report("candidate", 0.6, 1), report("incumbent", 0.2, 2), POLICY)
    assert decision.verdict == "PROMOTE"
    assert [c.name for c in decision.checks if c.decides] == [
        "oracle", "null", "infra", "groups", "domain:simulated", "reliability", "superiority",
    ]  # fmt: skip
    assert all(c.passed is True for c in decision.checks if c.decides)
    assert (decision.more_tasks, decision.more_runs) == (None, None)
    shown = next(c for c in decision.checks if c.name == "superiority")
    assert f"{100 * shown.numbers['difference']:+.1f} points" in shown.sentence  # type: ignore[operator]
    assert "12 groups" in shown.sentence
    assert decision.reasons == ("PROMOTE: all 7 checks hold.", *(c.sentence for c in decision.checks))
    json.dumps(asdict(decision), allow_nan=False)


def test_a_worse_candidate_is_refused() -> None:
    decision = decide(report("candidate", 0.2, 1), report("incumbent", 0.6, 2), POLICY)
    assert decision.verdict == "REJECT"
    assert check(decision, "domain:simulated") is False
    assert check(decision, "superiority") is False
    assert decision.reasons[0].startswith("REJECT: domain:simulated, superiority failed")


def test_a_gain_overall_does_not_pay_for_a_loss_in_one_domain() -> None:
    domains = ["documents" if t % 4 else "math" for t in range(T)]
    rates = np.where(np.array(domains) == "math", 0.25, 0.9)
    decision = decide(
        report("candidate", rates, 1, domains=domains), report("incumbent", 0.55, 2, domains=domains), POLICY
    )
    assert check(decision, "superiority") is True
    assert check(decision, "domain:documents") is True
    assert check(decision, "domain:math") is False
    assert decision.verdict == "REJECT"
    assert "math" in decision.reasons[0]


def test_a_domain_that_shows_neither_keeps_a_gain_from_promotion() -> None:
    domains = ["documents" if t % 4 else "math" for t in range(T)]
    rates = np.where(np.array(domains) == "math", 0.5, 0.9)
    decision = decide(
        report("candidate", rates, 5, domains=domains), report("incumbent", 0.5, 6, domains=domains), POLICY
    )
    assert check(decision, "superiority") is True
    assert check(decision, "domain:math") is None
    assert decision.verdict == "INCONCLUSIVE"


def test_one_group_in_a_domain_is_no_evidence_about_it() -> None:
    domains = ["math" if g == "phrasing-00" else "documents" for g in GROUPS]
    decision = decide(
        report("candidate", 0.8, 1, domains=domains), report("incumbent", 0.2, 2, domains=domains), POLICY
    )
    assert check(decision, "domain:math") is None
    assert decision.verdict == "INCONCLUSIVE"
    assert decision.more_runs is None


def test_a_small_gain_is_inconclusive_and_the_runs_it_asks_for_would_show_it() -> None:
    decision = decide(report("candidate", 0.33, 13), report("incumbent", 0.28, 14), POLICY)
    assert decision.verdict == "INCONCLUSIVE"
    assert decision.more_runs is not None
    assert decision.more_tasks is not None
    assert decision.more_runs == decision.more_tasks * K > 0
    assert (
        f"about {decision.more_tasks} more tasks ({decision.more_runs} rollouts of each policy)" in decision.reasons[0]
    )
    gain = next(c for c in decision.checks if c.name == "superiority").numbers["difference"]
    assert isinstance(gain, float)
    total = T + decision.more_tasks
    groups = [f"g{t // PER_GROUP}" for t in range(total)]
    verdicts = [
        decide(
            simulated_report("candidate", [0.28 + gain] * total, groups, k=K, seed=2 * s),
            simulated_report("incumbent", [0.28] * total, groups, k=K, seed=2 * s + 1),
            POLICY,
        ).verdict
        for s in range(40)
    ]
    assert verdicts.count("PROMOTE") / 40 >= 0.8 - 3 * (0.8 * 0.2 / 40) ** 0.5


def test_without_a_gain_so_far_the_plan_is_for_a_gain_of_the_margin() -> None:
    decision = decide(report("candidate", 0.5, 5), report("incumbent", 0.5, 3), POLICY)
    shown = next(c for c in decision.checks if c.name == "superiority")
    assert isinstance(shown.numbers["difference"], float)
    assert shown.numbers["difference"] < 0
    assert shown.passed is None
    assert "to show +5.0 points it needs about" in shown.sentence
    assert shown.more_tasks is not None


def test_where_a_gain_would_have_shown_already_no_more_is_asked_for() -> None:
    groups = [f"g{t // PER_GROUP}" for t in range(4000)]
    ours, theirs = (
        simulated_report(name, [0.5] * 4000, groups, k=K, seed=seed)
        for name, seed in (("candidate", 3), ("incumbent", 4))
    )
    decision = decide(ours, theirs, POLICY)
    gain = next(c for c in decision.checks if c.name == "superiority").numbers["difference"]
    assert isinstance(gain, float)
    assert gain < 0
    assert (decision.verdict, decision.more_tasks, decision.more_runs) == ("INCONCLUSIVE", None, None)
    assert "no reason to expect" in " ".join(decision.reasons)


def test_equal_counts_everywhere_are_not_promoted_and_more_of_the_same_is_not_asked_for() -> None:
    decision = decide(exactly("candidate", [4, 0] * 24), exactly("incumbent", [4, 0] * 24), POLICY)
    assert decision.verdict == "INCONCLUSIVE"
    assert decision.more_runs is None
    assert "not expected to settle it" in decision.reasons[0]
    assert "the same in all 12 groups" in " ".join(decision.reasons)


def test_the_same_gain_in_every_group_is_judged_by_sign_flips_not_by_a_zero_error() -> None:
    ours, theirs = exactly("candidate", [3] * T), exactly("incumbent", [2] * T)
    assert decide(ours, theirs, POLICY).verdict == "PROMOTE"  # 2^-12
    strict = Gate(alpha=2.0**-13)
    assert decide(ours, theirs, strict).verdict == "INCONCLUSIVE"
    assert check(decide(theirs, replace(ours, policy="other"), POLICY), "superiority") is False


def test_too_few_groups_rest_no_verdict_however_large_the_gain() -> None:
    few = Gate(min_groups=20)
    decision = decide(report("candidate", 1.0, 1), report("incumbent", 0.0, 2), few)
    assert decision.verdict == "INCONCLUSIVE"
    assert decision.more_tasks == 8 * PER_GROUP
    assert decision.more_runs == 8 * PER_GROUP * K
    assert [c.name for c in decision.checks] == ["oracle", "null", "infra", "groups"]
    assert decide(report("candidate", 0.0, 1), report("incumbent", 1.0, 2), few).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("changes", "failed"),
    [({"oracle_pass": 0.98}, "oracle"), ({"null_pass": 0.02}, "null")],
)
def test_a_faulty_task_set_refuses_before_anything_is_compared(changes: dict[str, float], failed: str) -> None:
    ours, theirs = report("candidate", 0.9, 1), report("incumbent", 0.1, 2)
    for pair in ((replace(ours, **changes), theirs), (ours, replace(theirs, **changes))):  # type: ignore[arg-type]
        decision = decide(*pair, POLICY)
        assert decision.verdict == "REJECT"
        assert decision.reasons[0] == f"REJECT: {failed} failed; the incumbent stays."
        assert "superiority" not in {c.name for c in decision.checks}


def test_missing_verdicts_are_excluded_up_to_the_allowed_share_and_then_refuse() -> None:
    theirs = report("incumbent", 0.2, 2)
    some, many = report("candidate", 0.7, 1, infra=0.02), report("candidate", 0.7, 1, infra=0.2)
    assert sum(r.excluded for r in some.results) > 0
    assert decide(some, theirs, POLICY).verdict == "PROMOTE"
    refused = decide(many, theirs, POLICY)
    assert refused.verdict == "REJECT"
    assert check(refused, "infra") is False


def test_a_missing_verdict_is_no_failure() -> None:
    ours = report("candidate", 1.0, 1, infra=0.04)
    assert all(r.passed == r.runs for r in ours.results)
    shown = next(c for c in decide(ours, report("incumbent", 0.2, 2), POLICY).checks if c.name == "superiority")
    assert shown.numbers["candidate"] == 1.0


def test_a_loss_of_reliability_is_refused_though_the_mean_rose() -> None:
    # The incumbent passes half of the tasks always; the candidate passes each sometimes.
    decision = decide(exactly("candidate", [3] * T), exactly("incumbent", [4, 0] * 24), POLICY)
    assert check(decision, "superiority") is True
    assert check(decision, "reliability") is False
    assert decision.verdict == "REJECT"


def test_a_loss_at_one_level_is_an_alarm_and_decides_nothing() -> None:
    rates = np.where(np.array(LEVELS) == "hard", 0.2, 0.95)
    decision = decide(report("candidate", rates, 1), report("incumbent", 0.5, 2), POLICY)
    assert check(decision, "level:hard") is False
    assert check(decision, "level:easy") is True
    assert any("ALARM" in reason for reason in decision.reasons)
    assert decision.verdict == "PROMOTE"


def test_evidence_that_decides_nothing_is_told() -> None:
    decision = decide(exactly("candidate", [4] * 40 + [0] * 8), exactly("incumbent", [0] * 40 + [4] * 8), POLICY)
    told = {c.name: c for c in decision.checks if not c.decides}
    assert told["fixed"].numbers == {"reproducible_failures": 40, "fixed": 40, "reproducible_passes": 8, "lost": 8}
    assert told["tokens"].numbers == {"candidate": 40 * T / 40, "incumbent": 40 * T / 8}
    assert told["chance"].numbers["flip"] == 0.0
    assert told["sign-flip"].passed is True


def test_a_level_given_by_its_axes_is_told_in_words() -> None:
    levels = ['{"fields":2,"style":"terse"}'] * 24 + ["7"] * 12 + [""] * 8 + ["{odd"] * 4
    decision = decide(report("candidate", 0.6, 1, levels=levels), report("incumbent", 0.2, 2, levels=levels), POLICY)
    told = {c.name: c.sentence for c in decision.checks if c.name.startswith("level:")}
    assert set(told) == {"level:fields 2, style terse", "level:7", "level:unnamed", "level:{odd"}
    assert told["level:fields 2, style terse"].startswith("Level fields 2, style terse: difference +")
    assert "all of one group" in told["level:{odd"]


def test_one_lucky_task_among_many_is_not_called_fixed() -> None:
    decision = decide(exactly("candidate", [4] + [0] * 47), exactly("incumbent", [0] * T), POLICY)
    assert next(c for c in decision.checks if c.name == "fixed").numbers["fixed"] == 0  # p is .014, times 48 tasks


def test_many_levels_do_not_make_a_false_alarm_likely() -> None:
    levels, alarms = [f"level-{t % 8}" for t in range(T)], 0
    for seed in range(200):
        reports = [report(name, 0.5, 2 * seed + n, levels=levels) for n, name in enumerate(("candidate", "incumbent"))]
        alarms += any(c.passed is False for c in decide(*reports, POLICY).checks if c.name.startswith("level:"))
    assert alarms / 200 <= POLICY.alpha + 3 * (POLICY.alpha * (1 - POLICY.alpha) / 200) ** 0.5


def test_one_run_a_task_is_judged_and_adds_mcnemar() -> None:
    decision = decide(report("candidate", 0.9, 1, k=1), report("incumbent", 0.1, 2, k=1), POLICY)
    assert decision.verdict == "PROMOTE"
    names = {c.name for c in decision.checks}
    assert "mcnemar" in names
    assert not names & {"chance", "stability"}


def test_a_policy_without_any_success_has_no_cost_of_success() -> None:
    decision = decide(report("candidate", 0.5, 1), report("incumbent", 0.0, 2), POLICY)
    told = next(c for c in decision.checks if c.name == "tokens")
    assert told.numbers["incumbent"] is None
    assert "has no success" in told.sentence


def test_sentences_are_sentences() -> None:
    for ours in (0.1, 0.3, 0.8):
        for reason in decide(report("candidate", ours, 1), report("incumbent", 0.3, 2), POLICY).reasons:
            assert re.fullmatch(r"[A-Z].*\.", reason), reason
            assert not re.search(r"None|nan|inf\b|\[|\{|;;|  ", reason), reason


def test_the_same_reports_give_the_same_decision() -> None:
    ours, theirs = report("candidate", 0.4, 1), report("incumbent", 0.3, 2)
    assert decide(ours, theirs, POLICY) == decide(ours, theirs, POLICY)


def _verdicts(gain: float, times: int, seed: int) -> list[str]:
    """Trials of the demo's shape; tasks differ much (Beta .6 .8), groups differ, and so does what training gains."""
    random, found = np.random.default_rng(seed), []
    for trial in range(times):
        base = np.clip(random.beta(0.6, 0.8, T) * 0.7 + np.repeat(random.normal(0, 0.05, N_GROUPS), PER_GROUP), 0, 1)
        ours = np.clip(base + gain, 0, 1)
        found.append(
            decide(report("candidate", ours, 2 * trial), report("incumbent", base, 2 * trial + 1), POLICY).verdict
        )
    return found


def test_a_candidate_that_changes_nothing_is_promoted_or_refused_no_more_often_than_alpha() -> None:
    times = 400
    verdicts = _verdicts(0.0, times, seed=1)
    allowed = POLICY.alpha + 3 * (POLICY.alpha * (1 - POLICY.alpha) / times) ** 0.5
    assert verdicts.count("PROMOTE") / times <= allowed
    assert verdicts.count("REJECT") / times <= allowed
    assert verdicts.count("INCONCLUSIVE") / times >= 1 - 2 * allowed


def test_a_real_gain_is_mostly_promoted_and_a_real_loss_never() -> None:
    gained, lost = _verdicts(0.2, 100, seed=2), _verdicts(-0.2, 100, seed=3)
    assert gained.count("PROMOTE") >= 90
    assert "REJECT" not in gained
    assert lost.count("REJECT") >= 70
    assert "PROMOTE" not in lost
