"""Reverify: judge the stored rollouts again, and say where a verifier no longer says what it said.

    flywheel reverify

The verdicts in the lake were made by the verifiers of their day. This runs today's over the same messages: a flaky or
a changed verifier shows as a difference, rollout by rollout. Nothing is written; verdicts are append-only and a
verifier that changed has a new id. Not covered: rollouts whose task set is gone (counted), hidden test shards.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.config import Config
from flywheel.environment.domain import open_domain
from flywheel.progress import Progress, silent
from flywheel.records import Reply, Rollout
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks
from flywheel.workspace import Workspace

ROLLOUTS = """
select trajectory_id, task_id, metadata from trajectory where format = 'rollout' and task_id is not null
order by trajectory_id
"""
STEPS = """
select s.trajectory_id, s.role, s.content from step s join trajectory t using (trajectory_id)
where t.format = 'rollout' order by s.trajectory_id, s.step_ix
"""
VERDICTS = "select trajectory_id, verifier_id, score from verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverifyResult:
    """`differing`: rollouts on which a verifier of the same id now gives another score."""

    rollouts: int
    verdicts: int
    differing: tuple[str, ...]
    without_task: int
    new_verifiers: tuple[str, ...]  # ids that have judged none of the stored rollouts yet


def reverify(workspace: Workspace, config: Config, *, progress: Progress = silent) -> ReverifyResult:
    """Compare every stored verdict with what its verifier says now."""
    lake, tasks = Lake(workspace), load_all_tasks(workspace)
    messages: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in lake.query(STEPS):
        messages[step["trajectory_id"]].append({"role": step["role"], "content": step["content"]})
    stored = {(v["trajectory_id"], v["verifier_id"]): v["score"] for v in lake.query(VERDICTS)}
    rows = lake.query(ROLLOUTS)
    judged, differing, without_task, fresh = 0, [], 0, set()
    for number, row in enumerate(rows, start=1):
        task = tasks.get(row["task_id"])
        if task is None:
            without_task += 1
            continue
        for verdict in open_domain(task.domain).verify(task, _rollout(row, messages[row["trajectory_id"]])):
            key = (row["trajectory_id"], verdict.verifier_id)
            if key not in stored:
                fresh.add(verdict.verifier_id)
                continue
            judged += 1
            if stored[key] != verdict.score:
                differing.append(row["trajectory_id"])
        progress(number, len(rows), "rollouts judged again")
    return ReverifyResult(
        rollouts=len(rows),
        verdicts=judged,
        differing=tuple(sorted(set(differing))),
        without_task=without_task,
        new_verifiers=tuple(sorted(fresh)),
    )


def _rollout(row: Mapping[str, Any], messages: Sequence[dict[str, Any]]) -> Rollout:
    metadata = json.loads(row["metadata"])
    return Rollout(
        rollout_id=row["trajectory_id"],
        task_id=row["task_id"],
        policy=metadata["policy"],
        run_ix=metadata["run_ix"],
        messages=messages,
        n_prompt=len(messages) - 1,
        reply=Reply(message=messages[-1]),
    )
