"""One score of an evaluation as an outcome: the value of any type, and whether it is good news where that is clear.

Shared by the readers of evaluation logs. What a number means is known to its scorer only, so a number has a polarity
where its log says that it is a share of what could be reached (`share_polarity`), and none otherwise.

Not covered: feedback of people (`feedback.py`).
"""

from __future__ import annotations

from typing import Any

from flywheel.formats.feedback import value_columns
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_float
from flywheel.records import Outcome, content_id

_FULL = 1 - 1e-6  # sums of weighted parts miss 1 by a rounding


def scored(
    trajectory_id: str | None,
    name: str,
    value: Any,
    *,
    polarity: int | None,
    source_kind: str = "verifier",
    metadata: Any = None,
    **columns: Any,
) -> Outcome:
    """An outcome of the trajectory, or (without one) of what `session_id` or `native_target_id` in `columns` names."""
    target = columns.get("session_id"), columns.get("native_target_id"), columns.get("step_ix")
    raw = None if value is None else dumps(value)
    return Outcome(
        outcome_id=content_id("outcome", trajectory_id, *target, name, raw, columns.get("source_id")),
        trajectory_id=trajectory_id,
        name=name,
        polarity=polarity,
        source_kind=source_kind,
        metadata=dumps(metadata) if metadata else None,
        **value_columns(value),
        **columns,
    )


def share_polarity(value: Any) -> int | None:
    """+1 for all of what could be reached, -1 for less, None where the value is no number."""
    if isinstance(value, bool):
        return 1 if value else -1
    number = as_float(value)
    return None if number is None else 1 if number > _FULL else -1


def reward_polarity(value: Any) -> int | None:
    """+1 from 1 on, -1 up to 0, 0 between them (part of it was right), None where the value is no number."""
    if isinstance(value, bool):
        return 1 if value else -1
    number = as_float(value)
    return None if number is None else 1 if number > _FULL else -1 if number <= 0 else 0
