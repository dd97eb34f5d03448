"""Evaluate: a run and the policy in production are tried on the same held-out tasks.

Deployment `evaluate`, manual. Verb: evaluate, twice.
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed
from flywheel.config import Evaluate


@flow(name="evaluate", description="Try a run and the policy in production on the same held-out tasks")
def evaluate(run: str, root: str = "", settings: Form[Evaluate] = None) -> dict[str, Any]:
    """Two evaluations that the gate can compare; what was evaluated before is not evaluated again.

    Args:
        run: Id of the run to judge: `run_id` in the result of `train`.
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: Task set, runs a task and sampling, for this run. What is left empty is as flywheel.toml says.
    """
    return observed("evaluate", root, settings, run=run)
