"""Cluster names: equal for the same failure on another day, different for another failure."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flywheel.trajectory.clusters import TITLES, cluster_of, normalise
from flywheel.trajectory.detectors import DETECTORS
from flywheel.trajectory.trace import Label

SAME = [
    ("Error: flight HAT268 not available on date 2024-05-22", "Error: flight HAT111 not available on date 2025-01-02"),
    ("paid 1,250.00 of 1300", "paid 7 of 12.50"),
    ("no user 'mia_li_3668'", 'no user "Jo Doe"'),
    ("open /home/a/x.py failed", "open /srv/data/run-7/y.csv failed"),
    ("id 7f9c24e8-3b12-4fef-91e0-5d6f7a8b9c0d gone", "id 00000000-0000-4000-8000-000000000000 gone"),
    ("at 2026-11-30T20:19:57Z it broke", "at 2025-01-02 03:04:05 it broke"),
    ("expected May 20th, 2024", "expected 3 March 2025"),
    ('{"error": "No such order: A-1001", "ts": 1}', '{"ts": 2, "error": "No such order: B-2002"}'),
    ('{"error": {"message": "quota of 5 used"}}', '{"error": {"message": "quota of 9 used"}}'),
    ("Traceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'x'",
     "Traceback (most recent call last):\n  File 'b.py', line 9\nKeyError: 'yy'"),
    ("mail a@b.example to http://x.example/1", "mail c.d@e.example to https://y.example/2?q=3"),
    ("row C-3 of v2-final", "row K-17 of x9-final"),
    ("total: expected 12.50, got 125", "total: expected 3.10,  got 31.0"),
]  # fmt: skip

DIFFERENT = [
    ("Error: gift card balance is not enough", "Error: not enough seats on flight"),
    ("total: expected 12.50", "date: expected 12.50"),
    ("missing_required: order_id", "unexpected_param: order_id"),
    ("missing_required: order_id", "missing_required: user_id"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_values_of_the_day_do_not_matter(one: str, other: str) -> None:
    assert normalise(one) == normalise(other) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_another_message_is_another_signature(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize("text", [text for pair in SAME + DIFFERENT for text in pair])
def test_normal_form_is_stable(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
    assert len(normalise(text * 99)) <= 160


def label(**fields: object) -> Label:
    base = {
        "code": "err.retry_same", "step_ix": 4, "evidence": "Error", "owner": "agent", "severity": 2, "confidence": 0.9,
        "detector": "retry_same", "detector_version": "1", "tool": "book", "detail": "Error: seat 12A is taken",
    }  # fmt: skip
    return Label(**(base | fields))  # type: ignore[arg-type]


def test_id_depends_on_code_tool_signature_and_family_alone() -> None:
    first = cluster_of(label(), "airline", "rebook")
    again = cluster_of(
        label(step_ix=9, evidence="other", detector_version="2", detail="Error: seat 7C is taken"),
        "airline", "rebook", datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    assert again.cluster_id == first.cluster_id == "cluster-971c84a98657228dd8d49f1f"  # the same on any machine
    others = [
        cluster_of(label(code="repeat"), "airline", "rebook"),
        cluster_of(label(tool="cancel"), "airline", "rebook"),
        cluster_of(label(detail="Error: no seat left"), "airline", "rebook"),
        cluster_of(label(), "airline", "refund"),
        cluster_of(label(), "airline"),
    ]
    assert len({c.cluster_id for c in [first, *others]}) == 6


def test_title_is_for_people() -> None:
    cluster = cluster_of(label(), "airline", "rebook")
    assert cluster.title == "Retries a failed call unchanged (book): error: seat <id> is taken [rebook]"
    assert (cluster.domain, cluster.tool, cluster.signature) == ("airline", "book", "error: seat <id> is taken")
    assert {d.code for d in DETECTORS} == set(TITLES)
