"""Regular expressions that users write: RE2 only, so that no text can make one take more than linear time.

Not covered: look-around and back references. RE2 has none, and `compile_safe` says so instead of taking them slowly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_TEXT_ANCHOR = re.compile(r"(?<!\\)(?:\\\\)*\\[AzC]")


@dataclass(frozen=True, slots=True)
class SafePattern:
    """A compiled pattern. `^` and `$` are the ends of a line. With a group, it stands for what the first one holds."""

    pattern: str
    regex: Any

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of every match in characters, from left to right; empty ones are left out."""
        group = 1 if self.regex.groups else 0
        # RE2 reads UTF-8, which has no lone surrogates: each becomes one other character, so that positions stay.
        for match in self.regex.finditer(text.encode("utf-8", "replace").decode()):
            start, end = match.span(group)
            if start < end:
                yield start, end


def compile_safe(pattern: str) -> SafePattern:
    """The pattern, compiled. Errors: ValueError with a sentence if RE2 refuses it or it matches the empty text."""
    import re2

    if _TEXT_ANCHOR.search(pattern):
        raise ValueError(f"{pattern!r}: \\A, \\z and \\C are not supported; ^ and $ are the ends of a line")
    options = re2.Options()
    options.log_errors = False
    try:
        regex = re2.compile(f"(?m:{pattern})", options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else reason
        raise ValueError(
            f"{pattern!r} is no expression that RE2 supports ({reason}); it has no look-around and no back references"
        ) from error
    if regex.search("") is not None:
        raise ValueError(f"{pattern!r} matches the empty text, so it would match everywhere")
    return SafePattern(pattern, regex)


class SafeSet:
    """Which of many byte patterns occur where in a long buffer, at RE2's speed. Bytes are read as Latin-1."""

    def __init__(self, patterns: Sequence[bytes], *, multiline: bool = False) -> None:
        import re2

        options = re2.Options()
        options.encoding, options.never_capture, options.max_mem = re2.Options.Encoding.LATIN1, True, 256 << 20
        mode = b"(?m:" if multiline else b"(?:"
        wrapped = [mode + pattern + b")" for pattern in patterns]
        self._any = re2.compile(b"|".join(wrapped), options)
        self._each = re2.Set.SearchSet(options)
        for pattern in wrapped:
            self._each.Add(pattern)
        self._each.Compile()

    def first(self, data: bytes, at: int) -> int | None:
        """Where the first match of any pattern begins at or after `at`; None where there is none."""
        match = self._any.search(data, at)
        return None if match is None else int(match.start())

    def which(self, data: bytes) -> list[int]:
        """The positions of the patterns that occur in the data."""
        return sorted(self._each.Match(data) or ())
