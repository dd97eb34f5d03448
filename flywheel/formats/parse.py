"""One record's bytes to a Python value and back, without losing what was typed.

Numbers: an int stays an int of any size; a float that Python would print otherwise than it was typed (`1e400`, `1.10`,
21 digits), NaN and the infinities become `NumberText`, which keeps the text. `dumps` writes that text again.
Text: NUL and lone surrogates are kept (the lake escapes the latter). Bytes that are no UTF-8 become U+FFFD and the
record is flagged, so one bad byte of a tool's output does not cost the trajectory around it.
Objects: the last of equal keys wins, as everywhere else, but the record is flagged. Nesting beyond `MAX_DEPTH` is
refused before anything recursive sees it.

Python's own parser with hooks is exact; `_quick` is several times faster and gives up wherever that one has to look.

Not covered: where a record begins and ends (`split.py`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from flywheel.formats.equal_keys import agrees, count_keys

MAX_DEPTH = 256  # json, dumps and redaction recurse; Python allows about 1000 frames in all, ours included
_QUICK_FROM = 2 << 10  # bytes: below, the exact parser is done before the quick one has looked for equal keys
_UTF8_BOM = b"\xef\xbb\xbf"
_NESTING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_NO_START = "not JSON: a record begins with { or [, and this one doesn't"
_PYTHON_REPR = re.compile(r"\s*[\[({]+\s*(?:'|None|True|False|\w+\()")


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number that Python can't hold as it was typed."""

    text: str

    @property
    def finite(self) -> bool:
        """False for NaN and the infinities, which are no JSON."""
        return self.text[-1].isdigit()


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value, and what had to be mended to get it (`invalid_utf8`, `lone_surrogate`, `duplicate_keys`, ...)."""

    value: Any
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bad:
    """Why bytes gave no value: a code, and a sentence that quotes none of them."""

    code: str
    message: str


class _Hooks:
    """The callbacks of one decode, remembering what they met."""

    def __init__(self) -> None:
        self.repairs: dict[str, None] = {}  # a set that keeps its order

    def constant(self, text: str) -> NumberText:
        self.repairs["nonfinite_number"] = None
        return NumberText(text)

    def integer(self, text: str) -> int | NumberText:
        return int(text) if len(text) < 4000 else NumberText(text)  # int() refuses more than 4300 digits

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            self.repairs["duplicate_keys"] = None
        return value


def loads(text: str) -> Decoded:
    """The value of one JSON text. Errors: json.JSONDecodeError; nesting must have been checked (`too_deep`)."""
    hooks = _Hooks()
    # strict=False: raw tabs and newlines inside strings are common, harmless, and unambiguous.
    settings: dict[str, Any] = {
        "parse_float": number,
        "parse_constant": hooks.constant,
        "object_pairs_hook": hooks.pairs,
        "strict": False,
    }
    try:
        value = json.JSONDecoder(**settings).decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an int of more digits than int() takes
        value = json.JSONDecoder(**settings, parse_int=hooks.integer).decode(text)
    return Decoded(value, tuple(hooks.repairs))


def decode(data: bytes) -> Decoded | Bad:
    """The value of one record's bytes, or why there is none. Never raises."""
    if len(data) >= _QUICK_FROM:
        quick = _quick(data, MAX_DEPTH)
        if quick is not None:
            return quick
    if too_deep(data):
        return too_deep_to_read()
    text, repairs = decode_text(data)
    try:
        decoded = loads(text)
    except json.JSONDecodeError as error:
        return _explain(text, error)
    return Decoded(decoded.value, repairs + decoded.repairs)


def number(text: str) -> float | NumberText:
    """A JSON number that is no integer, as it was typed."""
    value = float(text)
    return value if repr(value) == text else NumberText(text)


_DECODER = msgspec.json.Decoder(float_hook=number)


def _quick(data: bytes, limit: int) -> Decoded | None:
    """The value by the fast parser, if nothing about it is odd; None where the exact one has to look.

    The fast parser refuses what isn't strict JSON in UTF-8 and hands over every float as it was typed. Only equal keys
    it does not tell, so keys are counted, in the bytes and in the value.
    """
    try:
        value = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not isinstance(value, (dict, list)):
        return Decoded(value)
    keys = count_keys(value, limit)
    return Decoded(value) if keys is not None and agrees(keys, data, value) else None


def decode_text(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Bytes as text (a UTF-8 mark taken off), and what had to be mended. Never raises."""
    data = data.removeprefix(_UTF8_BOM)
    try:
        return data.decode(), ()
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("utf-8", "surrogatepass"), ("lone_surrogate",)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), ("invalid_utf8",)


def too_deep(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether brackets nest deeper than the limit. Counting first makes it free for all but the widest records."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    depth = 0
    for match in _NESTING.finditer(data):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            if depth > limit:
                return True
        elif token in (b"]", b"}"):
            depth -= 1
    return False


def dumps(value: Any) -> str:
    """Compact JSON with keys in their order and numbers as they were typed; NaN and infinities become strings."""
    if _is_plain(value):
        try:
            return msgspec.json.encode(value).decode()
        except (UnicodeEncodeError, OverflowError):
            pass  # a lone surrogate, an integer of more than 64 bits: the other encoder writes them
    try:
        return _ENCODER.encode(value)
    except _Odd:
        return "".join(_write(value))


def _is_plain(value: Any) -> bool:
    """Whether both encoders write the value alike: floats are plain where they need no exponent."""
    kind = type(value)
    if kind is dict or kind is list:
        for item in value.values() if kind is dict else value:
            if type(item) is not str and not _is_plain(item):
                return False
        return True
    return kind in (str, int, bool, type(None)) or (kind is float and (value == 0 or 1e-4 <= abs(value) < 1e16))


def try_loads(text: str, limit: int = MAX_DEPTH) -> Decoded | None:
    """The value of a text that may be JSON (a tool's arguments, a string field); None where it isn't, or too deep."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) >= _QUICK_FROM and (quick := _quick(data, limit)) is not None:
        return quick
    if too_deep(data, limit):
        return None
    try:
        return loads(text)
    except json.JSONDecodeError:
        return None


class _Odd(TypeError):
    """json.dumps met a NumberText; the slow writer takes over."""


def _odd(value: Any) -> Any:
    raise _Odd(type(value).__name__)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_odd)


def _write(value: Any) -> list[str]:
    """`dumps` in Python, for the rare value with a number that json.dumps can't spell."""
    if isinstance(value, NumberText):
        return [value.text if value.finite else f'"{value.text}"']
    if isinstance(value, dict):
        out = ["{"]
        for key, item in value.items():
            out += ["," if len(out) > 1 else "", json.dumps(key, ensure_ascii=False), ":", *_write(item)]
        return [*out, "}"]
    if isinstance(value, list):
        out = ["["]
        for item in value:
            out += ["," if len(out) > 1 else "", *_write(item)]
        return [*out, "]"]
    return [json.dumps(value, ensure_ascii=False, allow_nan=False)]


def too_deep_to_read() -> Bad:
    """The refusal of what is nested too deep."""
    return Bad("too_deep", f"nested deeper than {MAX_DEPTH} levels")


def explained(first: bytes) -> Bad:
    """Why something large that begins with these bytes, and with neither bracket nor brace, is no record."""
    text, _ = decode_text(first)
    return _told_by_its_start(text) or Bad("invalid_json", _NO_START)


def _told_by_its_start(text: str) -> Bad | None:
    start = text[:1000].lstrip()[:200].lower()
    if start and not start.strip("\0"):
        return Bad("zeros", "nothing but zero bytes: the file was not written to its end (a crash, a full disk?)")
    if start and sum(c == "\ufffd" or (c < " " and c not in "\t\r\n\x1b") for c in start) > len(start) // 8:
        return Bad("binary", "these are binary data and no JSON text; unpack the file, or export it as JSON")
    if start.startswith(("<!doctype", "<html", "<?xml", "<")):
        return Bad("html", "this is a web page or XML, not JSON: probably an error page saved in place of the export")
    return None


def _explain(text: str, error: json.JSONDecodeError) -> Bad:
    """A code and a sentence for what json refused. The sentence holds positions, never content: it is stored."""
    if not text or text.isspace():
        return Bad("empty", "there is nothing but blanks")
    told = _told_by_its_start(text)
    if told is not None:
        return told
    if _PYTHON_REPR.match(text):
        return Bad("python_repr", "this was written by Python's repr(); write it with json.dumps")
    if error.msg == "Expecting value" and not text[: error.pos].strip():
        return Bad("invalid_json", _NO_START)
    where = f"{error.msg.removesuffix(' at')} at character {error.pos}"
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        return Bad("truncated_json", f"the JSON stops before it is complete: {where}")
    return Bad("invalid_json", f"not JSON: {where}")
