"""What the loop did: the append-only ledger tables. "What is in production" is computed from these events.

Every row is stamped by the publisher with `batch_id`, `turn_id`, `created_at` and `code_version`; none of the
four takes part in an id.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from flywheel.records import Int16, Int32, Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One staged batch of landing objects and what became of it."""

    TABLE: ClassVar[str] = "batch"
    batch_id: str
    state: str  # staged|accepted|failed|forced
    objects: tuple[str, ...] | None = None
    n_records: int | None = None
    n_trajectories: int | None = None
    n_quarantined: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One published state of all tables: exact Delta versions, so exact Parquet files."""

    TABLE: ClassVar[str] = "snapshot"
    snapshot_id: str
    parent_id: str | None = None
    table_versions: Json
    batches: tuple[str, ...] | None = None
    state: str = "live"  # live|not_reproducible


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The verdict of one expectation suite on one target."""

    TABLE: ClassVar[str] = "validation"
    validation_id: str
    target_kind: str
    target_id: str
    suite: str
    suite_sha256: str | None = None
    success: bool | None = None
    n_failed: Int32 | None = None
    result: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure label: code, step, evidence and who owns it."""

    TABLE: ClassVar[str] = "failure"
    failure_id: str  # of (trajectory_id, code, step_ix, detector)
    trajectory_id: str
    step_ix: Int32 | None = None
    code: str
    evidence: str | None = None
    owner: str  # infra > task > user > harness > agent
    severity: Int16 | None = None
    confidence: float | None = None
    is_root: bool | None = None
    detector: str
    detector_version: str
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The same failure, wherever it happened; the id is stable across turns."""

    TABLE: ClassVar[str] = "cluster"
    cluster_id: str  # of (code, tool, normalised error, task family)
    code: str | None = None
    tool: str | None = None
    signature: str | None = None
    domain: str | None = None
    title: str | None = None
    first_seen: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One event in the life of a cluster; its state is a fold over these."""

    TABLE: ClassVar[str] = "cluster_event"
    cluster_id: str
    event: str  # seen|triaged|reproducible|sampled|in_curriculum|trained|eval_fixed|promoted|confirmed_online|reopened
    happened_at: datetime
    policy_version: str | None = None
    ref: str | None = None
    n: Int32 | None = None
    k: Int32 | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumRow:
    """Where one curriculum row came from, or why it was left out."""

    TABLE: ClassVar[str] = "curriculum_row"
    curriculum_id: str
    row_id: str
    kind: str  # sft|preference|kto|rl
    source: str  # real|expert|model
    parents: tuple[str, ...]  # trajectory ids: the failing trace first, then the repaired rollout
    task_id: str | None = None
    cluster_id: str | None = None
    verifier_ids: tuple[str, ...] | None = None
    posterior: float | None = None
    kept: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training."""

    TABLE: ClassVar[str] = "run"
    run_id: str  # of (base, curriculum, recipe, seed)
    curriculum_id: str | None = None
    base: str
    recipe: Json | None = None
    seed: int | None = None
    weights_sha256: str | None = None
    metrics: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One policy on one task set, k runs a task."""

    TABLE: ClassVar[str] = "evaluation"
    evaluation_id: str
    policy: str
    taskset: str
    taskset_sha256: str
    k: Int32 | None = None
    summary: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the gate said, with every reason and number."""

    TABLE: ClassVar[str] = "decision"
    decision_id: str
    candidate: str | None = None
    incumbent: str | None = None
    verdict: str  # PROMOTE|REJECT|INCONCLUSIVE|FORCED
    reasons: Json | None = None
    looks: Int32 | None = None
    alpha_spent: float | None = None
    by_whom: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One registered version of the policy."""

    TABLE: ClassVar[str] = "policy_version"
    version: str
    run_id: str | None = None
    weights_sha256: str | None = None
    git_rev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An erasure: who (hashed), and what used their rows."""

    TABLE: ClassVar[str] = "tombstone"
    user_hash: str
    erased_at: datetime
    trajectories: int | None = None
    curricula: tuple[str, ...] | None = None
    runs: tuple[str, ...] | None = None
    policy_versions: tuple[str, ...] | None = None
