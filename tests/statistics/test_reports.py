"""Reports as text, and the comparisons that are refused, each with a sentence that says what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from flywheel.errors import GateError
from flywheel.records import Report
from flywheel.statistics.reports import pair, report_from_json, report_to_json
from flywheel.statistics.simulate import simulated_report

GROUPS = [f"g{t // 4}" for t in range(16)]
OURS = simulated_report("candidate", [0.6] * 16, GROUPS, k=4, seed=1)
THEIRS = simulated_report("incumbent", [0.3] * 16, GROUPS, k=4, seed=2)


def test_a_report_survives_the_way_to_text_and_back() -> None:
    assert report_from_json(report_to_json(OURS)) == OURS
    assert report_to_json(report_from_json(report_to_json(OURS).encode())) == report_to_json(OURS)


def test_unknown_keys_of_a_newer_report_are_ignored() -> None:
    newer = {**json.loads(report_to_json(OURS)), "pass_hat": [0.1]}
    assert report_from_json(json.dumps(newer)) == OURS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "truncated"),
        ('{"k": 4}', "missing required field"),
        (report_to_json(OURS).replace('"k":4', '"k":"4"'), "k"),
    ],
)
def test_what_is_no_report_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(GateError, match=says) as refused:
        report_from_json(text, "data/evals/x/report.json")
    assert "data/evals/x/report.json" in str(refused.value)


def _changed(index: int, **changes: object) -> Report:
    results = list(THEIRS.results)
    results[index] = replace(results[index], **changes)  # type: ignore[arg-type]
    return replace(THEIRS, results=tuple(results))


@pytest.mark.parametrize(
    ("incumbent", "says"),
    [
        (replace(THEIRS, policy="candidate"), "same policy candidate: there is nothing to compare"),
        (replace(THEIRS, taskset_sha256="f" * 64), "different task sets.*evaluate both policies on the same one"),
        (replace(THEIRS, k=8, results=tuple(replace(r, excluded=4) for r in THEIRS.results)), "4 and 8 times"),
        (replace(THEIRS, results=THEIRS.results[:-1]), "differ in 1 task.*task-00015"),
        (_changed(3, task_id="task-other"), "differ in 2 task"),
        (_changed(3, group_id="g9"), "disagree on the group, domain or level of task task-00003"),
        (_changed(3, task_id="task-00002"), "task-00002 stands in the report twice"),
        (_changed(3, passed=5), "5 passed of 4 runs"),
        (_changed(3, runs=3, passed=0), "3 runs with and 0 without a verdict.*finish the evaluation"),
        (replace(THEIRS, results=()), "has no tasks"),
    ],
)
def test_what_can_not_be_compared_is_refused(incumbent: Report, says: str) -> None:
    with pytest.raises(GateError, match=says) as refused:
        pair(OURS, incumbent)
    assert THEIRS.evaluation_id in str(refused.value)


def test_pairs_are_by_task_whatever_the_order_of_the_reports() -> None:
    shuffled = replace(THEIRS, results=tuple(reversed(THEIRS.results)))
    pairs = pair(OURS, shuffled)
    assert pairs.tasks == tuple(sorted(r.task_id for r in OURS.results))
    expected = [(a.passed - b.passed) / 4 for a, b in zip(OURS.results, THEIRS.results, strict=True)]
    assert pairs.differences.tolist() == pytest.approx(expected)


def test_a_task_without_any_verdict_on_one_side_is_left_out_and_named() -> None:
    pairs = pair(OURS, _changed(3, runs=0, passed=0, excluded=4))
    assert pairs.unpaired == ("task-00003",)
    assert len(pairs.tasks) == len(pairs.groups) == 15


def test_noise_is_the_variance_of_the_difference_over_repeated_trials() -> None:
    rates_c, rates_i = np.linspace(0.1, 0.9, 16), np.linspace(0.8, 0.2, 16)
    trials = [
        pair(
            simulated_report("candidate", rates_c, GROUPS, k=4, seed=2 * s),
            simulated_report("incumbent", rates_i, GROUPS, k=4, seed=2 * s + 1),
        )
        for s in range(400)
    ]
    estimated = np.mean([t.noise for t in trials], axis=0)
    truth = (rates_c * (1 - rates_c) + rates_i * (1 - rates_i)) / 4
    assert estimated == pytest.approx(truth, abs=0.02)


def test_one_run_a_task_leaves_the_noise_unknown() -> None:
    once = [simulated_report(name, [0.5] * 16, GROUPS, k=1, seed=s) for name, s in (("candidate", 1), ("incumbent", 2))]
    assert pair(*once).noise is None
