"""Rollback: put an earlier version back into production, and its champion back into the working tree.

    flywheel rollback v0.1.0

The version's tag stays where it is; the stage gets a new tag that points to it, so the history shows both moves. A
decision that promoted the newer version doesn't bring it back by being run again: a person's move outlives a rerun.

Not covered: deciding that a policy misbehaves (issue F).
"""

from __future__ import annotations

from dataclasses import dataclass

from flywheel.config import Config
from flywheel.progress import Progress, silent
from flywheel.store.registry import PRODUCTION, Registry
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackResult:
    """Which version stood in the stage before, and which does now."""

    changed: bool
    version: str
    previous: str | None
    stage: str
    sentence: str


def rollback(workspace: Workspace, config: Config, *, version: str, progress: Progress = silent) -> RollbackResult:
    """Assign that version to production. Errors: RegistryError if there is no such version, or a remote refuses."""
    registry = Registry(workspace)
    current = registry.current()
    previous = current.version if current else None
    progress(0, 1, f"{previous} -> {version}")
    now = registry.assign(version, PRODUCTION)
    progress(1, 1, now.version)
    changed = now.version != previous
    return RollbackResult(
        changed=changed,
        version=now.version,
        previous=previous,
        stage=PRODUCTION,
        sentence=f"{now.version} is in {PRODUCTION}" + (f" again, {previous} is not" if changed else " already"),
    )
