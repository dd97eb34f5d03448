"""Promote: the gate decides; a run with evidence becomes the policy in production.

Deployment `promote`, manual, never retried. Verbs: gate, promote.
"""

from __future__ import annotations

from typing import Any

from flows.form import Form
from flows.observed import flow, observed, show_page
from flywheel.config import Gate
from flywheel.markdown import decision_page


@flow(
    name="promote", description="The gate decides on two reports; a run with evidence becomes the policy in production"
)
def promote(run: str, candidate: str, incumbent: str, root: str = "", settings: Form[Gate] = None) -> dict[str, Any]:
    """Not promoting is an honest end: the run is Completed and the reasons are in its artifact.

    Args:
        run: Id of the run to promote: `run_id` in the result of `train`.
        candidate: Id of the run's evaluation: `candidate.evaluation_id` in the result of `evaluate`.
        incumbent: Id of the evaluation of the policy in production: `incumbent.evaluation_id` there.
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
        settings: The evidence asked for, for this run. What is left empty is as flywheel.toml says.
    """
    result = observed("promote", root, settings, run=run, candidate=candidate, incumbent=incumbent)
    show_page("promote-decision", decision_page(result), "What the gate decided, and why")
    return result
