"""Tasksets: build a set of tasks through the domain's generator, or check one that is there.

    flywheel tasksets build NAME [--split train|sibling|eval] [-n 48] [--seed N]
    flywheel tasksets check NAME

Writes data/tasksets/<name>/{tasks.parquet, manifest.json}, tracks the folder with DVC, commits and pushes, and
publishes the tasks to the lake, so that SQL can join them. A set that is admitted once is never written again.

Not covered: import and export (issue C), what makes a task (the domain).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flywheel.config import Config
from flywheel.environment.tasksets import SetSpec, admit, make
from flywheel.progress import Progress, silent
from flywheel.records import Task, content_id
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.store.tasks import load_tasks, taskset_sha256
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksetResult:
    """A set of tasks that was admitted; `groups` is what statistics cluster by."""

    name: str
    split: str
    tasks: int
    groups: int
    taskset_sha256: str
    folder: str


def build(
    workspace: Workspace,
    config: Config,
    *,
    name: str,
    split: str,
    n: int,
    seed: int | None = None,
    progress: Progress = silent,
) -> TasksetResult:
    """Make, admit, track and publish a set of `n` tasks; the same arguments again are a no-op.

    Errors: ValidationError (a task at fault, or the name is taken), RegistryError (DVC or git refused).
    """
    domain, chosen = config.tasks.domain, config.tasks.seed if seed is None else seed
    progress(0, 3, f"generating {n} tasks")
    tasks = make(workspace, SetSpec(name=name, domain=domain, split=split, n=n, seed=chosen))
    progress(1, 3, "tracking the set with DVC")
    Registry(workspace).track([workspace.tasksets / name], [], f"Task set {name}")
    progress(2, 3, "publishing the tasks")
    Lake(workspace).publish(content_id("taskset", name, taskset_sha256(tasks)), {Task.TABLE: tasks})
    progress(3, 3, f"{n} tasks")
    return _result(workspace, name, tasks)


def check(workspace: Workspace, config: Config, *, name: str, progress: Progress = silent) -> TasksetResult:
    """Run the controls of a set that is there. Errors: ValidationError with the tasks or groups at fault."""
    tasks = list(load_tasks(workspace, name).values())
    admit(workspace, name, tasks)
    progress(1, 1, f"{len(tasks)} tasks hold")
    return _result(workspace, name, tasks)


def _result(workspace: Workspace, name: str, tasks: Sequence[Task]) -> TasksetResult:
    return TasksetResult(
        name=name,
        split=tasks[0].split,
        tasks=len(tasks),
        groups=len({task.group_id for task in tasks}),
        taskset_sha256=taskset_sha256(tasks),
        folder=str(workspace.tasksets / name),
    )
