"""Recipe `scripted`: trains a skill.json, so that a whole turn with known truth runs in seconds through the same verbs.

With n distinct rows of a family among N distinct rows in all (each counted by its weight), a skill p becomes

    p' = 1 - (1 - p) * exp(-(n + TRANSFER * (N - n)) / TAU)

and the default skill, that of every family without rows, is the case n = 0: what is learned on some phrasings helps
on others, but less. A row counts the first time a step sees it; seeing it again teaches nothing. The known truth of a
turn is therefore a formula of the curriculum and of steps * batch.

Not covered: learning rate, LoRA rank and seed, which change nothing here but the run's id and the order of rows.
"""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from flywheel.curriculum.blend import schedule
from flywheel.environment.policy import ScriptedPolicy
from flywheel.progress import Progress
from flywheel.trainers.recipe import Job, StepMetric

TAU = 16.0
"""Rows of a family that shrink its failures to 1/e."""
TRANSFER = 0.25
"""How much a row of another family counts."""


def fit(job: Job, progress: Progress) -> list[StepMetric]:
    """Raise the skills by the rows the steps see. The loss is the mean failure probability of the step's rows."""
    base = ScriptedPolicy.load(job.base, job.tasks)
    families = [job.tasks[row.task_id].family for row in job.rows]
    settings = job.settings
    learned: defaultdict[str, float] = defaultdict(float)
    seen: set[int] = set()
    metrics: list[StepMetric] = []
    tokens = 0
    for step, batch in enumerate(schedule(job.rows, settings.steps, settings.batch, settings.seed), start=1):
        now = trained_skills(base.default, base.families, learned)
        loss = sum(1.0 - now.get(families[i], now[""]) for i in batch) / len(batch)
        for number in sorted(set(batch) - seen):
            learned[families[number]] += job.rows[number].weight
        seen.update(batch)
        tokens += sum(job.rows[i].trained_tokens for i in batch)
        metrics.append(StepMetric(step=step, loss=loss, tokens=tokens, lr=settings.learning_rate))
        progress(step, settings.steps, f"loss {loss:.3f}")
    skills = trained_skills(base.default, base.families, learned)
    if job.out.exists():
        shutil.rmtree(job.out)
    replace(base, default=skills.pop(""), families=skills).save(job.out)
    return metrics


def trained_skills(default: float, families: Mapping[str, float], learned: Mapping[str, float]) -> dict[str, float]:
    """Skill by family after `learned[family]` rows; the key '' holds the default skill."""
    total = sum(learned.values())

    def raised(skill: float, own: float) -> float:
        return 1.0 - (1.0 - skill) * math.exp(-(own + TRANSFER * (total - own)) / TAU)

    names: Sequence[str] = sorted({*families, *learned})
    skills = {name: raised(families.get(name, default), learned.get(name, 0.0)) for name in names}
    return {"": raised(default, 0.0), **skills}
