"""Evaluate: one policy on one task set, k runs a task, in numbers that two policies can be compared by.

    flywheel evaluate --run ID | --stage production [--taskset holdout]

Writes data/evals/<id>/{rollouts.parquet, report.json}. Evaluation rollouts stay there and never enter the lake, so
they can't be selected for training. Infrastructure failures are excluded and counted, never scored 0.
The controls are run each time: the oracle must pass every task and a do-nothing agent none.

Not covered: the comparison (statistics/decision.py), pass^k and stability plots (issue F).
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.environment.domain import open_domain
from flywheel.environment.executor import LocalExecutor
from flywheel.environment.rollout import control, run_rollouts, score
from flywheel.errors import PolicyError
from flywheel.ledger import Evaluation
from flywheel.progress import Progress, silent
from flywheel.records import Report, Rollout, Sampling, Task, TaskResult, canonical_json, content_id
from flywheel.statistics.intervals import rate_interval
from flywheel.statistics.reports import report_from_json, report_to_json
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_tasks, taskset_sha256
from flywheel.trainers import open_policy
from flywheel.workspace import Workspace

WORK = "work"  # answers as they come in, in the evaluation's folder until it is finished


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateResult:
    """Where the evaluation lies and its headline: macro pass rate with a 95% interval clustered by group."""

    evaluation_id: str
    folder: str
    policy: str
    pass_rate: float
    low: float
    high: float
    tasks: int
    rollouts: int
    excluded: int
    seconds: float
    made: bool  # False: this evaluation existed already


def evaluate(
    workspace: Workspace,
    config: Config,
    *,
    policy: Path,
    taskset: str | None = None,
    progress: Progress = silent,
) -> EvaluateResult:
    """Try the policy in that folder k times on every task of the set and write the report. Resumes if killed."""
    started = time.monotonic()
    settings = config.evaluate
    name = taskset or settings.taskset
    tasks = load_tasks(workspace, name)
    answerer = open_policy(policy, tasks)
    sampling = Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens, seed=settings.seed)
    inputs = {
        "policy": answerer.identity,
        "taskset": name,
        "taskset_sha256": taskset_sha256(tasks.values()),
        "k": settings.k,
        "sampling": asdict(sampling),
    }
    evaluation_id = content_id("evaluation", inputs)
    folder = workspace.evals / evaluation_id
    made = not artifacts.is_finished(folder)
    if made:
        executor = LocalExecutor(folder / WORK)
        rollouts = run_rollouts(
            answerer, list(tasks.values()), k=settings.k, sampling=sampling, executor=executor, progress=progress
        )
        report = _report(evaluation_id, inputs, tasks, rollouts)
        _write(folder, evaluation_id, inputs, report, rollouts, time.monotonic() - started)
    shutil.rmtree(folder / WORK, ignore_errors=True)  # also what a call killed just before this line left
    report = report_from_json((folder / "report.json").read_text(encoding="utf-8"))
    summary = _summary(report)
    Lake(workspace).publish(
        evaluation_id,
        {
            "evaluation": [
                Evaluation(
                    evaluation_id=evaluation_id,
                    policy=report.policy,
                    taskset=report.taskset,
                    taskset_sha256=report.taskset_sha256,
                    k=report.k,
                    summary=canonical_json(summary),
                )
            ]
        },
    )
    return EvaluateResult(
        evaluation_id=evaluation_id,
        folder=str(folder),
        policy=report.policy,
        seconds=time.monotonic() - started,
        made=made,
        **summary,
    )


def _report(
    evaluation_id: str, inputs: dict[str, object], tasks: dict[str, Task], rollouts: Sequence[Rollout]
) -> Report:
    by_task: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task_id].append(rollout)
    controls = [_controls(task) for task in tasks.values()]
    return Report(
        evaluation_id=evaluation_id,
        policy=str(inputs["policy"]),
        taskset=str(inputs["taskset"]),
        taskset_sha256=str(inputs["taskset_sha256"]),
        k=int(str(inputs["k"])),
        results=tuple(_task_result(tasks[task_id], tried) for task_id, tried in by_task.items()),
        oracle_pass=sum(oracle for oracle, _ in controls) / len(controls),
        null_pass=sum(null for _, null in controls) / len(controls),
    )


def _task_result(task: Task, rollouts: Sequence[Rollout]) -> TaskResult:
    scores = [score(rollout.verdicts) for rollout in rollouts]
    return TaskResult(
        task_id=task.task_id,
        group_id=task.group_id,
        domain=task.domain,
        level=task.level or "",
        runs=sum(s is not None for s in scores),
        passed=sum(s == 1.0 for s in scores),
        excluded=sum(s is None for s in scores),
        output_tokens=sum(rollout.reply.output_tokens for rollout in rollouts),
    )


def _controls(task: Task) -> tuple[bool, bool]:
    """(the oracle passes, the null agent passes), by every verifier."""
    domain = open_domain(task.domain)
    oracle = control(domain, task, domain.oracle(task))
    null = control(domain, task, domain.null(task))
    return all(v.score == 1.0 for v in oracle), score(null) == 1.0


def _summary(report: Report) -> dict[str, Any]:
    """The headline: macro pass rate over tasks that have a verdict, interval clustered by group."""
    judged = [r for r in report.results if r.runs]
    if not judged:
        message = f"evaluation {report.evaluation_id} has no verdict at all: every rollout failed outside the policy"
        raise PolicyError(message)
    rate = rate_interval([r.passed for r in judged], [r.runs for r in judged], [r.group_id for r in judged])
    return {
        "pass_rate": rate.estimate,
        "low": rate.low,
        "high": rate.high,
        "tasks": len(report.results),
        "rollouts": sum(r.runs + r.excluded for r in report.results),
        "excluded": sum(r.excluded for r in report.results),
    }


def _write(
    folder: Path,
    evaluation_id: str,
    inputs: dict[str, object],
    report: Report,
    rollouts: Sequence[Rollout],
    seconds: float,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _write_rollouts(folder / "rollouts.parquet", rollouts)
    artifacts.write_atomic(folder / "report.json", report_to_json(report).encode())
    artifacts.write_atomic(folder / "timings.json", json.dumps({"seconds": round(seconds, 3)}).encode())
    artifacts.finish(folder, "evaluation", evaluation_id, inputs, _summary(report), exclude=("timings.json", WORK))


def _write_rollouts(path: Path, rollouts: Sequence[Rollout]) -> None:
    """One row a rollout; messages and verdicts are JSON text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("rollout_id", pa.string()),
            ("task_id", pa.string()),
            ("run_ix", pa.int32()),
            ("score", pa.float64()),
            ("answer", pa.string()),
            ("messages", pa.string()),
            ("verdicts", pa.string()),
            ("input_tokens", pa.int64()),
            ("output_tokens", pa.int64()),
            ("finish_reason", pa.string()),
        ]
    )
    rows = [
        {
            "rollout_id": r.rollout_id,
            "task_id": r.task_id,
            "run_ix": r.run_ix,
            "score": score(r.verdicts),
            "answer": r.reply.message.get("content"),
            "messages": canonical_json([dict(m) for m in r.messages]),
            "verdicts": canonical_json([asdict(v) for v in r.verdicts]),
            "input_tokens": r.reply.input_tokens,
            "output_tokens": r.reply.output_tokens,
            "finish_reason": r.reply.finish_reason,
        }
        for r in rollouts
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")
