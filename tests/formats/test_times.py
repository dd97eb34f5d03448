"""Timestamps in every unit and spelling; what is no time is none."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from flywheel.formats.parse import NumberText
from flywheel.formats.times import read_time, worst

EXACT = datetime(2025, 9, 4, 19, 43, 56, 544107, tzinfo=UTC)
SECOND = EXACT.replace(microsecond=0)


@pytest.mark.parametrize(
    ("value", "at", "quality"),
    [
        (1757015036, SECOND, "exact"),
        (1757015036.544107, EXACT, "exact"),
        (1757015036544, EXACT.replace(microsecond=544000), "exact"),
        (1757015036544107, EXACT, "exact"),
        (1757015036544107001, EXACT, "exact"),
        ("1757015036544107001", EXACT, "exact"),
        ("1757015036.544107", EXACT, "exact"),
        (NumberText("1757015036.5441070"), EXACT, "exact"),
        ("2025-09-04T19:43:56.544107", EXACT, "naive_assumed_utc"),
        ("2025-09-04T19:43:56.544107999Z", EXACT, "exact"),
        ("2025-09-04 19:43:56", SECOND, "naive_assumed_utc"),
        ("Thu Sep  4 19:43:56 2025", SECOND, "naive_assumed_utc"),
        ("2025-09-05T01:13:56+05:30", SECOND, "exact"),
        (0, None, "missing"),
        (-1, None, "missing"),
        (253402300800000, None, "missing"),
        (True, None, "missing"),
        ("", None, "missing"),
        ("soon", None, "missing"),
        ("9" * 400, None, "missing"),
        ("0001-01-01T00:00:00+23:59", None, "missing"),
        (NumberText("NaN"), None, "missing"),
        (NumberText("1e400"), None, "missing"),
        ({}, None, "missing"),
    ],
)
def test_spellings(value: Any, at: datetime | None, quality: str) -> None:
    time = read_time(value)
    assert (time.at, time.quality) == (at, quality)


def test_zones_are_turned_into_utc() -> None:
    local = EXACT.astimezone(timezone(timedelta(hours=-7)))
    assert read_time(local.isoformat()).at == EXACT
    assert read_time(local.isoformat()).at.tzinfo is UTC  # type: ignore[union-attr]


def test_the_worst_quality_counts() -> None:
    assert worst([]) == "missing"
    assert worst(["missing", "exact"]) == "exact"
    assert worst(["exact", "naive_assumed_utc", "missing"]) == "naive_assumed_utc"


def test_the_sample_of_mixed_units(samples: Path) -> None:
    lines = (samples / "malformed" / "timestamps_mixed_units.jsonl").read_text().splitlines()
    times = [read_time(json.loads(line)["ts"]) for line in lines]
    assert sum(time.at is None for time in times) == 4  # 0, -1, null and the year 10000
    assert {time.at.date().isoformat() for time in times if time.at} == {"2025-09-04"}
