"""What every flow shows a person: a progress artifact while a stage runs, a table of what it returned, and a refusal
as one sentence.

Not covered: any decision about data. A flow calls its stage in `flywheel/stages.py` and shows the result; the words
come from `flywheel/markdown.py`.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, cast
from uuid import UUID

import prefect
from prefect import get_run_logger
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.states import Failed

from flywheel.errors import FlywheelError
from flywheel.stages import STAGES
from flywheel.terminal import TerminalProgress

Stage = Callable[..., dict[str, Any]]
# The API takes 3-5 ms a call; a person does not see more than one step a second.
MIN_SECONDS = 1.0


def flow(*, name: str, description: str) -> Callable[[Stage], Stage]:
    """Prefect's `flow`, where a refusal ends the run with its own sentence as the state's message, and no traceback.

    To a caller in Python (the turn) the FlywheelError is raised as it was. Any other exception is Prefect's to show.
    """

    def decorate(function: Stage) -> Stage:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except FlywheelError as error:
                get_run_logger().error(str(error))
                return Failed(message=str(error), data=error)

        # Prefect reads the annotations through the wrapper, where the names of the flow's own file mean nothing.
        run.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
        return cast(Stage, prefect.flow(name=name, description=description)(run))

    return decorate


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


def observed(stage: str, root: str, *args: Any, **ids: Any) -> dict[str, Any]:
    """Run the stage under a progress artifact and a terminal's bar; leave its result as a table artifact."""
    artifact = ProgressArtifact(stage)
    artifact(0, 1, "started")
    with TerminalProgress(stage) as bar:

        def progress(done: int, total: int, what: str) -> None:
            artifact(done, total, what)
            bar(done, total, what)

        result = STAGES[stage](root or None, *args, progress=progress, **ids)
    artifact(1, 1, "done")
    rows = [{"what": name, "value": value} for name, value in flat(result)]
    create_table_artifact(table=rows, key=f"{stage}-result", description=f"What `{stage}` did")
    get_run_logger().info("%s: %s", stage, ", ".join(f"{r['what']}={r['value']}" for r in rows[:12]))
    return result


def show_page(key: str, text: str, description: str) -> None:
    """Leave markdown as an artifact."""
    create_markdown_artifact(markdown=text, key=key, description=description)


def show_picture(key: str, data_uri: str, description: str) -> None:
    """Leave a picture as an artifact. The picture is in the artifact itself: the UI needs no other address."""
    create_image_artifact(image_url=data_uri, key=key, description=description)


def flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested results as (dotted name, text) pairs, in order."""
    pairs: list[tuple[str, str]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            pairs += flat(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", str(value)))
    return pairs
