"""Token counts and money: totals include their parts, what is no count is unknown, amounts are exact."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from flywheel.formats.parse import NumberText
from flywheel.formats.usage import Usage, count, money, openai_usage


def test_openai_usage_is_the_normal_form_already() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": None,
        "cache_read_input_tokens": 70,
        "cache_creation_input_tokens": 10,
    }
    assert openai_usage(usage) == Usage(
        input_tokens=100, cache_read_tokens=0, cache_write_tokens=10, output_tokens=20, reasoning_tokens=None
    )
    assert openai_usage(usage | {"prompt_tokens_details": None}).cache_read_tokens == 70
    assert openai_usage(None) == openai_usage("lots") == Usage()


@pytest.mark.parametrize(
    ("value", "counted"),
    [(0, 0), (7, 7), (7.0, 7), (7.5, None), (-1, None), (True, None), ("7", None), (2**62, None), (None, None)],
)
def test_counts(value: Any, counted: int | None) -> None:
    assert count(value) == counted


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (0.1, Decimal("0.1")),
        (NumberText("0.10"), Decimal("0.10")),
        ("0.0039050000000000005", Decimal("0.0039050000000000005")),
        (2, Decimal(2)),
        (True, None),
        ("NaN", None),
        (NumberText("Infinity"), None),
        (NumberText("1e400"), None),
        ("free", None),
        ("1" * 100, None),
        ({}, None),
        (None, None),
    ],
)
def test_money(value: Any, amount: Decimal | None) -> None:
    assert money(value) == amount
