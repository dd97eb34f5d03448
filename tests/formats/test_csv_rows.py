"""Rows of CSV files: text as it stood, and refusals of single rows."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from flywheel.formats import csv_rows
from flywheel.formats.reader import Record
from flywheel.records import Reject


def read(data: bytes) -> list[Any]:
    return [
        item.value if isinstance(item, Record) else (item.record_ix, item.code)
        for item in csv_rows.records(io.BytesIO(data))
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"id,text\n1,a\n2,\n", [{"id": "1", "text": "a"}, {"id": "2", "text": ""}]),
        (b"\xef\xbb\xbfid,text\r\n1,a\r\n", [{"id": "1", "text": "a"}]),
        (b'id,text\n1,"a\nb\r\n""c"", d"\n', [{"id": "1", "text": 'a\nb\r\n"c", d'}]),
        (b"id,text\n1,a\n2\n3,b,c\n\n4,d\n",
         [{"id": "1", "text": "a"}, (1, "ragged_row"), (2, "ragged_row"), {"id": "4", "text": "d"}]),
        (b"id,text\n007,1e400\n", [{"id": "007", "text": "1e400"}]),
        (b"id,id,id_1\n1,2,3\n", [{"id": "1", "id_1": "2", "id_1_1": "3"}]),
        (b"id,text\n", []),
        (b"", []),
        ("id,text\n1,né\0\n".encode(), [{"id": "1", "text": "né\0"}]),
        (b'id,text\n1,"never closed\n2,b\n', [{"id": "1", "text": "never closed\n2,b\n"}]),
    ],
)  # fmt: skip
def test_rows_are_text_under_the_names_of_the_header(data: bytes, expected: list[Any]) -> None:
    assert read(data) == expected


def test_bytes_that_are_no_utf8_are_mended_and_kept_raw() -> None:
    (record,) = csv_rows.records(io.BytesIO(b"id,text\n1,caf\xe9\n"))
    assert isinstance(record, Record)
    assert record.value["text"] == "caf�" and record.repairs == ("invalid_utf8",)
    assert record.raw == b'["1","caf\xe9"]'


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "MAX_RECORD", 100_000)
    data = b'id,text\n1,a\n2,"' + b"x" * 100_010
    first, last = csv_rows.records(io.BytesIO(data))
    assert isinstance(first, Record) and first.value == {"id": "1", "text": "a"}
    assert isinstance(last, Reject) and last.code == "damaged_csv" and last.record_ix == 1


@pytest.mark.parametrize(
    ("first", "is_csv"),
    [
        (b"id,trace_id\n", True),
        (b'"Trace ID","score (avg)"\r\n', True),
        (b"\xef\xbb\xbfid,name\n1,2\n", True),
        (json.dumps({"a": 1}).encode() + b"\n", False),
        (b"one word\n", False),
        (b"[1,2]\n", False),
        (b"", False),
    ],
)
def test_a_header_of_two_names_makes_a_file_csv(first: bytes, is_csv: bool) -> None:
    assert csv_rows.looks_like(first) is is_csv
