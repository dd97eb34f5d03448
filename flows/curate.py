"""Curate: verified evidence becomes a curriculum.

Deployment `curate`, manual. Verb: curate.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Curate


@flow(name="curate", description="Verified evidence becomes a curriculum; what is left out is kept with its reason")
def curate(root: str | None = None, settings: Curate | None = None) -> dict[str, Any]:
    """settings: what may enter a curriculum."""
    return observed("curate", root, settings)
