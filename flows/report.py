"""Report: what the loop did, on one page.

Deployment `report`, daily. Verb: report.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed


@flow(name="report", description="Funnel, pass rates, what was fixed and the decision, as one self-contained page")
def report(root: str | None = None) -> dict[str, Any]:
    """root: the workspace (default: the nearest one)."""
    return observed("report", root)
