"""Making and admitting task sets: the same arguments give the same folder, and a task at fault never gets in.

Admitted means: the oracle passes every task, an agent that does nothing passes none, no task stands twice, and no
group of a split stands in a set of another split. The clustered statistics and the split rest on the last one.

Not covered: versions (DVC) and the lake's `task` rows, which the verbs see to.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flywheel.environment.domain import open_domain
from flywheel.environment.rollout import control, score
from flywheel.errors import ValidationError
from flywheel.records import Task, content_id
from flywheel.store import artifacts
from flywheel.store.tasks import read_tasks, taskset_names, taskset_sha256, write_tasks
from flywheel.workspace import Workspace

KIND = "taskset"
SHOWN = 3  # ids named in a refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSpec:
    """What a task set is made from."""

    name: str
    domain: str
    split: str  # train|sibling|eval
    n: int
    seed: int


def make(workspace: Workspace, spec: SetSpec) -> list[Task]:
    """The tasks of data/tasksets/<name>, which is made and admitted unless it stands there already.

    Errors: ValidationError for a set that isn't admitted (nothing is left behind), or that stands there, made from
    other arguments: sets are written once, because evaluations refer to them by name.
    """
    folder = workspace.tasksets / spec.name
    inputs = {"domain": spec.domain, "split": spec.split, "n": spec.n, "seed": spec.seed}
    if artifacts.is_finished(folder):
        made_from = dict(artifacts.load(folder).inputs)
        if made_from != inputs:
            raise ValidationError(
                f"task set {spec.name!r} is there and was made from {made_from}, not {inputs}: "
                f"choose another name, or delete {folder} and its .dvc file first"
            )
        return read_tasks(folder)
    tasks = [
        replace(task, taskset=spec.name) for task in open_domain(spec.domain).sample(spec.n, spec.split, spec.seed)
    ]
    admit(workspace, spec.name, tasks)
    shutil.rmtree(folder, ignore_errors=True)  # what an interrupted build left
    write_tasks(folder, tasks)
    summary = {
        "tasks": len(tasks),
        "groups": len({task.group_id for task in tasks}),
        "sha256": taskset_sha256(tasks),
    }
    artifacts.finish(folder, KIND, content_id(KIND, spec.name, inputs), inputs, summary)
    return tasks


def admit(workspace: Workspace, name: str, tasks: Sequence[Task]) -> None:
    """Refuse a set with a fault in it. Errors: ValidationError naming the tasks or groups."""
    twice = [task_id for task_id, n in Counter(task.task_id for task in tasks).items() if n > 1]
    if twice:
        raise ValidationError(f"task set {name!r} holds {_some(twice)} twice: ask for fewer tasks, or another seed")
    unsolvable = [task.task_id for task in tasks if not _oracle_passes(task)]
    if unsolvable:
        raise ValidationError(
            f"task set {name!r}: the oracle fails {_some(unsolvable)}, so nobody can pass: mend the domain"
        )
    free = [task.task_id for task in tasks if _null_passes(task)]
    if free:
        raise ValidationError(
            f"task set {name!r}: doing nothing passes {_some(free)}, so a pass says nothing: mend the verifier"
        )
    for other in taskset_names(workspace):
        if other != name:
            _check_sides(name, tasks, other, read_tasks(workspace.tasksets / other))


def _check_sides(name: str, tasks: Sequence[Task], other: str, theirs: Sequence[Task]) -> None:
    sides = {task.group_id: task.split for task in theirs}
    torn = sorted({t.group_id for t in tasks if sides.get(t.group_id, t.split) != t.split})
    if torn:
        raise ValidationError(
            f"groups {_some(torn)} stand on two sides of the split, in {name!r} and in {other!r}: "
            f"training would see what the gate judges on"
        )


def _oracle_passes(task: Task) -> bool:
    """By every verifier: a repair must satisfy all of them."""
    domain = open_domain(task.domain)
    return all(verdict.score == 1.0 for verdict in control(domain, task, domain.oracle(task)))


def _null_passes(task: Task) -> bool:
    domain = open_domain(task.domain)
    return score(control(domain, task, domain.null(task))) == 1.0


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
