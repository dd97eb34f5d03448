"""Where records begin and end: lines, documents, arrays, in chunks of any size, with exact byte ranges."""

from __future__ import annotations

import json
import random

import pytest
from sources import chunked

from flywheel.formats.read import read_head, read_records
from flywheel.formats.reader import Record, Unit
from flywheel.formats.split import MAX_RECORD, documents, layout_of, lines
from flywheel.records import Reject

A, B = b'{"a": "x]}\\"{"}', b'{"b": [1, {"c": "\\\\"}]}'


@pytest.mark.parametrize(
    ("data", "layout"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (A, "document"),
        (A + b"\n", "document"),
        (A + b"\n" + B, "lines"),
        (b"\n" + A + b"\r\n\n" + B, "lines"),
        (A + B, "document"),
        (b"[" + A + b",\n" + B + b"]", "document"),
        (b"[1]\n[2]\n", "lines"),
        (b'{\n"a": 1\n}', "document"),
        (b'{"a": "cut\n{"b": 1}\n', "lines"),
        (b"log line\n" + A, "lines"),
        (b"\xef\xbb\xbf" + A + b"\n" + B, "lines"),
    ],
)
def test_layouts(data: bytes, layout: str) -> None:
    for size in (3, 5, 1 << 20):  # a mark of three bytes stands in the first chunk whole
        assert layout_of(chunked(data, size)()) == layout


@pytest.mark.parametrize(
    ("data", "unit", "found"),
    [
        (A + b"\n\n" + B + b"\n", "record", [A, B]),
        (A + B, "record", [A, B]),
        (b" [" + A + b" ,\n" + B + b' , 7, "s", null]', "record", [A, B, b"7", b'"s"', b"null"]),
        (b" [" + A + b" ,\n" + B + b"] ", "document", [b"[" + A + b" ,\n" + B + b"]"]),
        (b"[]", "record", []),
        (b"[[1], [2, [3]]]", "record", [b"[1]", b"[2, [3]]"]),
        (b"[[1]]\n[[2]]\n", "record", [b"[[1]]", b"[[2]]"]),
    ],
)
def test_each_record_has_its_exact_byte_range(data: bytes, unit: Unit, found: list[bytes]) -> None:
    for size in (1, 3, 7, 1 << 20):
        records = list(read_records(chunked(data, size), unit))
        assert all(isinstance(record, Record) for record in records)
        assert [data[r.offset : r.offset + r.length] for r in records if isinstance(r, Record)] == found
        assert [record.ix if isinstance(record, Record) else None for record in records] == list(range(len(found)))


def test_a_broken_element_costs_itself_only() -> None:
    data = b'[{"a": 1}, {"b": }, {"c": 3}, {"d'
    good, bad = [], []
    for item in read_records(chunked(data), "record"):
        (bad if isinstance(item, Reject) else good).append(item)
    assert [record.value for record in good] == [{"a": 1}, {"c": 3}]
    assert [(r.code, data[r.byte_offset : r.byte_offset + r.byte_len]) for r in bad] == [
        ("invalid_json", b'{"b": }'),
        ("truncated_json", b'{"d'),
    ]


def test_a_broken_line_costs_itself_only_and_two_documents_on_a_line_are_two_records() -> None:
    data = b'{"a": "cut\n{"b": 2}\n' + A + B + b"\n]]\n"
    items = list(read_records(chunked(data), "record"))
    assert [item.value if isinstance(item, Record) else item.code for item in items] == [
        "truncated_json",
        {"b": 2},
        json.loads(A),
        json.loads(B),
        "invalid_json",
    ]
    assert items[2].repairs == ("concatenated",)
    assert data[items[3].offset :].startswith(B)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_utf16_has_offsets_of_its_own_bytes(encoding: str) -> None:
    marked = ("﻿" + '{"a": "é😀"}\n{"b": 1}\n{"c').encode(encoding)
    first, second, third = read_records(chunked(marked), "record")
    assert isinstance(first, Record)
    assert first.value == {"a": "é😀"}
    assert isinstance(second, Record)
    assert marked[second.offset : second.offset + second.length].decode(encoding) == '{"b": 1}'
    assert isinstance(third, Reject)
    assert marked[third.byte_offset :].decode(encoding) == '{"c'


def test_a_record_that_is_too_large_is_refused_without_being_held() -> None:
    blank = b"x" * (1 << 20)
    endless = (chunk for chunk in [b'{"a": "'] + [blank] * (MAX_RECORD // len(blank) + 2) + [b'"}\n{"b": 1}\n'])
    first, second = lines(endless)
    assert first.data is None
    assert first.length > MAX_RECORD
    assert second.data == b'{"b": 1}'


def test_any_bytes_are_accounted_for_in_any_chunks() -> None:
    rng = random.Random(11)
    for _ in range(300):
        data = bytes(rng.choice(b'{}[]",:\\ \n1a\xe9') for _ in range(rng.randrange(60)))
        whole = list(documents(chunked(data)(), elements=True))
        for size in (1, 3):
            assert list(documents(chunked(data, size)(), elements=True)) == whole
        covered = set()
        for piece in whole:
            assert piece.data == data[piece.offset : piece.offset + piece.length]
            covered |= set(range(piece.offset, piece.offset + piece.length))
        left = bytes(byte for at, byte in enumerate(data) if at not in covered)
        assert not left.strip(b" \n,[]"), (data, left)


def test_the_head_stops_reading_when_it_has_seen_enough() -> None:
    def endless() -> object:
        yield b'{"a": 1}\n'
        for _ in range(10):
            yield b'{"a": 1}\n'
        pytest.fail("read on although the head was complete")

    assert len(read_head(endless).values) == 8  # type: ignore[arg-type]


def test_a_broken_first_line_is_a_line() -> None:
    for size in (1, 7, 1000):
        for first in (b"{not-json", b'{"a":1', b'[{"a":1}', b'{"a":{"b":2}'):
            assert layout_of(chunked(first + b'\n\n{"a":1}\n{"a":2}', size)()) == "lines", (first, size)
        for pretty in (b'{\n  "a":\n[1]}', b'[\n{"a":1},\n {"a":2}\n]', b'{"a": [\n[1],\n[2]]}', b'{"a":1\n,"b":{}}'):
            assert layout_of(chunked(pretty, size)()) == "document", (pretty, size)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_what_is_too_deep_is_not_held_and_ends_where_it_ends(size: int) -> None:
    deep = b"[" * 3000 + b'"]]"' + b"]" * 3000
    data = b'[{"a": 1}, ' + deep + b', {"b": [[2]]}]'
    pieces = list(documents((data[at : at + size] for at in range(0, len(data), size)), elements=True))
    assert [(piece.offset, piece.length) for piece in pieces] == [(1, 8), (11, len(deep)), (13 + len(deep), 12)]
    assert [piece.data for piece in pieces] == [b'{"a": 1}', None, b'{"b": [[2]]}']
    assert pieces[1].why is not None and pieces[1].why.code == "too_deep"


def test_a_long_line_that_begins_no_record_is_not_held() -> None:
    chunk, good = b"\0" * (1 << 20), b'{"a": "' + b"x" * (3 << 20) + b'"}'
    first, last = lines([b" ", chunk, chunk, chunk, b"\n" + good[:2000], good[2000:]])
    assert (first.offset, first.length, first.data) == (0, 1 + 3 * len(chunk), None)
    assert first.why is not None and first.why.code == "zeros"
    assert (last.offset, last.data) == (2 + 3 * len(chunk), good)
