"""Timestamps of any spelling to UTC datetimes, with how much they can be trusted.

A number's unit is found by size: seconds, milliseconds, microseconds or nanoseconds, whichever puts it between 2000 and
2100. What fits none of them (0, -1, the year 10000) is no time at all, rather than a wrong one.

Not covered: nanosecond precision (a datetime holds microseconds; the raw text is kept beside it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from flywheel.formats.parse import NumberText

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
_LAST = datetime(2100, 1, 1, tzinfo=UTC)
_UNITS_PER_SECOND = (1, 10**3, 10**6, 10**9)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_FRACTION = re.compile(r"(\.\d{6})\d+")  # fromisoformat takes six digits
_CTIME = "%a %b %d %H:%M:%S %Y"


@dataclass(frozen=True, slots=True)
class Time:
    """A point in time (None: not one), its quality (exact|naive_assumed_utc|missing), and what stood there."""

    at: datetime | None
    quality: str
    raw: str | None


MISSING = Time(None, "missing", None)


def read_time(value: Any) -> Time:
    """A timestamp from a number, a numeric string, ISO 8601 (with `T` or a blank) or ctime. Never raises."""
    if value is None or isinstance(value, bool):
        return MISSING
    if isinstance(value, NumberText):
        value = value.text
    if isinstance(value, (int, float)):
        return Time(*_from_number(value), raw=str(value))
    if not isinstance(value, str):
        return MISSING
    text = value.strip()
    if _NUMBER.fullmatch(text) and len(text) < 40:
        return Time(*_from_number(float(text) if "." in text else int(text)), raw=value)
    return Time(*_from_text(text), raw=value)


def worst(qualities: Iterable[str]) -> str:
    """The least trustworthy of several qualities, not counting times that are missing."""
    found = set(qualities)
    return next((q for q in ("synthetic_order", "naive_assumed_utc", "exact") if q in found), "missing")


def _from_number(number: float) -> tuple[datetime | None, str]:
    for unit in _UNITS_PER_SECOND:
        if not 9e8 * unit < number < 4.2e9 * unit:
            continue
        micros = number * 10**6 // unit if isinstance(number, int) else round(number * 10**6 / unit)
        at = _EPOCH + timedelta(microseconds=micros)
        if _FIRST <= at < _LAST:
            return at, "exact"
    return None, "missing"


def _from_text(text: str) -> tuple[datetime | None, str]:
    try:
        at = datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    except ValueError:
        try:
            at = datetime.strptime(text, _CTIME)
        except ValueError:
            return None, "missing"
    quality = "exact" if at.tzinfo is not None else "naive_assumed_utc"
    try:
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        return None, "missing"
    return (at, quality) if _FIRST <= at < _LAST else (None, "missing")
