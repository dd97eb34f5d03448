"""The trainer seam: what a recipe is given, and what it gives back. One recipe is one file with a function `fit`.

    sft.py       TRL supervised fine-tuning of a real model
    scripted.py  the double: raises the skills written in a skill.json, with known truth

`fit(job, progress)` leaves a complete policy folder at `job.out` and returns one `StepMetric` a step. It may keep
whatever it needs to resume below `job.work`. Killed at any moment and called again with an equal job, it ends with the
same bytes in `job.out`.

Not covered: ids, manifests and the ledger (the verb `train`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flywheel.config import Train
from flywheel.curriculum.sft import SftRow
from flywheel.environment.policy import SKILL_FILE
from flywheel.errors import PolicyError
from flywheel.records import Task, canonical_json
from flywheel.store import artifacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training: which base, on which rows, how, and where to."""

    base: Path  # policy folder to start from; only read
    rows: Sequence[SftRow]  # in training order
    settings: Train
    work: Path  # for checkpoints; the caller removes it when the run is finished
    out: Path  # the trained policy folder, replaced if it exists
    tasks: Mapping[str, Task]  # for the scripted double, whose skills are by task family


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetric:
    """One optimiser step. No times, so that a resumed run has the same metrics as an undisturbed one."""

    step: int  # from 1
    loss: float  # mean over the step's trained tokens, before the update
    tokens: int  # trained tokens up to and including this step
    lr: float  # learning rate of this step's update


def weights_sha256(folder: Path) -> str:
    """The identity of a policy folder without opening it: equal to `open_policy(folder, ...).identity`.

    Errors: PolicyError where the folder holds neither a skill.json nor *.safetensors.
    """
    skill = folder / SKILL_FILE
    if skill.is_file():
        return artifacts.file_sha256(skill)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        sentence = f"{folder} holds no policy (no {SKILL_FILE}, no *.safetensors): run `flywheel init` for the base"
        raise PolicyError(sentence)
    return hashlib.sha256(canonical_json([[f.name, artifacts.file_sha256(f)] for f in files]).encode()).hexdigest()
