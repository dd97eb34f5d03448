"""Cuts a UTF-8 stream into the bytes of its records: JSON lines, one document, an array's elements, or documents back
to back. By structure (brackets and strings), not by parsing, so that a broken element costs itself only, and memory
holds one record and not the file. What can't become a record, whatever follows (nested too deep, a long line that is
neither object nor array), is not held.

Which of the layouts it is: a first line that is a whole value and is followed by other lines means lines; so does one
that breaks off inside a string, or where a bracket follows that no JSON has there. Everything else is a document.

Not covered: decoding (`read.py`), other encodings (transcoded there), decompression (ingest opens).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from flywheel.formats.parse import MAX_DEPTH, Bad, explained, too_deep_to_read

Layout = Literal["empty", "lines", "document"]

MAX_RECORD = 256 * 2**20
_LONG = 1 << 20  # bytes of a line, from which on its beginning is looked at before the rest is held
_UTF8_BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n\x0b\x0c"
_STRUCTURE = re.compile(rb'[\[{]+|[\]}]+|"[^"\\]*+(?:\\.[^"\\]*+)*+"|"', re.DOTALL)  # a string whole, if it ends here
_STRUCTURE_OR_LINE = re.compile(rb'[\[{]+|[\]}]+|["\n]')
_STRING_END = re.compile(rb'["\\]')
_STRING_END_OR_LINE = re.compile(rb'["\\\n]')
_SIGNIFICANT = re.compile(rb"[^\s,]")
_SCALAR_END = re.compile(rb'[\s,\[\]{}"]')


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of one record; `data` is None where they were too many to hold, or `why` tells that it's no record."""

    offset: int
    length: int
    data: bytes | None
    why: Bad | None = None


def layout_of(chunks: Iterable[bytes]) -> Layout:
    """How the source is laid out; reads no further than the first line and what follows it."""
    look = _FirstLine()
    for chunk in chunks:
        found = look.feed(chunk)
        if found is not None:
            return found
    return "document" if look.begun else "empty"


class _FirstLine:
    """Follows the first value until it's clear whether a line ends where the value does."""

    def __init__(self) -> None:
        self.begun = False
        self.depth = 0
        self.in_string = False
        self.shielded = False  # the last byte was a backslash in a string
        self.closed = False
        self.newline = False  # since the value closed
        self.last = b""  # of the chunks before
        self.before: bytes | None = None  # what stood before the first line's end, where the value goes on

    def feed(self, chunk: bytes) -> Layout | None:
        at = 0
        if not self.begun:
            content = chunk.removeprefix(_UTF8_BOM).lstrip(BLANK)
            if not content:
                return None
            at, self.begun = len(chunk) - len(content), True
            if content[0] not in b"[{":
                return "lines"
        while not self.closed and at < len(chunk):
            if self.before is not None:
                return self._goes_on(chunk[at:])
            if self.shielded:
                at, self.shielded = at + 1, False
                continue
            at, token = _find(_STRING_END_OR_LINE if self.in_string else _STRUCTURE_OR_LINE, chunk, at)
            if token == b"\n":
                if self.in_string:
                    return "lines"
                self.before = chunk[: at - 1].rstrip(BLANK)[-1:] or self.last
                continue
            at -= self._step(token)
        self.last = chunk.rstrip(BLANK)[-1:] or self.last
        return self._after(chunk[at:]) if self.closed else None

    def _step(self, token: bytes) -> int:
        """Take in what was found; how many brackets of it come after the value's end."""
        if token == b"\\":
            self.shielded = True
        elif token == b'"':
            self.in_string = not self.in_string
        elif token[:1] in (b"[", b"{"):
            self.depth += len(token)
        elif token:
            self.depth -= len(token)
            self.closed = self.depth <= 0
        return -self.depth if self.closed else 0

    def _goes_on(self, rest: bytes) -> Layout | None:
        """A value on several lines, or a broken first line: in JSON no bracket opens where no comma came before."""
        content = rest.lstrip(BLANK)
        if not content:
            return None
        return "lines" if content[0] in b"[{" and self.before not in (b"", b",", b":", b"[") else "document"

    def _after(self, rest: bytes) -> Layout | None:
        content = rest.lstrip(BLANK)
        self.newline = self.newline or b"\n" in rest[: len(rest) - len(content)]
        if not content:
            return None
        return "lines" if self.newline else "document"


def lines(chunks: Iterable[bytes]) -> Iterator[Piece]:
    """One piece a line that is not blank, without its newline."""
    line = _Line(0)
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for part in whole:
            line.add(part)
            yield from line.end()
            line = _Line(line.offset + line.length + 1)
        line.add(last)
    yield from line.end()


class _Line:
    """One line in the making."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.length = 0
        self.held: list[bytes] = []
        self.why: Bad | None = None  # it's no record

    def add(self, part: bytes) -> None:
        self.length += len(part)
        if self.why is not None or self.length > MAX_RECORD:
            self.held = []
            return
        self.held.append(part)
        if self.length > _LONG and self.length - len(part) <= _LONG:
            self._look()

    def _look(self) -> None:
        first = b"".join(self.held)[:_LONG].removeprefix(_UTF8_BOM).lstrip(BLANK)
        if first and first[0] not in b"[{":
            self.why, self.held = explained(first[:200]), []

    def end(self) -> Iterator[Piece]:
        if self.why is not None or self.length > MAX_RECORD:
            yield Piece(self.offset, self.length, None, self.why)
            return
        data = b"".join(self.held)
        if data.strip(BLANK):
            yield Piece(self.offset, len(data), data)


def documents(chunks: Iterable[bytes], elements: bool) -> Iterator[Piece]:
    """One piece a top-level value; with `elements`, a top-level array gives its elements instead of itself."""
    scanner = _Scanner(elements)
    stream = iter(chunks)
    for chunk in stream:
        yield from scanner.feed(chunk)
        if len(scanner.buffer) > MAX_RECORD:
            yield Piece(scanner.base, len(scanner.buffer) + sum(map(len, stream)), None)
            return
    yield from scanner.end()


class _Scanner:
    """Finds the ends of values in a stream by counting brackets outside strings."""

    def __init__(self, elements: bool) -> None:
        self.elements = elements
        self.buffer = bytearray()
        self.base = 0  # offset of buffer[0]
        self.at = 0  # next byte to look at, in the buffer
        self.start: int | None = None  # of the current value, in the buffer
        self.depth = 0
        self.level = 0  # depth between two values: 1 inside an opened array
        self.in_string = False
        self.shielded = False  # the last byte was a backslash in a string
        self.closed = False  # the current value is complete
        self.too_deep = False  # and so it is not held: `start` lies before the buffer then

    def feed(self, chunk: bytes) -> Iterator[Piece]:
        self.buffer += chunk
        while self.at < len(self.buffer):
            if self.start is None:
                self._begin()
            elif self.in_string:
                self._skip_string()
            elif self.depth == self.level and self.buffer[self.start] not in b'[{"':
                self._skip_scalar()
            else:
                self._step()
            if self.closed:
                yield self._take()
        keep = self.at if self.start is None or self.too_deep else self.start
        del self.buffer[:keep]
        self.base, self.at = self.base + keep, self.at - keep
        self.start = None if self.start is None else self.start - keep

    def end(self) -> Iterator[Piece]:
        """The value that the stream broke off in, if any."""
        if self.start is not None:
            yield self._take()

    def _take(self) -> Piece:
        assert self.start is not None
        offset, length = self.base + self.start, self.at - self.start
        if self.too_deep:
            piece = Piece(offset, length, None, too_deep_to_read())
        else:
            piece = Piece(offset, length, bytes(self.buffer[self.start : self.at]))
        self.start, self.closed, self.in_string, self.too_deep, self.depth = None, False, False, False, self.level
        return piece

    def _begin(self) -> None:
        """Go to the next value, into or out of the top-level array."""
        if self.base + self.at == 0 and self.buffer.startswith(_UTF8_BOM):
            self.at = len(_UTF8_BOM)
        self.at, token = _find(_SIGNIFICANT, self.buffer, self.at)
        if token == b"[" and self.elements and self.level == 0:
            self.level = self.depth = 1
        elif token == b"]" and self.level == 1:
            self.level = self.depth = 0
        elif token:
            self.at -= 1
            self.start = self.at

    def _step(self) -> None:
        self.at, token = _find(_STRUCTURE, self.buffer, self.at)
        if token == b'"':
            self.in_string = True
        elif token[:1] in (b"[", b"{"):
            self.depth += len(token)
            self.too_deep |= self.depth - self.level > MAX_DEPTH
        elif token[:1] in (b"]", b"}"):
            beyond = max(len(token) - (self.depth - self.level), 0)
            self.depth, self.at = self.depth - len(token) + beyond, self.at - beyond
        self.closed = token not in (b"", b'"') and self.depth == self.level

    def _skip_string(self) -> None:
        if self.shielded:
            self.at, self.shielded = self.at + 1, False
            return
        self.at, token = _find(_STRING_END, self.buffer, self.at)
        if token == b"\\":
            self.shielded = True
        elif token:
            self.in_string = False
            self.closed = self.depth == self.level

    def _skip_scalar(self) -> None:
        # From the second byte on: a stray closing bracket is a value of one byte, which decoding will refuse.
        first = self.start + 1 if self.at == self.start and self.start is not None else self.at
        at, token = _find(_SCALAR_END, self.buffer, first)
        self.at = at - 1 if token else at
        self.closed = bool(token)


def _find(pattern: re.Pattern[bytes], data: bytes | bytearray, at: int) -> tuple[int, bytes]:
    """The index after the next match and its text; the end of the data and b"" where there is none."""
    match = pattern.search(data, at)
    return (len(data), b"") if match is None else (match.end(), bytes(match.group()))
