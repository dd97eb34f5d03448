"""A source's bytes to decoded records, each with the byte range it stood at.

Offsets are those of the decompressed bytes as they were, in UTF-16 too.

Not covered: decompression and copying (ingest opens the source), UTF-16 sources that don't fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from flywheel.formats.parse import Bad, Decoded, decode
from flywheel.formats.reader import Head, Record, Unit
from flywheel.formats.split import BLANK, MAX_RECORD, Piece, documents, layout_of, lines
from flywheel.records import Reject

Chunks = Callable[[], Iterator[bytes]]
"""Opens the source anew, decompressed, and yields its bytes in pieces of any size."""

Quick = Callable[[bytes], Any]
"""A decoder of one format's own for ordinary records; None for those that `parse.decode` has to look at."""

_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


def encoding_of(head: bytes) -> str:
    """The encoding by mark, or by the zero bytes that ASCII has in UTF-16; else UTF-8."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    if len(head) >= 4 and head[0] in b'[{"' + BLANK and head[1] == 0 and head[2] != 0:
        return "utf-16-le"
    if len(head) >= 4 and head[0] == 0 and head[1] in b'[{"' + BLANK and head[2] == 0:
        return "utf-16-be"
    return "utf-8"


class _Ruler:
    """Offsets in transcoded bytes to offsets in the original, asked for in rising order."""

    def __init__(self, encoding: str, data: bytes) -> None:
        self.encoding = encoding
        self.data = data
        self.at = 0
        self.original = 0

    def __call__(self, offset: int) -> int:
        text = self.data[self.at : offset].decode("utf-8", "surrogatepass")
        self.original += len(text.encode(self.encoding, "surrogatepass"))
        self.at = offset
        return self.original


def read_records(chunks: Chunks, unit: Unit, quick: Quick | None = None) -> Iterator[Record | Reject]:
    """The records of a source in order; a Reject for what can't be decoded or is too large to hold. Never raises."""
    encoding = encoding_of(_first(chunks))
    if encoding == "utf-8":
        yield from _decoded(chunks, unit, quick)
        return
    data, repairs = _transcoded(b"".join(chunks()), encoding)
    ruler = _Ruler(encoding, data)
    for item in _decoded(lambda: iter((data,)), unit):
        if isinstance(item, Record):
            start = ruler(item.offset)
            length = ruler(item.offset + item.length) - start
            yield replace(item, offset=start, length=length, repairs=item.repairs + repairs, raw=None)
        else:
            start = ruler(item.byte_offset)
            yield replace(item, byte_offset=start, byte_len=ruler(item.byte_offset + item.byte_len) - start, raw=None)


def read_head(chunks: Chunks, wanted: int = 8, searched: int = 256) -> Head:
    """The first records that decode, of the first `searched`."""
    found = (item.value for item in islice(read_records(chunks, "record"), searched) if isinstance(item, Record))
    first = _first(chunks).lstrip(b"\xef\xbb\xbf\xff\xfe\x00" + BLANK)[:1]
    in_array = first == b"[" and layout_of(chunks()) == "document"
    return Head(values=tuple(islice(found, wanted)), in_array=in_array)


def _first(chunks: Chunks) -> bytes:
    return next((chunk for chunk in chunks() if chunk), b"")


def _transcoded(data: bytes, encoding: str) -> tuple[bytes, tuple[str, ...]]:
    try:
        return data.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass"), ()
    except UnicodeDecodeError:
        return data.decode(encoding, "replace").encode(), ("invalid_utf16",)


def _decoded(chunks: Chunks, unit: Unit, quick: Quick | None = None) -> Iterator[Record | Reject]:
    by_line = layout_of(chunks()) == "lines"
    ix = 0
    for piece in lines(chunks()) if by_line else documents(chunks(), unit == "record"):
        for item in _values(piece, ix, by_line, quick):
            yield item
            ix += 1


def read_lines(chunks: Chunks, offset: int, quick: Quick | None = None) -> Iterator[Record | Reject]:
    """The records of a part of a source that is made of whole lines in UTF-8 and begins at `offset`."""
    ix = 0
    for piece in lines(chunks()):
        for item in _values(replace(piece, offset=offset + piece.offset), ix, True, quick):
            yield item
            ix += 1


def _values(piece: Piece, ix: int, by_line: bool, quick: Quick | None = None) -> list[Record | Reject]:
    """What one piece gives: a record or a refusal, or, for a line of several documents, one of them each."""
    if piece.data is None and piece.why is not None:
        return [_reject(piece, ix, piece.why)]
    if piece.data is None:
        message = f"one record of {piece.length} bytes; at most {MAX_RECORD} can be held"
        return [_reject(piece, ix, Bad("record_too_large", message))]
    at_once = quick(piece.data) if quick is not None else None
    value = decode(piece.data) if at_once is None else Decoded(at_once)
    if isinstance(value, Decoded):
        return [_record(piece, ix, value)]
    if by_line and value.code == "invalid_json":
        parts = list(documents((piece.data,), elements=False))
        values = [decode(part.data or b"") for part in parts]
        if len(parts) > 1 and all(isinstance(v, Decoded) and isinstance(v.value, (dict, list)) for v in values):
            moved = [replace(part, offset=piece.offset + part.offset) for part in parts]
            return [
                _record(part, ix + n, replace(v, repairs=(*v.repairs, "concatenated")))
                for n, (part, v) in enumerate(zip(moved, values, strict=True))
                if isinstance(v, Decoded)
            ]
    return [_reject(piece, ix, value)]


def _record(piece: Piece, ix: int, decoded: Decoded) -> Record:
    return Record(
        ix=ix,
        offset=piece.offset,
        length=piece.length,
        value=decoded.value,
        repairs=decoded.repairs,
        raw=piece.data,
    )


def _reject(piece: Piece, ix: int, bad: Bad) -> Reject:
    return Reject(
        record_ix=ix,
        byte_offset=piece.offset,
        byte_len=piece.length,
        code=bad.code,
        message=bad.message,
        raw=piece.data,
    )
