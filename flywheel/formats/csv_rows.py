"""Rows of a CSV file as records: text under the names of its header line, quoted as RFC 4180 has it.

Every value is text as it stood; an empty field is '' (CSV has no NULL). A row with more or fewer fields than the header
is refused by itself.

Not covered: other separators than the comma, files without a header.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import BinaryIO

from flywheel.formats.parse import dumps
from flywheel.formats.reader import Record
from flywheel.records import Reject

LONGEST_FIELD = 256 * 2**20
_HEADER = re.compile(rb'(?:\xef\xbb\xbf)?"?[A-Za-z_][\w. -]*"?(?:,"?[A-Za-z_][\w. -]*"?)+\r?\n')


def looks_like(first: bytes) -> bool:
    """Whether the bytes begin with a line of at least two column names."""
    return _HEADER.match(first[: 1 << 16]) is not None


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a row, in order."""
    csv.field_size_limit(LONGEST_FIELD)
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(text)
    names = next(rows, [])
    for ix, row in enumerate(rows):
        raw = dumps(row).encode("utf-8", "replace")
        if len(row) == len(names):
            clean = [value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in row]
            repairs = ("invalid_utf8",) if clean != row else ()
            yield Record(
                ix=ix, offset=0, length=0, value=dict(zip(names, clean, strict=True)), repairs=repairs, raw=raw
            )
        elif row:
            message = f"the row has {len(row)} fields where the header names {len(names)}"
            yield Reject(record_ix=ix, byte_offset=0, byte_len=0, code="ragged_row", message=message, raw=raw)
