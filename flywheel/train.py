"""Train: a base policy and a curriculum become a run, a policy folder that can be opened, judged and promoted.

    flywheel train --curriculum ID

Writes models/runs/<run_id>/{policy/, metrics.jsonl, timings.json, manifest.json}. The id is of the base's weights, the
curriculum, the recipe and the seed. A run without a manifest is unfinished: calling again resumes it from its last
whole checkpoint and ends with the same weights. Zero steps is the base itself, copied.

Not covered: how a recipe trains (`trainers/`), choosing its settings, two processes on one run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.curriculum.sft import SftRow
from flywheel.environment.policy import SKILL_FILE
from flywheel.errors import TrainingError
from flywheel.ledger import ClusterEvent, Run
from flywheel.progress import Progress, silent
from flywheel.records import canonical_json, content_id
from flywheel.store import artifacts
from flywheel.store.curricula import read_rows
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks
from flywheel.trainers.recipe import Job, StepMetric, weights_sha256
from flywheel.workspace import Workspace

POLICY = "policy"
METRICS = "metrics.jsonl"
WORK = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The run and what its training did. Losses are None for zero steps; `weights_sha256` is the policy's identity."""

    run_id: str
    folder: str
    steps: int
    loss_first: float | None
    loss_last: float | None
    weights_sha256: str
    seconds: float


def train(
    workspace: Workspace,
    config: Config,
    curriculum_id: str,
    *,
    base: Path | None = None,
    progress: Progress = silent,
) -> TrainResult:
    """Train `base` (default: the workspace's base policy) on the curriculum by `[train]`. A finished run is a no-op.

    Errors: TrainingError (no rows, wrong recipe for the base, loss not finite), ArtifactError (no such curriculum).
    """
    started = time.monotonic()
    source, settings = base or workspace.base, config.train
    base_sha256 = weights_sha256(source)
    recipe = settings.model_dump(exclude={"seed"})
    run_id = content_id("run", base_sha256, curriculum_id, recipe, settings.seed)
    folder = workspace.runs / run_id
    rows = read_rows(workspace.curricula / curriculum_id)
    if not artifacts.is_finished(folder):
        job = Job(
            base=source,
            rows=rows,
            settings=settings,
            work=folder / WORK,
            out=folder / POLICY,
            tasks=load_all_tasks(workspace),
        )
        metrics = _fit(job, curriculum_id, progress)
        inputs = {"base": base_sha256, "curriculum": curriculum_id, "recipe": recipe, "seed": settings.seed}
        _finish(folder, run_id, inputs, metrics, time.monotonic() - started)
    manifest = artifacts.load(folder)
    _publish(workspace, manifest, rows)
    if (folder / WORK).exists():
        shutil.rmtree(folder / WORK)
    seconds = json.loads((folder / "timings.json").read_text(encoding="utf-8"))["seconds"]
    shown = ("steps", "loss_first", "loss_last", "weights_sha256")
    return TrainResult(
        run_id=run_id,
        folder=str(folder),
        seconds=seconds,
        **{name: manifest.summary[name] for name in shown},
    )


def _fit(job: Job, curriculum_id: str, progress: Progress) -> list[StepMetric]:
    settings = job.settings
    if settings.steps == 0:
        if job.out.exists():
            shutil.rmtree(job.out)
        shutil.copytree(job.base, job.out, ignore=shutil.ignore_patterns(artifacts.MANIFEST, ".*"))
        return []
    if not job.rows:
        sentence = f"curriculum {curriculum_id} has no rows, so there is nothing to train: its datasheet.md says why"
        raise TrainingError(sentence)
    if (job.base / SKILL_FILE).is_file() != (settings.recipe == "scripted"):
        sentence = f"recipe {settings.recipe!r} can't train {job.base}: set [train] recipe to fit the [base] model"
        raise TrainingError(sentence)
    unknown = sorted({row.task_id for row in job.rows} - set(job.tasks)) if settings.recipe == "scripted" else []
    if unknown:
        sentence = f"curriculum {curriculum_id} names tasks of no task set here, {unknown[0]} for one: `dvc pull` them"
        raise TrainingError(sentence)
    recipe = import_module(f"flywheel.trainers.{settings.recipe}")
    metrics: list[StepMetric] = recipe.fit(job, progress)
    return metrics


def _finish(folder: Path, run_id: str, inputs: dict[str, Any], metrics: Sequence[StepMetric], seconds: float) -> None:
    lines = [canonical_json(asdict(metric)) for metric in metrics]
    artifacts.write_atomic(folder / METRICS, "".join(f"{line}\n" for line in lines).encode())
    artifacts.write_atomic(folder / "timings.json", canonical_json({"seconds": round(seconds, 2)}).encode())
    summary = {
        "steps": len(metrics),
        "loss_first": metrics[0].loss if metrics else None,
        "loss_last": metrics[-1].loss if metrics else None,
        "tokens": metrics[-1].tokens if metrics else 0,
        "weights_sha256": weights_sha256(folder / POLICY),
    }
    artifacts.finish(folder, "run", run_id, inputs, summary, exclude=("timings.json", WORK))


def _publish(workspace: Workspace, manifest: artifacts.Manifest, rows: Sequence[SftRow]) -> None:
    """The run and the clusters it trained on, in the ledger. The batch is the run, so a second time adds nothing."""
    inputs, summary = manifest.inputs, dict(manifest.summary)
    run = Run(
        run_id=manifest.id,
        curriculum_id=inputs["curriculum"],
        base=inputs["base"],
        recipe=canonical_json(inputs["recipe"]),
        seed=inputs["seed"],
        weights_sha256=summary.pop("weights_sha256"),
        metrics=canonical_json(summary),
    )
    now = datetime.now(UTC)
    clusters = Counter(row.cluster_id for row in rows if row.cluster_id and summary["steps"])
    events = [
        ClusterEvent(cluster_id=cluster_id, event="trained", happened_at=now, ref=manifest.id, n=n)
        for cluster_id, n in sorted(clusters.items())
    ]
    Lake(workspace).publish(manifest.id, {"run": [run], "cluster_event": events})
