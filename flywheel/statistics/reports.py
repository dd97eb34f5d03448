"""Evaluation reports as text, and two of them laid side by side task by task.

`report_from_json` and `report_to_json` are the one door between `report.json` and `records.Report`. `pair` refuses
what can't be compared: a comparison of unlike things has a number too, and the number would be believed.

Not covered: what the pairs say (`checks`), where files lie (the verbs).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from flywheel.errors import GateError
from flywheel.records import Report, TaskResult, canonical_json
from flywheel.statistics.rates import Floats, within_variances

Ints = NDArray[np.int64]


def report_to_json(report: Report) -> str:
    """The report as canonical JSON, so that equal reports are equal bytes."""
    return canonical_json(asdict(report))


def report_from_json(text: str | bytes, where: str = "this text") -> Report:
    """Read a report; `where` names it in errors. Unknown keys are ignored. Errors: GateError naming the field."""
    try:
        return msgspec.json.decode(text, type=Report)
    except msgspec.DecodeError as error:
        raise GateError(f"{where} is not an evaluation report: {error}; evaluate the policy again") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Tasks that both policies have a verdict on, in order of task id. Arrays have shape (tasks,)."""

    k: int  # runs asked of each task; the counts below may be smaller by rollouts without a verdict
    tasks: tuple[str, ...]
    groups: tuple[str, ...]
    domains: tuple[str, ...]
    levels: tuple[str, ...]
    passed_c: Ints  # candidate
    runs_c: Ints
    passed_i: Ints  # incumbent
    runs_i: Ints
    tokens_c: Ints
    tokens_i: Ints
    unpaired: tuple[str, ...]  # tasks left out: one of the two has no verdict at all

    @property
    def differences(self) -> Floats:
        """Candidate minus incumbent pass rate, per task."""
        return np.asarray(self.passed_c / self.runs_c - self.passed_i / self.runs_i, dtype=np.float64)

    @property
    def noise(self) -> Floats | None:
        """Variance of each difference that is due to the finite number of runs; None if a task was run once."""
        if int(min(self.runs_c.min(), self.runs_i.min())) < 2:
            return None
        within_c, within_i = within_variances(self.passed_c, self.runs_c), within_variances(self.passed_i, self.runs_i)
        return np.asarray(within_c / self.runs_c + within_i / self.runs_i, dtype=np.float64)

    def where(self, labels: tuple[str, ...], label: str) -> NDArray[np.int64]:
        """Positions of the tasks whose entry in `labels` (domains or levels) is `label`."""
        return np.flatnonzero(np.array(labels) == label)


def pair(candidate: Report, incumbent: Report) -> Pairs:
    """Lay two reports side by side. Errors: GateError when they are not of the same trial, or of the same policy."""
    both = f"evaluations {candidate.evaluation_id} and {incumbent.evaluation_id}"
    if candidate.policy == incumbent.policy:
        raise GateError(f"{both} are of the same policy {candidate.policy[:12]}: there is nothing to compare")
    if candidate.taskset_sha256 != incumbent.taskset_sha256:
        raise GateError(
            f"{both} judged different task sets, {candidate.taskset} ({candidate.taskset_sha256[:12]}) and "
            f"{incumbent.taskset} ({incumbent.taskset_sha256[:12]}): evaluate both policies on the same one"
        )
    if candidate.k != incumbent.k:
        raise GateError(f"{both} ran each task {candidate.k} and {incumbent.k} times: evaluate both with the same k")
    ours, theirs = _by_task(candidate), _by_task(incumbent)
    if odd := sorted(ours.keys() ^ theirs.keys()):
        raise GateError(f"{both} differ in {len(odd)} task(s), such as {odd[0]}: evaluate both on the same task set")
    for task_id, result in ours.items():
        other = theirs[task_id]
        if (result.group_id, result.domain, result.level) != (other.group_id, other.domain, other.level):
            raise GateError(f"{both} disagree on the group, domain or level of task {task_id}: evaluate both again")
    return _lay(ours, theirs, candidate.k)


def _by_task(report: Report) -> dict[str, TaskResult]:
    """Results by task id, each checked: k runs accounted for, no task twice, no impossible count."""
    results: dict[str, TaskResult] = {}
    for result in report.results:
        name = f"evaluation {report.evaluation_id}, task {result.task_id}"
        if result.task_id in results:
            raise GateError(f"{name} stands in the report twice: evaluate the policy again")
        if not 0 <= result.passed <= result.runs or result.excluded < 0:
            raise GateError(f"{name}: {result.passed} passed of {result.runs} runs can't be: evaluate the policy again")
        if result.runs + result.excluded != report.k:
            raise GateError(
                f"{name} has {result.runs} runs with and {result.excluded} without a verdict, and not the k={report.k} "
                "that the report claims: finish the evaluation first"
            )
        results[result.task_id] = result
    if not results:
        raise GateError(f"evaluation {report.evaluation_id} has no tasks: evaluate the policy on a task set")
    return results


def _lay(ours: dict[str, TaskResult], theirs: dict[str, TaskResult], k: int) -> Pairs:
    tasks = tuple(sorted(t for t in ours if ours[t].runs and theirs[t].runs))
    mine, other = [ours[t] for t in tasks], [theirs[t] for t in tasks]

    def column(rows: list[TaskResult], name: str) -> Ints:
        return np.array([getattr(row, name) for row in rows], dtype=np.int64)

    return Pairs(
        k=k,
        tasks=tasks,
        groups=tuple(r.group_id for r in mine),
        domains=tuple(r.domain for r in mine),
        levels=tuple(r.level for r in mine),
        passed_c=column(mine, "passed"),
        runs_c=column(mine, "runs"),
        passed_i=column(other, "passed"),
        runs_i=column(other, "runs"),
        tokens_c=column(mine, "output_tokens"),
        tokens_i=column(other, "output_tokens"),
        unpaired=tuple(sorted(ours.keys() - set(tasks))),
    )
