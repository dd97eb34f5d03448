"""Promote: the gate decides; a run with evidence becomes the policy in production.

Deployment `promote`, manual, never retried. Verbs: gate, promote.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Gate


@flow(
    name="promote", description="The gate decides on two reports; a run with evidence becomes the policy in production"
)
def promote(
    run: str, candidate: str, incumbent: str, root: str | None = None, settings: Gate | None = None
) -> dict[str, Any]:
    """run, candidate, incumbent: ids of the run and of the two evaluations. settings: the evidence asked for."""
    return observed("promote", root, settings, run=run, candidate=candidate, incumbent=incumbent)
