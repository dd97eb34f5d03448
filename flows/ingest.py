"""Ingest: traces that landed become trajectories in the lake.

Deployment `ingest`, hourly. Verbs: ingest (stage a batch), validate (judge and publish it).
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Ingest


@flow(name="ingest", description="Landing objects become a staged batch, the batch is judged, what passes is published")
def ingest(root: str | None = None, settings: Ingest | None = None) -> dict[str, Any]:
    """settings: how landing objects are read."""
    return observed("ingest", root, settings)
