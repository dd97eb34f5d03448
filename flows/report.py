"""Report: what the loop did, on one page.

Deployment `report`, daily. Verb: report.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed, show_page, show_picture
from flywheel.markdown import rates_picture, turn_page


@flow(name="report", description="Funnel, pass rates, what was fixed and the decision, as one self-contained page")
def report(root: str = "") -> dict[str, Any]:
    """The page of the turn in progress, or of the one that finished last.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
    """
    result = observed("report", root)
    show_page("report-turn", turn_page(root, result), "What the turn did: pass rates, what was fixed, why")
    show_picture("report-rates", rates_picture(root), "Pass rates before and after, with 95% intervals")
    return result
