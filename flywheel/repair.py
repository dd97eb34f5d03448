"""Repair: failing tasks are tried again, k times, by a stronger prompt of the same model; only the verified survives.

    flywheel repair

Reads the newest snapshot: online trajectories that failed, are the agent's fault, and name a training task. Each of
their tasks is re-run k times with worked examples in the prompt (`[repair] shots`) and judged by every verifier of its
domain. All rollouts enter the lake with their verdicts (an unverified one is kept, and says so); what can't be tried
is in data/repairs/<id>/refused.jsonl with its reason. An oracle's answer is never a repair.

Not covered: teachers and experts (their rows are marked as such by `curate`), prefix repair and tools (issue C).
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.environment.executor import LocalExecutor
from flywheel.environment.policy import Policy
from flywheel.environment.rollout import run_rollouts, score
from flywheel.progress import Progress, silent
from flywheel.records import Outcome, Rollout, Sampling, Step, Task, Trajectory, Verdict, canonical_json, content_id
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.store.tasks import load_all_tasks
from flywheel.trainers import open_policy
from flywheel.workspace import Workspace

WORK = "work"  # answers as they come in, in the repair's folder until it is published

FAILING = """
select t.trajectory_id, t.task_id,
       (select f.owner from failure f where f.trajectory_id = t.trajectory_id and f.is_root
        order by f.step_ix, f.failure_id limit 1) as owner
from trajectory t
where t.success = false and t.format <> 'rollout'
order by t.trajectory_id
"""

# A failing trace is tried once by each variant of the prompt; `also` are further traces of the same task. What the turn
# in progress has tried itself does not count: after a restart it finds the same work, sees it done, and says the same.
TRIED = """
select distinct unnest(list_prepend(json_extract_string(metadata, '$.repairs'),
                                    json_extract_string(metadata, '$.also[*]'))) as trajectory_id
from trajectory where format = 'rollout' and json_extract_string(metadata, '$.variant') = $1
and batch_id not in (select batch_id from batch where turn_id = $2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """What was tried and what came of it. `verified` counts rollouts that every verifier passed."""

    repair_id: str | None  # None: nothing to try
    failing: int
    tasks: int
    rollouts: int
    verified: int
    solved: int
    refused: dict[str, int]
    seconds: float


def repair(
    workspace: Workspace, config: Config, *, policy: Path | None = None, progress: Progress = silent
) -> RepairResult:
    """Re-run the tasks of failing traces not yet tried with this prompt. Resumes if killed; nothing new is a no-op."""
    started = time.monotonic()
    tasks = load_all_tasks(workspace)
    answerer = open_policy(policy or Registry(workspace).checked_out(), tasks)
    lake = Lake(workspace)
    failing = lake.query(FAILING)
    variant = f"{config.repair.shots}-shot"
    tried = {row["trajectory_id"] for row in lake.query(TRIED, [variant, lake.turn_id])}
    chosen, refused = choose(failing, tasks, tried)
    if not chosen:
        return RepairResult(
            repair_id=None, failing=len(failing), tasks=0, rollouts=0, verified=0, solved=0,
            refused=dict(Counter(reason for _, reason in refused)), seconds=time.monotonic() - started,
        )  # fmt: skip
    inputs = {
        "policy": answerer.identity,
        "repair": config.repair.model_dump(),
        "failing": sorted(chosen.items()),
    }
    repair_id = content_id("repair", inputs)
    folder = workspace.repairs / repair_id
    if not (artifacts.is_finished(folder) and lake.published(repair_id)):
        rollouts = _run(config, answerer, tasks, chosen, folder, progress)
        # Record first, publish second, scratch last: killed anywhere in between, a restart finds the same work again.
        _write(folder, repair_id, inputs, _summary(len(failing), chosen, rollouts, refused), refused)
        lake.publish(repair_id, rows(rollouts, chosen))
    shutil.rmtree(folder / WORK, ignore_errors=True)
    summary = artifacts.load(folder).summary
    return RepairResult(repair_id=repair_id, seconds=time.monotonic() - started, **summary)


def _run(
    config: Config,
    answerer: Policy,
    tasks: Mapping[str, Task],
    chosen: Mapping[str, Sequence[str]],
    folder: Path,
    progress: Progress,
) -> list[Rollout]:
    """k judged rollouts of each chosen task, with examples in the prompt."""
    settings = config.repair
    return run_rollouts(
        answerer,
        [tasks[task_id] for task_id in sorted(chosen)],
        k=settings.k,
        sampling=Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens, seed=settings.seed),
        shots=settings.shots,
        executor=LocalExecutor(folder / WORK),
        progress=progress,
    )


def _summary(
    failing: int,
    chosen: Mapping[str, Sequence[str]],
    rollouts: Sequence[Rollout],
    refused: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """The counts of a RepairResult."""
    verified = [r for r in rollouts if all(v.score == 1.0 for v in r.verdicts)]
    return {
        "failing": failing,
        "tasks": len(chosen),
        "rollouts": len(rollouts),
        "verified": len(verified),
        "solved": len({r.task_id for r in verified}),
        "refused": dict(Counter(reason for _, reason in refused)),
    }


def choose(
    failing: Sequence[Mapping[str, Any]], tasks: Mapping[str, Task], tried: set[str]
) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """(task id -> the failing trajectories it repairs, [(trajectory id, why not)])."""
    chosen: dict[str, list[str]] = {}
    refused: list[tuple[str, str]] = []
    for row in failing:
        trajectory_id, task = row["trajectory_id"], tasks.get(row["task_id"] or "")
        if row["task_id"] is None:
            refused.append((trajectory_id, "no_task_id"))
        elif task is None:
            refused.append((trajectory_id, "no_environment"))
        elif task.split != "train":
            refused.append((trajectory_id, f"split_{task.split}"))
        elif row["owner"] in ("infra", "task", "user", "harness"):
            refused.append((trajectory_id, f"owner_{row['owner']}"))
        elif trajectory_id in tried:
            refused.append((trajectory_id, "already_tried"))
        else:
            chosen.setdefault(task.task_id, []).append(trajectory_id)
    return chosen, refused


def rows(rollouts: Sequence[Rollout], repairs: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """The lake rows of judged rollouts: trajectory, step, verdict, outcome."""
    return {
        "trajectory": [_trajectory(r, repairs[r.task_id]) for r in rollouts],
        "step": [step for r in rollouts for step in _steps(r)],
        "verdict": [v for r in rollouts for v in r.verdicts],
        "outcome": [_outcome(r) for r in rollouts],
    }


def _trajectory(rollout: Rollout, failing: Sequence[str]) -> Trajectory:
    verdict = score(rollout.verdicts)
    return Trajectory(
        trajectory_id=rollout.rollout_id,
        content_sha256=content_id("content", [dict(m) for m in rollout.messages]),
        native_id=rollout.rollout_id,
        source_id=rollout.policy,
        source_record_ix=rollout.run_ix,
        format="rollout",
        task_id=rollout.task_id,
        n_steps=len(rollout.messages),
        n_llm_calls=1,
        n_tool_calls=0,
        n_tool_errors=0,
        input_tokens=rollout.reply.input_tokens,
        output_tokens=rollout.reply.output_tokens,
        time_quality="missing",
        end_reason="max_tokens" if rollout.reply.finish_reason == "length" else "completed",
        success=None if verdict is None else verdict == 1.0,
        reward=verdict,
        success_source="verifier",
        content_complete=True,
        metadata=canonical_json(
            {
                **rollout.metadata,
                "policy": rollout.policy,
                "run_ix": rollout.run_ix,
                "repairs": failing[0],
                "also": list(failing[1:]),
            }
        ),
    )


def _steps(rollout: Rollout) -> list[Step]:
    return [
        Step(
            trajectory_id=rollout.rollout_id,
            step_ix=ix,
            parent_ix=ix - 1 if ix else None,
            role=str(message["role"]),
            content=message.get("content"),
            content_state="present" if message.get("content") is not None else "null",
            sampled=ix >= rollout.n_prompt,
            trainable=ix >= rollout.n_prompt,
            finish_reason=rollout.reply.finish_reason if ix >= rollout.n_prompt else None,
            token_ids=rollout.reply.token_ids if ix >= rollout.n_prompt else None,
            logprobs=rollout.reply.logprobs if ix >= rollout.n_prompt else None,
        )
        for ix, message in enumerate(rollout.messages)
    ]


def _outcome(rollout: Rollout) -> Outcome:
    verdict: Verdict = rollout.verdicts[0]
    return Outcome(
        outcome_id=content_id("outcome", rollout.rollout_id, verdict.verifier_id),
        trajectory_id=rollout.rollout_id,
        name="verifier",
        value_num=verdict.score,
        value_type="null" if verdict.score is None else "number",
        polarity=0 if verdict.score is None else (1 if verdict.score == 1.0 else -1),
        source_kind="verifier",
        source_id=verdict.verifier_id,
    )


def _write(
    folder: Path,
    repair_id: str,
    inputs: Mapping[str, Any],
    summary: Mapping[str, Any],
    refused: Sequence[tuple[str, str]],
) -> None:
    lines = [json.dumps({"trajectory_id": t, "reason": reason}) for t, reason in refused]
    folder.mkdir(parents=True, exist_ok=True)
    artifacts.write_atomic(folder / "refused.jsonl", "".join(f"{line}\n" for line in lines).encode())
    artifacts.finish(folder, "repair", repair_id, inputs, summary, exclude=("timings.json", WORK))
