"""Token counts in the one normal form: input is all input, cache reads and writes included; output is all output,
reasoning included; cache and reasoning counts are subsets of them.

Not covered: formats that report disjoint buckets (each such reader adds them up before it makes a `Usage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from flywheel.formats.parse import NumberText
from flywheel.formats.reader import as_dict, as_int

_MOST_TOKENS = 2**40
_MOST = Decimal(10) ** 9  # what the lake's column holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, each None where unknown."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


def openai_usage(value: Any) -> Usage:
    """`usage` of OpenAI chat completions, as LiteLLM and most gateways write it too: totals include their parts."""
    usage = as_dict(value)
    prompt, completion = as_dict(usage.get("prompt_tokens_details")), as_dict(usage.get("completion_tokens_details"))
    cached = as_int(prompt.get("cached_tokens"))
    if cached is None:  # Anthropic's word behind a gateway, DeepSeek's
        cached = as_int(usage.get("cache_read_input_tokens", usage.get("prompt_cache_hit_tokens")))
    written = (
        usage.get("cache_creation_input_tokens"),
        prompt.get("cache_creation_tokens"),  # LiteLLM
        prompt.get("cache_write_tokens"),  # OpenRouter
    )
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        cache_read_tokens=count(cached),
        cache_write_tokens=next((n for n in map(count, written) if n is not None), None),
        output_tokens=count(usage.get("completion_tokens")),
        reasoning_tokens=count(completion.get("reasoning_tokens")),
    )


def count(value: Any) -> int | None:
    """A number of tokens: None where it's missing, negative, absurd (sums must fit 64 bits) or no number."""
    number = as_int(value)
    return number if number is not None and 0 <= number < _MOST_TOKENS else None


def money(value: Any) -> Decimal | None:
    """An amount of US dollars as it was typed; None where it's no amount or too large to be one."""
    text = value.text if isinstance(value, NumberText) else str(value)
    if isinstance(value, bool) or not isinstance(value, (NumberText, int, float, str)) or len(text) > 64:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() and abs(amount) < _MOST else None
