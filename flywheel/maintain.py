"""Maintain: look after the lake's files without changing what any snapshot shows.

    flywheel lake compact | vacuum | verify

Not covered: erasure (`erase.py`), expiry of snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flywheel.errors import LakeError
from flywheel.store import lake_maintain
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

Upkeep = Literal["compact", "vacuum", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainResult:
    """What was done: the snapshot that is newest now, and the files deleted by `vacuum`."""

    what: str
    snapshot: str | None
    deleted: int = 0


def maintain(workspace: Workspace, what: Upkeep) -> MaintainResult:
    """Do one kind of upkeep. Errors: LakeError from `verify`, naming every problem it found."""
    lake = Lake(workspace)
    deleted = 0
    if what == "compact":
        lake_maintain.compact(lake)
    elif what == "vacuum":
        deleted = len(lake_maintain.vacuum(lake))
    else:
        problems = lake_maintain.verify(lake)
        if problems:
            raise LakeError(f"{len(problems)} problem(s): " + "; ".join(problems))
    head = lake.head()
    return MaintainResult(what=what, snapshot=head.snapshot_id if head else None, deleted=deleted)
