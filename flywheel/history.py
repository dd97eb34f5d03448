"""History: the versions of the policy, where each came from, and every time a stage changed hands.

    flywheel history

Read from the git tags alone; nothing is fetched, so it answers offline.

Not covered: what a version was trained on (`flywheel show VERSION`).
"""

from __future__ import annotations

from dataclasses import dataclass

from flywheel.config import Config
from flywheel.progress import Progress, silent
from flywheel.store.registry import Registry
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryVersion:
    """One version and its origin; times are ISO 8601 in UTC."""

    version: str
    stages: tuple[str, ...]
    registered_at: str
    run_id: str | None  # None: the base policy
    decision_id: str | None
    forced_by: str | None
    reason: str | None
    weights_sha256: str
    git_rev: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMove:
    """A stage was given to a version."""

    at: str
    stage: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """Versions and moves, oldest first."""

    versions: tuple[HistoryVersion, ...]
    moves: tuple[HistoryMove, ...]


def history(workspace: Workspace, config: Config, *, progress: Progress = silent) -> HistoryResult:
    """What the registry's tags say."""
    registry = Registry(workspace)
    versions = tuple(
        HistoryVersion(
            version=v.version,
            stages=v.stages,
            registered_at=v.registered_at.isoformat(),
            run_id=v.entry.run_id,
            decision_id=v.entry.decision_id,
            forced_by=v.entry.forced_by,
            reason=v.entry.reason,
            weights_sha256=v.entry.weights_sha256,
            git_rev=v.git_rev,
        )
        for v in registry.versions()
    )
    moves = tuple(
        HistoryMove(at=at.isoformat(), stage=stage, version=version) for at, stage, version in registry.moves()
    )
    progress(1, 1, f"{len(versions)} versions")
    return HistoryResult(versions=versions, moves=moves)
