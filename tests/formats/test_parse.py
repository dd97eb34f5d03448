"""Decoding keeps what was typed: numbers, text, key order; and says what it mended or why it refused."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from flywheel.formats import parse
from flywheel.formats.parse import MAX_DEPTH, Bad, Decoded, NumberText, decode, dumps, too_deep, try_loads


def value_of(data: bytes) -> Any:
    decoded = decode(data)
    assert isinstance(decoded, Decoded), decoded
    return decoded.value


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616",
        "123456789012345678901234567890",
        "1e400",
        "-1e400",
        "1.10",
        "0.1234567890123456789012",
        "1E5",
        "1" * 5000,
        "0.1",
        "-0.0",
        "1e-7",
    ],
)
def test_numbers_come_back_as_they_were_typed(text: str) -> None:
    assert dumps(value_of(f'{{"n":{text}}}'.encode())) == f'{{"n":{text}}}'


def test_numbers_that_are_no_json_become_strings_and_are_flagged() -> None:
    decoded = decode(b'{"score":NaN,"low":-Infinity}')
    assert decoded == Decoded({"score": NumberText("NaN"), "low": NumberText("-Infinity")}, ("nonfinite_number",))
    assert json.loads(dumps(decoded.value)) == {"score": "NaN", "low": "-Infinity"}


@pytest.mark.parametrize(
    ("data", "value", "repairs"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}, ()),
        (b'{"a":1,"a":2}', {"a": 2}, ("duplicate_keys",)),
        (b'{"A":1,"a":2}', {"A": 1, "a": 2}, ()),
        (b'{"a":"caf\xe9"}', {"a": "caf�"}, ("invalid_utf8",)),
        (b'{"a":"\xed\xa0\xbd"}', {"a": "\ud83d"}, ("lone_surrogate",)),
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}, ()),
        (b'{"a":"\\u0000"}', {"a": "\0"}, ()),
        (b'{"a":"\\\\u0000"}', {"a": "\\u0000"}, ()),
        (b'{"a":"tab\there"}', {"a": "tab\there"}, ()),
    ],
)
def test_odd_text_is_kept_or_mended_aloud(data: bytes, value: Any, repairs: tuple[str, ...]) -> None:
    assert decode(data) == Decoded(value, repairs)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"  \n", "empty"),
        (b"<!DOCTYPE html><html>", "html"),
        (b"{'a': None}", "python_repr"),
        (b"[{'a': 1}]", "python_repr"),
        (b'{"a": None}', "invalid_json"),
        (b'{"a": "cut he', "truncated_json"),
        (b'{"a": [1, 2', "truncated_json"),
        (b'{"a": 1,}', "invalid_json"),
        (b"INFO started", "invalid_json"),
        (b"[" * 5000 + b"]" * 5000, "too_deep"),
    ],
)
def test_refusals_have_a_code_and_quote_nothing(data: bytes, code: str) -> None:
    bad = decode(data)
    assert isinstance(bad, Bad)
    assert bad.code == code
    assert "cut he" not in bad.message
    assert "started" not in bad.message


def test_depth_counts_brackets_outside_strings_only() -> None:
    assert not too_deep(b'"' + b"[" * 5000 + b'"')
    assert not too_deep(b'["\\"' + b"[" * 5000 + b'"]')
    assert not too_deep(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert too_deep(b"[" * (MAX_DEPTH + 1))
    assert not too_deep(b"[]" * 5000)
    assert try_loads("[" * 5000 + "]" * 5000) is None


def test_the_deepest_value_that_is_taken_can_be_written() -> None:
    deep = b'{"a":' * MAX_DEPTH + b"1.10" + b"}" * MAX_DEPTH
    assert dumps(value_of(deep)).encode() == deep


def test_values_equal_those_of_pythons_own_parser() -> None:
    rng = random.Random(7)

    def value(depth: int) -> Any:
        kind = rng.randrange(8 if depth < 4 else 6)
        scalars = [None, True, rng.randrange(-(10**20), 10**20), rng.random() * 10 ** rng.randrange(-5, 9)]
        if kind < 4:
            return scalars[kind]
        if kind < 6:
            return "".join(chr(rng.choice([34, 92, 10, 47, 233, 0x1F600, 65, 0])) for _ in range(rng.randrange(6)))
        if kind == 6:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        return {f"k{ix}": value(depth + 1) for ix in range(rng.randrange(4))}

    for _ in range(300):
        made = value(0)
        for text in (json.dumps(made), json.dumps(made, ensure_ascii=False, indent=1)):
            assert value_of(text.encode()) == made
            assert json.loads(dumps(value_of(text.encode()))) == made


PADDING = "x" * 3000
ODD = [
    '"a":1', '"a":1,"a":2', '"a" : 1,"a"\t:2', '"a":": b"', '"a":1,"a":2,"b":":c"', '"a":1,"a":2,"b":"\\u003ac"',
    '"a\\\\":1,"a\\\\":2', '"a\\"":1,"b\\"":2', '"a":"\\":","a":"x"', '"a":"\\\\":1', '"a":" :",":":3',
    '":a":{"b":1,"b":2}',
    '"n":1.10', '"n":1e400', '"n":' + "1" * 5000, '"n":NaN', '"n":-0.0', '"n":12345678901234567890123', '"n":-0',
    '"s":"\\ud83d"', '"s":"tab\there"', '"s":"\\u0000"', '"s":"caf\xe9"',
    '"a":[1,]', '"a":01', '"a":tru', '"a":{"b":[{}]}',
    '"a":' + "[" * 300 + "]" * 300, '"a":' + "[" * 250 + "]" * 250, '"a":' + "[" * 5000 + "]" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_the_quick_parser_gives_what_the_exact_one_gives_or_nothing(
    odd: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f'{{"{PADDING}":null,{odd}}}'.encode(encoding)
    found = decode(data)
    text = decode(json.dumps(PADDING + odd).encode())
    assert text == Decoded(PADDING + odd)
    monkeypatch.setattr(parse, "_QUICK_FROM", 1 << 40)
    assert found == decode(data)


def test_the_quick_parser_does_the_work_on_ordinary_records() -> None:
    for value in ({"a": PADDING, "b": [1, 0.5, {"c": ":x", "d": ' " : '}]}, [PADDING, {"k\\": "\\"}, {'k"': 'a: "'}]):
        for indent in (None, 2):
            data = json.dumps(value, indent=indent).encode()
            assert parse._quick(data, MAX_DEPTH) == Decoded(value)


def test_equal_keys_are_told_wherever_they_stand_and_whatever_stands_around_them() -> None:
    rng = random.Random(11)
    pieces = ['"', "\\", ":", " ", ",", "{", "[", "a", "\n", "\\u003a", '":', "é"]

    def text() -> str:
        return "".join(rng.choices(pieces, k=rng.randrange(7)))

    def members(depth: int) -> str:
        keys = [text() for _ in range(rng.randrange(5))]
        if keys and rng.random() < 0.3:
            keys.append(rng.choice(keys))
        ends = [rng.choice((":", " :", "\n : ", ":\t")) for _ in keys]
        values = [f"{{{members(depth + 1)}}}" if depth < 2 and rng.random() < 0.4 else json.dumps(text()) for _ in keys]
        return ",".join(json.dumps(k, ensure_ascii=False) + e + v for k, e, v in zip(keys, ends, values, strict=True))

    quick = 0
    for _ in range(2000):
        raw = f"{{{members(0)}}}"
        exact = parse.loads(raw)
        found = parse._quick(raw.encode(), MAX_DEPTH)
        assert found is None or found == exact, raw
        quick += found is not None
    assert quick > 500
