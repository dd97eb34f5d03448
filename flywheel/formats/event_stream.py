"""A saved stream of server-sent events (`event: ...`, `data: {...}`) as records: one an event with JSON data.

Not covered: data that is no JSON but `[DONE]`; the names and ids of events, which the data repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from flywheel.formats.parse import Bad, decode
from flywheel.formats.reader import Record
from flywheel.formats.split import MAX_RECORD
from flywheel.records import Reject

_FIELDS = (b"event:", b"data:", b"id:", b"retry:")
_DONE = b"[DONE]"


def looks_like(first: bytes) -> bool:
    """Whether the bytes begin as an event stream with JSON data does."""
    head = first[: 1 << 12].lstrip(b"\xef\xbb\xbf\r\n ")
    return head.startswith((b"event:", b"data: {", b"data:{"))


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """The events in order, with the bytes of their lines."""
    ix, start, at, lines = 0, 0, 0, []
    for line in _lines(file):
        if line.strip():
            lines.append(line)
        else:
            for item in _event(lines, ix, start):
                yield item
                ix += 1
            lines = []
            start = at + len(line)
        at += len(line)
    yield from _event(lines, ix, start)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_RECORD):
        yield line
    yield b""


def _event(lines: list[bytes], ix: int, start: int) -> Iterator[Record | Reject]:
    data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
    length = sum(map(len, lines))
    if not lines or data == _DONE or (not data and all(line.startswith((*_FIELDS, b":")) for line in lines)):
        return
    decoded = decode(data) if data else Bad("invalid_json", "lines that are no fields of an event")
    if isinstance(decoded, Bad):
        yield Reject(record_ix=ix, byte_offset=start, byte_len=length, code=decoded.code, message=decoded.message)
    else:
        yield Record(ix=ix, offset=start, length=length, value=decoded.value, repairs=decoded.repairs)
