"""Curate: verified evidence becomes a curriculum.

Deployment `curate`, manual. Verb: curate.
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed
from flywheel.config import Curate


@flow(name="curate", description="Verified evidence becomes a curriculum; what is left out is kept with its reason")
def curate(root: str = "", settings: Form[Curate] = None) -> dict[str, Any]:
    """A curriculum from the newest snapshot; its id is in the result.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: What may enter the curriculum, for this run. What is left empty is as flywheel.toml says.
    """
    return observed("curate", root, settings)
