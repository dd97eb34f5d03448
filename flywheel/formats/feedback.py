"""Feedback that an application recorded with a trace, to outcomes, and to the trajectory's headline.

Taken: one object or a list of `{name|key, score|value|thumbs|rating, comment, correction, source, created_at}`, or a
bare score. A polarity is given only where it's clear: booleans, thumbs, words, shares in [0, 1], ratings of 1-5; or
where the application says it (`polarity`: -1, 0, 1 or null).
The headline `success` is False if any outcome is bad, True if none is bad and one is good, else None: unknown.

Not covered: feedback in files of its own (it joins by id at assembly), judgement about what the numbers mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import as_dict, as_float, as_text, first_text
from flywheel.formats.times import read_time
from flywheel.records import Outcome, content_id

_GOOD = {"up", "thumbs_up", "thumbsup", "👍", "positive", "good", "like", "liked", "yes", "correct", "pass", "resolved"}
_BAD = {
    "down",
    "thumbs_down",
    "thumbsdown",
    "👎",
    "negative",
    "bad",
    "dislike",
    "no",
    "incorrect",
    "fail",
    "unresolved",
}
_SOURCES = {
    "user": "human_user",
    "human": "human_user",
    "end_user": "human_user",
    "human_user": "human_user",
    "customer": "human_user",
    "expert": "human_expert",
    "annotator": "human_expert",
    "annotation": "human_expert",
    "human_expert": "human_expert",
    "llm": "llm_judge",
    "judge": "llm_judge",
    "model": "llm_judge",
    "llm_judge": "llm_judge",
    "verifier": "verifier",
    "test": "verifier",
    "environment": "environment",
    "heuristic": "heuristic",
    "code": "heuristic",
}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_VALUE_KEYS = ("score", "value", "thumbs", "rating")
_KNOWN = {
    *_VALUE_KEYS,
    "name",
    "key",
    "comment",
    "explanation",
    "correction",
    "source",
    "created_at",
    "timestamp",
    "id",
    "polarity",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """What a trajectory's outcomes say in one word."""

    success: bool | None = None
    reward: float | None = None
    source: str | None = None


def read_feedback(value: Any, trajectory_id: str) -> tuple[Outcome, ...]:
    """Outcomes of a `feedback` field of any shape; nothing for null. Of two with one id and value the later counts."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    outcomes = [_outcome(item, trajectory_id, ix) for ix, item in enumerate(items)]
    return tuple({outcome.outcome_id: outcome for outcome in outcomes}.values())


def headline(outcomes: Sequence[Outcome]) -> Headline:
    """Success and reward as the outcomes have it; a bad one outweighs any number of good ones."""
    numbers = [outcome.value_num for outcome in outcomes if outcome.value_num is not None]
    reward = numbers[0] if len(numbers) == 1 else None
    for polarity in (-1, 1):
        found = next((outcome for outcome in outcomes if outcome.polarity == polarity), None)
        if found is not None:
            return Headline(polarity > 0, reward, f"{found.source_kind}:{found.name}")
    return Headline(None, reward, None)


def polarity_of(value: Any, is_rating: bool = False) -> int | None:
    """-1, 0 or +1 where the value says so by itself; 0 for the middle of a known scale; None where it's unclear.

    A 1 is the best of 0-1 but the worst of 1-5, so it takes `is_rating` to tell.
    """
    if isinstance(value, bool):
        return 1 if value else -1
    if isinstance(value, str):
        word = value.strip().lower().replace(" ", "_").replace("-", "_")
        return 1 if word in _GOOD else -1 if word in _BAD else None
    number = as_float(value)
    if number is None:
        return None
    if number in (2, 3, 4, 5) or (is_rating and number == 1):
        return -1 if number < 3 else 1 if number > 3 else 0
    if -1 <= number <= 1:
        return -1 if number < 0.5 else 1 if number > 0.5 else 0
    return None


def _outcome(item: Any, trajectory_id: str, ix: int) -> Outcome:
    given = item if isinstance(item, dict) else {"value": item}
    key = next((key for key in _VALUE_KEYS if key in given), "value")
    value = given.get(key)
    number = _number_in(value) if key in ("score", "rating") else None
    source = given.get("source")
    named = as_text(source) or first_text(as_dict(source), "type", "kind", "name") or "user"
    name = first_text(given, "name", "key") or "feedback"
    rest = {key: thing for key, thing in given.items() if key not in _KNOWN}
    return Outcome(
        outcome_id=content_id("outcome", trajectory_id, name, named, dumps(value), as_text(given.get("id")) or ix),
        trajectory_id=trajectory_id,
        name=name,
        **(value_columns(value) if number is None else {**value_columns(value), "value_num": number}),
        polarity=_polarity(given, value if number is None else number, is_rating=key == "rating"),
        explanation=_as_words(given.get("comment", given.get("explanation"))),
        correction=None if given.get("correction") is None else dumps(given["correction"]),
        source_kind=_SOURCES.get(named.lower(), "system"),
        source_id=first_text(as_dict(source), "id", "name") if isinstance(source, dict) else named,
        created_at=read_time(given.get("created_at", given.get("timestamp"))).at,
        metadata=dumps(rest) if rest else None,
    )


def _number_in(value: Any) -> float | None:
    """The number that a table without types has as text."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _polarity(given: Mapping[str, Any], value: Any, is_rating: bool) -> int | None:
    said = given.get("polarity", "unsaid")
    if said is None or (isinstance(said, int) and not isinstance(said, bool) and -1 <= said <= 1):
        return said
    return polarity_of(value, is_rating)


def value_columns(value: Any) -> dict[str, Any]:
    """Columns of an outcome that hold its value, whatever its type; NaN is a number that has no `value_num`."""
    if value is None:
        return {"value_type": "null"}
    raw = dumps(value)
    if isinstance(value, bool):
        return {"value_type": "boolean", "value_bool": value, "value_raw": raw}
    if isinstance(value, (int, float, NumberText)):
        return {"value_type": "number", "value_num": as_float(value), "value_raw": raw}
    if isinstance(value, str):
        return {"value_type": "text", "value_text": value, "value_raw": raw}
    return {"value_type": "json", "value_raw": raw}


def _as_words(value: Any) -> str | None:
    """A comment as it is; anything else an application put there, as JSON."""
    return value if value is None or isinstance(value, str) else dumps(value)
