"""Maintain: small files become few, files that no snapshot names go, every snapshot is checked.

Deployment `maintain`, weekly. Verb: maintain, three times.
"""

from __future__ import annotations

from typing import Any

from flows.observed import flow, observed


@flow(name="maintain", description="Compact, vacuum and verify the lake; nothing that a snapshot shows changes")
def maintain(root: str = "") -> dict[str, Any]:
    """Compact, then vacuum, then verify.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
    """
    return observed("maintain", root)
