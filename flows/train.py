"""Train: a curriculum becomes a run.

Deployment `train`, manual. Verb: train.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed
from flywheel.config import Train


@flow(name="train", description="The base, trained on one curriculum, becomes a run")
def train(curriculum: str, root: str | None = None, settings: Train | None = None) -> dict[str, Any]:
    """curriculum: id of the curriculum to train on. settings: the recipe."""
    return observed("train", root, settings, curriculum=curriculum)
