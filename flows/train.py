"""Train: a curriculum becomes a run.

Deployment `train`, manual. Verb: train.
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed
from flywheel.config import Train


@flow(name="train", description="The base, trained on one curriculum, becomes a run")
def train(curriculum: str, root: str = "", settings: Form[Train] = None) -> dict[str, Any]:
    """A run of its own for every curriculum and recipe; running it again resumes, or is a no-op.

    Args:
        curriculum: Id of the curriculum to train on: `curriculum_id` in the result of `curate`.
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: The recipe, for this run. What is left empty is as flywheel.toml says.
    """
    return observed("train", root, settings, curriculum=curriculum)
