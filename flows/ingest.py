"""Ingest: traces that landed become trajectories in the lake.

Deployment `ingest`, hourly. Verbs: ingest (stage a batch), validate (judge and publish it).
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed, show_page
from flywheel.config import Ingest
from flywheel.markdown import batches_page


@flow(name="ingest", description="Landing objects become a staged batch, the batch is judged, what passes is published")
def ingest(root: str = "", settings: Form[Ingest] = None) -> dict[str, Any]:
    """What landed since the last time, as one batch.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: How landing objects are read, for this run. What is left empty is as flywheel.toml says.
    """
    result = observed("ingest", root, settings)
    show_page("ingest-batches", batches_page(root, result), "What was staged, and the verdict on each batch")
    return result
