"""Outcomes of one value each: the rewards, verdicts and labels that corpora and environments carry in fields.

Not covered: feedback that applications record in shapes of their own (`feedback.py`).
"""

from __future__ import annotations

from typing import Any

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import as_float
from flywheel.records import Outcome, content_id

_WHOLE = 1 - 1e-6


def reward_success(reward: float | None) -> bool | None:
    """Success as a reward in [0, 1] has it: all of it, nothing of it, or (a part) unknown."""
    if reward is None or 0 < reward < _WHOLE:
        return None
    return reward >= _WHOLE


def outcome(trajectory_id: str | None, name: str, value: Any, *, place: Any = None, **columns: Any) -> Outcome:
    """An outcome of any value, typed; `columns` are its others. `place` tells two of one name and value apart.

    The polarity is that of `reward_success` for numbers and that of booleans, where `columns` give none.
    """
    number = as_float(value)
    raw = None if value is None else dumps(value)
    if isinstance(value, bool):
        typed: dict[str, Any] = {"value_type": "boolean", "value_bool": value}
    elif isinstance(value, (int, float, NumberText)):
        typed = {"value_type": "number", "value_num": number}
    elif isinstance(value, str):
        typed = {"value_type": "text", "value_text": value}
    else:
        typed = {"value_type": "null" if value is None else "json"}
    judged = value if isinstance(value, bool) else reward_success(number)
    given = {"polarity": None if judged is None else 1 if judged else -1, **typed, **columns}
    identity = content_id("outcome", trajectory_id, name, raw, place, columns.get("native_target_id"))
    return Outcome(outcome_id=identity, trajectory_id=trajectory_id, name=name, value_raw=raw, **given)
