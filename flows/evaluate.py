"""Evaluate: a run and the policy in production are tried on the same held-out tasks.

Deployment `evaluate`, manual. Verb: evaluate, twice.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Evaluate


@flow(name="evaluate", description="Try a run and the policy in production on the same held-out tasks")
def evaluate(run: str, root: str | None = None, settings: Evaluate | None = None) -> dict[str, Any]:
    """run: id of the run to judge. settings: task set, runs a task, sampling."""
    return observed("evaluate", root, settings, run=run)
