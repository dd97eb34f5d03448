"""Whether a JSON text has two equal keys in one object, told by counting, for parsers that don't say.

A fast parser keeps the last of equal keys. Then the value it gives has fewer keys than the text, and counting both is
much faster than looking at every object.

Not covered: which keys they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_OPENING = tuple('":,[{ \t\r\n')  # the quote: of the empty key
_IS_OPENING = np.zeros(256, bool)
_IS_OPENING[list(map(ord, _OPENING))] = True


def agrees(keys: int, data: bytes, value: Any) -> bool:
    """Whether a JSON text has as many keys as the value it became: then no two equal ones were in one object.

    `_most_keys` counts the keys that are there, lost ones, and strings that begin with a colon. How many of these
    there are it says too, but with keys whose last character is like what stands before a string.
    """
    most, openers = _most_keys(data)
    return keys == most or (keys == most - openers and not _has_odd_key(value))


def count_keys(value: dict[str, Any] | list[Any], levels: int) -> int | None:
    """How many keys all objects of the value have together; None if it nests deeper than the levels."""
    if levels == 0:
        return None
    keys = len(value) if type(value) is dict else 0
    for item in value.values() if type(value) is dict else value:
        if type(item) is dict or type(item) is list:
            inner = count_keys(item, levels - 1)
            if inner is None:
                return None
            keys += inner
    return keys


def _has_odd_key(value: Any) -> bool:
    """Whether some key ends with a character that may stand before a string."""
    if isinstance(value, dict):
        return any(key[-1:] in _OPENING or not key for key in value) or any(map(_has_odd_key, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_odd_key, value))


def _most_keys(data: bytes) -> tuple[int, int]:
    """How often a quote that nothing escapes, blanks and a colon follow each other; how many of these quotes may open.

    Every key ends so; but a string that begins with a colon begins so.
    """
    view = np.frombuffer(data, np.uint8)
    colons = np.flatnonzero(view == ord(":"))
    before = view[colons - 1]
    quotes = colons[before == ord('"')] - 1
    ahead = view[quotes - 1]
    escaped = quotes[ahead == ord("\\")].tolist()
    count = len(quotes) - len(escaped) + sum(_ends_string(data, at) for at in escaped)
    openers = int(_IS_OPENING[ahead].sum())
    for colon in colons[before <= ord(" ")].tolist():
        at = colon - 1
        while data[at] in b" \t\r\n":
            at -= 1
        if data[at] == ord('"') and _ends_string(data, at):
            count += 1
            openers += bool(_IS_OPENING[data[at - 1]])
    return count, openers


def _ends_string(data: bytes, quote: int) -> bool:
    """Whether the quote at that place is free of a backslash before it."""
    at = quote - 1
    while at >= 0 and data[at] == ord("\\"):
        at -= 1
    return (quote - at) % 2 == 1
