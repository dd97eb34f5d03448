"""Where the patterns are in a text, and, at a hundred times that speed, in which texts it is worth looking at all.

`Rules.suspects` joins many texts into one buffer, looks for the gates of all patterns at once and says which text may
hold which pattern; nearly all hold none. `Rules.spans` then tries the exact patterns on a suspected text. Engines:
`hyperscan` where it is installed (x86-64 Linux), `re2` anywhere, and `re`, which suspects everything and is what the
other two are held against: all three give the same spans.

Not covered: what a match means (`patterns.py`, `checks.py`), what takes its place (`redact.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

from flywheel.saferegex import SafeSet, compile_safe
from flywheel.trajectory.patterns import ESCAPES_GATE, PERSONAL, SHORTEST, Pattern
from flywheel.trajectory.placeholders import LONGEST, PROTECTED
from flywheel.trajectory.secret_patterns import NAME_GATE, SECRETS
from flywheel.trajectory.tokens import TOKENS_GATE

PATTERNS: tuple[Pattern, ...] = (*SECRETS, *PERSONAL)
"""In order of precedence: where two overlap, the earlier takes the text."""
ESCAPED, NAMED, TOKENS, OWN = (len(PATTERNS) + ix for ix in range(4))
"""After the patterns: an escape may hide a match, a member's name may make its value a secret, token ids may spell one;
and one's own patterns."""
GATES: tuple[bytes, ...] = (*(pattern.gate for pattern in PATTERNS), ESCAPES_GATE, NAME_GATE, TOKENS_GATE)

Engine = Literal["hyperscan", "re2", "re"]
_BUFFER = 256 << 10  # bytes scanned at once
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


class Span(NamedTuple):
    """A part of a text that is to be replaced, in characters."""

    start: int
    end: int
    kind: str


Suspicion = Mapping[int, Sequence[int] | None]
"""Which patterns may be in a text, and where their gates matched (ends, in characters); None: anywhere."""
_NOTHING: Suspicion = {}


class _Finder(Protocol):
    def hits(self, data: bytes, starts: Sequence[int]) -> Iterator[tuple[int, int, int | None]]:
        """(text, gate, end in the buffer) in order; text `i` begins at `starts[i]`, after a newline, before another."""


class Rules:
    """All patterns, the built-in ones and those of the configuration, ready to be looked for. Immutable.

    `own` maps a kind to an RE2 expression. Errors: ValueError for one that RE2 refuses.
    """

    def __init__(self, own: Mapping[str, str] | None = None, *, engine: Engine | None = None) -> None:
        self.engine: Engine = engine or ("hyperscan" if find_spec("hyperscan") else "re2")
        self._own = sorted((kind, compile_safe(pattern)) for kind, pattern in (own or {}).items())
        self._finders: list[_Finder] = [_BUILT_IN[self.engine]()]
        if self._own:
            gates = [pattern.pattern.encode() for _, pattern in self._own]
            self._finders.append(_Re2(SafeSet(gates, multiline=True), first=OWN))
        self._short = lru_cache(maxsize=8192)(self._one)

    def suspects(self, texts: Sequence[str]) -> dict[int, Suspicion]:
        """What may be in which text (by position). Nearly all texts hold nothing and are not in it."""
        found: dict[int, dict[int, list[int] | None]] = {}
        for first, data, starts in _buffers(texts):
            for finder in self._finders:
                for text, gate, end in finder.hits(data, starts):
                    ends = found.setdefault(first + text, {}).setdefault(gate, None if end is None else [])
                    if ends is not None and end is not None:
                        ends.append(end - starts[text])
        return {ix: _in_characters(texts[ix], gates) for ix, gates in found.items()}

    def suspicion(self, text: str) -> Suspicion:
        """What may be in one text. Short texts come again and again and are remembered."""
        if len(text) < SHORTEST:
            return _NOTHING
        return self._short(text) if len(text) < 64 else self._one(text)

    def _one(self, text: str) -> Suspicion:
        return self.suspects((text,)).get(0, _NOTHING)

    def spans(self, text: str, suspicion: Suspicion) -> list[Span]:
        """What is to be replaced, from left to right, without overlaps. A placeholder is left whole or taken whole."""
        taken: list[Span] = []
        for ix in sorted(suspicion):
            for start, end, kind in self._spans_of(ix, text, suspicion[ix]):
                at = bisect_left(taken, (start, end, ""))
                if (at and taken[at - 1].end > start) or (at < len(taken) and taken[at].start < end):
                    continue
                taken.insert(at, Span(start, end, kind))
        return [span for span in taken if not _cuts(span, text)]

    def _spans_of(self, ix: int, text: str, ends: Sequence[int] | None) -> Iterator[Span]:
        if ix >= OWN:
            kind, own = self._own[ix - OWN]
            yield from (Span(start, end, kind) for start, end in own.spans(text))
        elif ix < ESCAPED:
            pattern = PATTERNS[ix]
            found = pattern.spans(text) if ends is None else pattern.spans_near(text, ends)
            yield from (Span(start, end, pattern.kind) for start, end in found)


def _in_characters(text: str, gates: dict[int, list[int] | None]) -> Suspicion:
    """Ends in bytes as ends in characters."""
    if text.isascii():
        return gates
    data, at, count = text.encode("utf-8", "replace"), 0, 0
    characters: dict[int, int] = {}
    for end in sorted({end for ends in gates.values() for end in ends or ()}):
        count, at = count + len(data[at:end].translate(None, _CONTINUATION)), end
        characters[end] = count
    return {gate: None if ends is None else [characters[end] for end in ends] for gate, ends in gates.items()}


def _cuts(span: Span, text: str) -> bool:
    """Whether a span begins or ends inside a placeholder, or is one."""
    near = max(0, span.start - LONGEST)
    for match in PROTECTED.finditer(text, near, span.end + LONGEST):
        start, end = match.span()
        is_it = (span.start, span.end) == (start, end)
        if end > span.start and start < span.end and (span.start > start or span.end < end or is_it):
            return True
    return False


def _buffers(texts: Sequence[str]) -> Iterator[tuple[int, bytes, list[int]]]:
    """(first text, buffer, where each text begins): texts joined by newlines, up to a few MB at a time."""
    if sum(map(len, texts)) <= _BUFFER:
        yield 0, *_joined(texts)
        return
    first, size = 0, 0
    for ix, text in enumerate(texts):
        if size and size + len(text) > _BUFFER:
            yield first, *_joined(texts[first:ix])
            first, size = ix, 0
        size += len(text)
    yield first, *_joined(texts[first:])


def _joined(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    if all(map(str.isascii, texts)):
        data, sizes = "\n".join(texts).encode("ascii"), map(len, texts)
    else:
        parts = [text.encode("utf-8", "replace") for text in texts]
        data, sizes = b"\n".join(parts), map(len, parts)
    starts = list(accumulate(map((1).__add__, sizes), initial=1))
    return b"\n%b\n" % data, starts[:-1]


class _Hyperscan:
    """All gates in one pass. It reports where a match ends, so the gates end inside the text they are about."""

    def __init__(self) -> None:
        import hyperscan

        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=list(GATES), ids=list(range(len(GATES))), elements=len(GATES), flags=[0] * len(GATES)
        )

    def hits(self, data: bytes, starts: Sequence[int]) -> Iterator[tuple[int, int, int | None]]:
        found: list[tuple[int, int]] = []

        def on_match(gate: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            found.append((end, gate))

        self._database.scan(data, match_event_handler=on_match)
        for end, gate in found:
            yield max(0, bisect_left(starts, end) - 1), gate, end


class _Re2:
    """Any gate first, then which ones, in the texts where there is any."""

    def __init__(self, gates: SafeSet, first: int = 0) -> None:
        self._gates, self._first = gates, first

    def hits(self, data: bytes, starts: Sequence[int]) -> Iterator[tuple[int, int, int | None]]:
        at: int | None = 0
        while at is not None and (at := self._gates.first(data, at)) is not None:
            # The match may begin with the newline before its text; then it is the text after it.
            text = max(0, bisect_right(starts, at + 1) - 1)
            end = starts[text + 1] if text + 1 < len(starts) else len(data)
            for gate in self._gates.which(data[starts[text] - 1 : end]):
                yield text, self._first + gate, None
            at = end - 1 if end < len(data) else None


class _Everything:
    """No gate: every pattern is tried on every text."""

    def hits(self, data: bytes, starts: Sequence[int]) -> Iterator[tuple[int, int, int | None]]:
        for text in range(len(starts)):
            for gate in range(len(GATES)):
                yield text, gate, None


@cache
def _hyperscan() -> _Finder:
    return _Hyperscan()


@cache
def _re2() -> _Finder:
    return _Re2(SafeSet(GATES))


_BUILT_IN: Mapping[Engine, Callable[[], _Finder]] = {"hyperscan": _hyperscan, "re2": _re2, "re": _Everything}


@cache
def built_in() -> Rules:
    """The rules without any of one's own."""
    return Rules()
