"""Rows of a CSV file as records: text under the names of its header line, quoted as RFC 4180 has it.

Every value is text as it stood; an empty field is '' (CSV has no NULL). Of columns with one name the later ones are
`name_1`, `name_2`. A row with more or fewer fields than the header is refused by itself; a quote that is never closed
swallows what follows it, so what is longer than a record may be is refused with the rest of the file.

Not covered: other separators than the comma, files without a header, UTF-16.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from flywheel.formats.parse import dumps
from flywheel.formats.reader import Record
from flywheel.formats.split import MAX_RECORD
from flywheel.records import Reject

_NAME = rb'(?:"[^"\r\n]+"|[A-Za-z_][\w. -]*+)'
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?" + _NAME + rb"(?:," + _NAME + rb")++\r?\n")


def looks_like(first: bytes) -> bool:
    """Whether the bytes begin with a line of at least two column names."""
    return _HEADER.match(first) is not None


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a row, in order; blank lines are none. Never raises on data."""
    csv.field_size_limit(MAX_RECORD)
    rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline=""))
    ix = 0
    try:
        names = _distinct(next(rows, []))
        for row in rows:
            if row:
                yield _record(ix, names, row)
                ix += 1
    except csv.Error as error:
        message = f"the CSV file can't be read after {ix} rows: {error}"
        yield Reject(record_ix=ix, byte_offset=0, byte_len=0, code="damaged_csv", message=message, raw=b"")


def _record(ix: int, names: Sequence[str], row: list[str]) -> Record | Reject:
    raw = dumps(row).encode("utf-8", "surrogateescape")
    if len(row) != len(names):
        message = f"the row has {len(row)} fields where the header names {len(names)}"
        return Reject(record_ix=ix, byte_offset=0, byte_len=0, code="ragged_row", message=message, raw=raw)
    clean = [value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in row]
    repairs = () if clean == row else ("invalid_utf8",)
    return Record(ix=ix, offset=0, length=0, value=dict(zip(names, clean, strict=True)), repairs=repairs, raw=raw)


def _distinct(names: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}  # a set that keeps its order
    tried: Counter[str] = Counter()
    for name in names:
        free = name
        while free in found:
            tried[name] += 1
            free = f"{name}_{tried[name]}"
        found[free] = None
    return list(found)
