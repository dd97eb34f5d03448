"""Repair: failures are labelled, and failing tasks are tried again by a stronger prompt.

Deployment `repair`, manual. Verbs: triage, repair.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Repair


@flow(
    name="repair", description="Label and cluster failures, then re-run failing tasks with a stronger prompt and verify"
)
def repair(root: str | None = None, settings: Repair | None = None) -> dict[str, Any]:
    """settings: how failing tasks are tried again."""
    return observed("repair", root, settings)
