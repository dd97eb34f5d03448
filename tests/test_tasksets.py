"""Task sets: written once, admitted only if their controls hold and no group stands on two sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from scripted import SCRIPTED

from flywheel.environment.domain import DOMAINS
from flywheel.environment.domains.documents import Documents
from flywheel.environment.tasksets import admit
from flywheel.errors import ValidationError, WorkspaceError
from flywheel.records import Task
from flywheel.store.git import Git
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks, load_tasks
from flywheel.tasksets import build, check
from flywheel.workspace import Workspace


class Unsolvable(Documents):
    """A domain whose oracle doesn't know the answer."""

    def oracle(self, task: Task) -> Mapping[str, Any]:
        return self.null(task)


class Free(Documents):
    """A domain whose do-nothing agent happens to pass."""

    def null(self, task: Task) -> Mapping[str, Any]:
        return self.oracle(task)


def tasks_of(workspace: Workspace, name: str) -> list[Task]:
    return list(load_tasks(workspace, name).values())


def test_a_set_is_tracked_published_and_made_once(workspace: Workspace) -> None:
    made = build(workspace, SCRIPTED, name="fresh", split="sibling", n=24, seed=5)
    assert (made.tasks, made.groups, made.split) == (24, 12, "sibling")
    head = Git(workspace.root).head()
    assert build(workspace, SCRIPTED, name="fresh", split="sibling", n=24, seed=5) == made
    assert Git(workspace.root).head() == head
    assert Git(workspace.root).run("ls-files", "data/tasksets/fresh.dvc")
    (row,) = Lake(workspace).query("select count(*) as n from task where taskset = 'fresh'")
    assert row["n"] == 24
    assert len(load_all_tasks(workspace)) == 24 + 48 + 32
    assert check(workspace, SCRIPTED, name="fresh") == made


def test_a_name_that_is_taken_is_refused(workspace: Workspace) -> None:
    with pytest.raises(ValidationError, match="'online' is there and was made from"):
        build(workspace, SCRIPTED, name="online", split="train", n=7)


def test_a_set_that_is_not_there_is_a_sentence(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceError, match=r"no task set 'nowhere'.*there: holdout, online"):
        check(workspace, SCRIPTED, name="nowhere")


@pytest.mark.parametrize(("domain", "says"), [(Unsolvable, "the oracle fails"), (Free, "doing nothing passes")])
def test_a_task_at_fault_is_not_admitted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, domain: type[Documents], says: str
) -> None:
    monkeypatch.setitem(DOMAINS, "documents", f"{__name__}:{domain.__name__}")
    with pytest.raises(ValidationError, match=says):
        build(workspace, SCRIPTED, name="faulty", split="train", n=4, seed=9)
    assert not (workspace.tasksets / "faulty").exists()


def test_a_group_on_two_sides_is_refused(workspace: Workspace) -> None:
    torn = [replace(task, split="eval", task_id=f"{task.task_id}x") for task in tasks_of(workspace, "online")]
    with pytest.raises(ValidationError, match="two sides of the split, in 'torn' and in 'online'"):
        admit(workspace, "torn", torn)


def test_a_task_that_stands_twice_is_refused(workspace: Workspace) -> None:
    tasks = tasks_of(workspace, "online")
    with pytest.raises(ValidationError, match="twice"):
        admit(workspace, "doubled", [*tasks, tasks[0]])
