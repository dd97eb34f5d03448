"""Task sets as the other stages read them: data/tasksets/<name>/tasks.parquet, one row a task, and a manifest.

Not covered: how a set is made and checked (the verb `tasksets`), its versions (DVC, in `store/registry.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from flywheel.errors import WorkspaceError
from flywheel.records import Task, canonical_json
from flywheel.store import artifacts
from flywheel.workspace import Workspace

TASKS_FILE = "tasks.parquet"


def load_tasks(workspace: Workspace, name: str) -> dict[str, Task]:
    """The tasks of one set by id, in the order of the file.

    Errors: WorkspaceError if there is no such set, ArtifactError if it is unfinished.
    """
    folder = workspace.tasksets / name
    if not folder.is_dir():
        known = ", ".join(taskset_names(workspace)) or "none"
        raise WorkspaceError(
            f"no task set {name!r} in {workspace.tasksets} (there: {known}): "
            f"run `dvc pull`, or `flywheel tasksets build {name}`"
        )
    return {task.task_id: task for task in read_tasks(folder)}


def load_all_tasks(workspace: Workspace) -> dict[str, Task]:
    """The tasks of every finished set by id: what a policy may be asked about."""
    return {task_id: task for name in taskset_names(workspace) for task_id, task in load_tasks(workspace, name).items()}


def taskset_names(workspace: Workspace) -> list[str]:
    """Names of the finished sets, sorted."""
    if not workspace.tasksets.is_dir():
        return []
    return sorted(folder.name for folder in workspace.tasksets.iterdir() if artifacts.is_finished(folder))


def taskset_sha256(tasks: Iterable[Task]) -> str:
    """sha256 of what the tasks say, whatever their order: two reports compare only if it agrees."""
    lines = sorted(canonical_json(asdict(task)) for task in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def read_tasks(folder: Path) -> list[Task]:
    """The tasks of a finished task set folder. Errors: ArtifactError if it is unfinished."""
    import pyarrow.parquet as pq

    from flywheel.store.tables import from_arrow

    artifacts.load(folder)
    rows: list[Task] = from_arrow(Task.TABLE, pq.read_table(folder / TASKS_FILE))
    return rows


def write_tasks(folder: Path, tasks: Sequence[Task]) -> None:
    """Write tasks.parquet; the caller finishes the folder with its manifest."""
    import pyarrow.parquet as pq

    from flywheel.store.tables import to_arrow

    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(to_arrow(Task.TABLE, tasks), folder / TASKS_FILE, compression="zstd")
