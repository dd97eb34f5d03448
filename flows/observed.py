"""What every flow shows a person: a progress artifact while a stage runs, a table of what it returned.

Not covered: any decision about data. A flow calls its stage in `flywheel/stages.py` and shows the result.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from prefect import flow, get_run_logger
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact

from flywheel.stages import STAGES

# The API takes 3-5 ms a call; a person does not see more than one step a second.
MIN_SECONDS = 1.0


class ProgressArtifact:
    """A `Progress` that moves one Prefect progress artifact, at most once a second."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._artifact: UUID | None = None
        self._last = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        finished = total > 0 and done >= total
        if now - self._last < MIN_SECONDS and not finished:
            return
        self._last = now
        percent = 100.0 * done / total if total else 0.0
        words = f"{what}: {done} of {total}"
        if self._artifact is None:
            self._artifact = UUID(
                str(create_progress_artifact(progress=percent, key=f"{self._stage}-progress", description=words))
            )
        else:
            update_progress_artifact(artifact_id=self._artifact, progress=percent, description=words)


def observed(stage: str, root: str | None, *args: Any, **ids: Any) -> dict[str, Any]:
    """Run the stage under a progress artifact and leave its result as a table artifact."""
    result = STAGES[stage](root, *args, progress=ProgressArtifact(stage), **ids)
    rows = [{"what": name, "value": value} for name, value in flat(result)]
    create_table_artifact(table=rows, key=f"{stage}-result", description=f"What `{stage}` did")
    get_run_logger().info("%s: %s", stage, ", ".join(f"{r['what']}={r['value']}" for r in rows[:12]))
    return result


def flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested results as (dotted name, text) pairs, in order."""
    pairs: list[tuple[str, str]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", str(value)))
    return pairs


__all__ = ["flow", "observed"]
