"""Maintain: small files become few, files that no snapshot names go, every snapshot is checked.

Deployment `maintain`, weekly. Verb: maintain, three times.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed


@flow(name="maintain", description="Compact, vacuum and verify the lake; nothing that a snapshot shows changes")
def maintain(root: str | None = None) -> dict[str, Any]:
    """root: the workspace (default: the nearest one)."""
    return observed("maintain", root)
