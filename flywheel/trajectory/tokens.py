"""Token ids and log-probabilities inside JSON: they spell a text that redaction has taken something out of.

Not covered: token columns of a step (`redact.py`); ids under other names.
"""

from __future__ import annotations

import re
from typing import Any

from flywheel.formats.parse import dumps, try_loads

_NAMES = re.compile(r"(?:\w*_)?(?:token_?ids|tokenIds|logprobs|logprobsResult|token_?logprobs)")
TOKENS_GATE = rb"(?:token_?ids|tokenIds|logprobs|logprobsResult)\\{0,15}\"\s{0,9}:"
"""Bytes that a text with such a member has (`scan.py`)."""
REMOVED = "[TOKEN_IDS_00000000]"
"""In place of them. There is nothing to tell apart, so it is always the same."""


def without_tokens(text: str) -> str:
    """JSON text without the values of such members; the very same text where there are none, or where it is no JSON."""
    decoded = try_loads(text)
    if decoded is None:
        return text
    value = _without(decoded.value)
    return text if value == decoded.value else dumps(value)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: REMOVED if isinstance(item, (list, dict)) and _NAMES.fullmatch(key) else _without(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without(item) for item in value]
    return value
