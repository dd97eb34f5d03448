"""A small workspace with real evidence in its lake, for the tests of `curate`, `train` and what follows.

Twelve training tasks and four held-out ones of the domain `documents`. Online, eight tasks failed and four succeeded.
The failing ones were re-run four times each; `ANSWERS` says with what success, and the verifiers judged for real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flywheel.environment.domains.documents import Documents
from flywheel.environment.policy import ScriptedPolicy
from flywheel.ledger import Cluster, Failure
from flywheel.records import Reply, Rollout, Step, Task, Trajectory, content_id
from flywheel.repair import rows as lake_rows
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.store.tasks import write_tasks
from flywheel.workspace import CONFIG_NAME, Workspace

DOMAIN = Documents()
TRAIN = DOMAIN.sample(12, "train", 3)
HOLDOUT = DOMAIN.sample(4, "eval", 3)
ANSWERS = ("1111", "1010", "0001", "0000", "1100", "0000", "0110", "1000")  # of TRAIN[:8], run by run
SUCCESSES = TRAIN[8:]


def make_workspace(root: Path, tasks: Sequence[Task] = TRAIN, toml: str = "") -> Workspace:
    """A folder with flywheel.toml, a scripted base and both task sets; the lake is empty."""
    root.mkdir(parents=True, exist_ok=True)
    (root / CONFIG_NAME).write_text(toml, encoding="utf-8")
    workspace = Workspace(root.resolve())
    ScriptedPolicy({}, default=0.1).save(workspace.base)
    for name, members in (("train", tasks), ("holdout", HOLDOUT)):
        folder = workspace.tasksets / name
        write_tasks(folder, members)
        artifacts.finish(folder, "taskset", name, {}, {"tasks": len(members)})
    return workspace


def publish_evidence(workspace: Workspace, answers: Sequence[str] = ANSWERS) -> None:
    """Three batches: the online traces, their failures and clusters, the judged re-runs."""
    lake = Lake(workspace)
    failing = TRAIN[: len(answers)]
    lake.publish("batch-online", online([(t, False) for t in failing] + [(t, True) for t in SUCCESSES]))
    lake.publish("batch-triage", labelled(failing))
    lake.publish("batch-repair", reruns(dict(zip(failing, answers, strict=True))))


def trace_id(task: Task) -> str:
    """The online trace of a task."""
    return content_id("trace", task.task_id)


def online(runs: Sequence[tuple[Task, bool]]) -> dict[str, list[Any]]:
    """One online trace of each task: asked as the task says, answered as the oracle or the null agent would."""
    trajectories, steps = [], []
    for task, success in runs:
        answer = DOMAIN.oracle(task) if success else DOMAIN.null(task)
        messages = [*DOMAIN.prompt(task).messages, answer]
        trajectories.append(
            Trajectory(
                trajectory_id=trace_id(task),
                content_sha256=content_id("content", messages),
                source_id="landed",
                source_record_ix=len(trajectories),
                format="openai_chat",
                task_id=task.task_id,
                n_steps=len(messages),
                success=success,
                success_source="feedback",
                content_complete=True,
            )
        )
        steps += [
            Step(
                trajectory_id=trace_id(task), step_ix=ix, role=m["role"], content=m["content"], content_state="present"
            )
            for ix, m in enumerate(messages)
        ]
    return {"trajectory": trajectories, "step": steps}


def labelled(failing: Sequence[Task]) -> dict[str, list[Any]]:
    """A root failure and a cluster by task family."""
    cluster_of = {task.task_id: content_id("cluster", task.family) for task in failing}
    failures = [
        Failure(
            failure_id=content_id("failure", task.task_id),
            trajectory_id=trace_id(task),
            step_ix=2,
            code="format.json",
            owner="agent",
            is_root=True,
            detector="test",
            detector_version="1",
            cluster_id=cluster_of[task.task_id],
        )
        for task in failing
    ]
    clusters = {c: Cluster(cluster_id=c, code="format.json") for c in cluster_of.values()}
    return {"failure": failures, "cluster": list(clusters.values())}


def reruns(
    answers: Mapping[Task, str],
    overrule: Mapping[tuple[str, int], float | None] | None = None,
    policy: str = "sha-of-base",
) -> dict[str, list[Any]]:
    """Judged re-runs: '1' answers as the oracle, '0' as the null agent. `overrule` replaces V2's score of a run."""
    rollouts = []
    for task, outcomes in answers.items():
        request = DOMAIN.prompt(task, shots=2)
        for run_ix, outcome in enumerate(outcomes):
            message = DOMAIN.oracle(task) if outcome == "1" else DOMAIN.null(task)
            rollout = Rollout(
                rollout_id=content_id("rollout", policy, task.task_id, run_ix),
                task_id=task.task_id,
                policy=policy,
                run_ix=run_ix,
                messages=(*request.messages, message),
                n_prompt=len(request.messages),
                reply=Reply(message=message),
                metadata={"variant": "2-shot"},
            )
            first, second = DOMAIN.verify(task, rollout)
            if (task.task_id, run_ix) in (overrule or {}):
                second = replace(second, score=(overrule or {})[task.task_id, run_ix])
            rollouts.append(replace(rollout, verdicts=(first, second)))
    return lake_rows(rollouts, {task.task_id: [trace_id(task)] for task in answers})
