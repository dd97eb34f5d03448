"""Repair: failures are labelled, and failing tasks are tried again by a stronger prompt.

Deployment `repair`, manual. Verbs: triage, repair.
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed
from flywheel.config import Repair


@flow(
    name="repair", description="Label and cluster failures, then re-run failing tasks with a stronger prompt and verify"
)
def repair(root: str = "", settings: Form[Repair] = None) -> dict[str, Any]:
    """Every failing trace is tried once for each prompt variant; running it again is a no-op.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: How failing tasks are tried again, for this run. What is left empty is as flywheel.toml says.
    """
    return observed("repair", root, settings)
