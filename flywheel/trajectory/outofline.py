"""Media, and any text over 1 MiB, out of the rows and into blobs: the same bytes once, whatever refers to them.

    parts   {"type": "image_url", "image_url": {"url": {"blob": "<sha256>", "bytes": 68, "mime": "image/png", "as": …}}}
    text    head, `[blob <sha256> holds all <n> bytes]`, tail

`externalise` takes base64 data URLs, and base64 under the names that the APIs have for it (OpenAI `input_audio` and
`file`, Anthropic `source`, Gemini `inlineData`, blob parts of OpenTelemetry, content of MCP, Inspect and ATIF), out of
every JSON column, and long texts out of all. `internalise` is its inverse, character by character; exporters use it.
JSON is edited as text, so that what stands around a medium stays as it was typed.

Not covered: base64 inside plain text or inside JSON inside a string (moved only with a text over 1 MiB); base64 that
is not in its one canonical form, or that nothing says is a medium.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from flywheel.records import Blob, Fragment, Outcome, Span, Step, ToolCall, Trajectory

LONG = 1 << 20  # bytes of a text that stays in its row
SHOWN = 4 << 10  # characters of a long text's head and tail
_LITERAL = 64 << 10  # of a JSON column that is too long: strings from here on are moved first


def _getter(columns: tuple[str, ...]) -> Callable[[Any], tuple[str | None, ...]]:
    """Reads these columns of a row at once."""
    get: Callable[[Any], Any] = attrgetter(*columns)
    return get if len(columns) > 1 else lambda row: (get(row),)


_TEXT: Mapping[type, tuple[str, ...]] = {
    Trajectory: ("error_message",),
    Step: ("content", "reasoning", "refusal", "error_message"),
    ToolCall: ("args_raw", "result_text"),
    Outcome: ("value_text", "value_raw", "explanation"),
    Span: ("status_message",),
}
_JSON: Mapping[type, tuple[str, ...]] = {
    Trajectory: ("tools", "task", "sampling", "metadata", "extra"),
    Step: ("parts", "reasoning_opaque", "raw", "extra"),
    ToolCall: ("args", "result_parts", "extra"),
    Outcome: ("correction", "metadata"),
    Span: ("resource", "attributes", "events", "links"),
}
_READ = {kind: (_getter(_TEXT[kind]), _getter(_JSON[kind])) for kind in _TEXT}
_SIGNS = (
    "base64",
    '"data"',
    '"content"',
    '"file_data"',
    '"b64_json"',
    '"image"',
    '"audio"',
    '"video"',
    '"bytes"',
    '"blob"',
)
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))
_DATA_URL = re.compile(r'(?<!\\)"(data:[^"\\,]{0,200};base64,)([A-Za-z0-9+/]+={0,2})"(?!\s*:)')
_FIELD = re.compile(
    r'(?<!\\)"(data|content|file_data|b64_json|base64|bytes|image|audio|video|blob)"(\s*:\s*)"([A-Za-z0-9+/]{16,}={0,2})"'
)
_KIND = re.compile(r'"(?:media_?type|mime_?type|format)"\s*:\s*"([\w.+/-]{1,100})"', re.IGNORECASE)
_AROUND = 300  # characters beside a field within which its media type stands
_MAGIC = (
    (b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"), (b"OggS", "audio/ogg"), (b"ID3", "audio/mpeg"), (b"\xff\xfb", "audio/mpeg"),
    (b"fLaC", "audio/flac"), (b"\x1aE\xdf\xa3", "video/webm"), (b"PK\x03\x04", "application/zip"),
)  # fmt: skip
_AUDIO = {name: f"audio/{name}" for name in ("wav", "flac", "opus", "pcm16", "aac", "ogg")} | {"mp3": "audio/mpeg"}
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?', re.DOTALL)
_REFERENCE = re.compile(r'\{"blob":"([0-9a-f]{64})","bytes":\d+,"mime":"[^"\\]*","as":"([^"\\]*)"\}')
_MARK = re.compile(r"\n\[blob ([0-9a-f]{64}) holds all \d+ bytes\]\n")


@dataclass(slots=True)
class _Shelf:
    """The blobs of one fragment, by hash."""

    blobs: dict[str, Blob] = field(default_factory=dict)

    def put(self, data: bytes, mime: str) -> str:
        """Keep the bytes (once) and count the reference."""
        sha256 = hashlib.sha256(data).hexdigest()
        held = self.blobs.get(sha256) or Blob(sha256=sha256, bytes=len(data), mime=mime, data=data)
        self.blobs[sha256] = replace(held, n_refs=(held.n_refs or 0) + 1)
        return sha256

    def reference(self, data: bytes, mime: str, spelt: str) -> str:
        """The JSON object that takes the place of a string. `spelt`: what stood before the base64, or `json`."""
        return f'{{"blob":"{self.put(data, mime)}","bytes":{len(data)},"mime":"{mime}","as":"{spelt}"}}'


def externalise(fragment: Fragment) -> Fragment:
    """The fragment with its media and long texts in `blobs`; the very same where there are none. Idempotent."""
    if all(_stay(rows) for _, rows in _tables(fragment)):
        return fragment
    shelf = _Shelf({blob.sha256: blob for blob in fragment.blobs})
    tables = {name: tuple(_moved(row, shelf) for row in rows) for name, rows in _tables(fragment)}
    if list(shelf.blobs.values()) == list(fragment.blobs):
        return fragment
    return _with(fragment, tables, tuple(shelf.blobs.values()))


def internalise(fragment: Fragment, blobs: Mapping[str, bytes] | None = None) -> Fragment:
    """The inverse: everything back in its place. `blobs` (sha256: bytes) are those that the fragment does not carry.

    A reference to a blob that is in neither stays a reference. Blobs that nothing refers to any more are left out.
    """
    held = {**(blobs or {}), **{blob.sha256: blob.data for blob in fragment.blobs if isinstance(blob.data, bytes)}}
    used: dict[str, int] = {}
    tables = {name: tuple(_restored(row, held, used) for row in rows) for name, rows in _tables(fragment)}
    if not used:
        return fragment
    left = []
    for blob in fragment.blobs:
        refs = (blob.n_refs or 0) - used.get(blob.sha256, 0)
        if blob.sha256 not in used:
            left.append(blob)
        elif refs > 0:
            left.append(replace(blob, n_refs=refs))
    return _with(fragment, tables, tuple(left))


def _tables(fragment: Fragment) -> Iterator[tuple[str, Sequence[Any]]]:
    yield "trajectory", (fragment.trajectory,)
    for name in ("steps", "tool_calls", "outcomes", "spans"):
        yield name, getattr(fragment, name)


def _with(fragment: Fragment, tables: Mapping[str, tuple[Any, ...]], blobs: tuple[Blob, ...]) -> Fragment:
    rows = {name: rows for name, rows in tables.items() if name != "trajectory"}
    return replace(fragment, trajectory=tables["trajectory"][0], blobs=blobs, **rows)


def _stay(rows: Sequence[Any]) -> bool:
    """Whether nothing of these rows (of one kind) can have to move, told quickly: most rows are like that."""
    if not rows:
        return True
    texts, jsons = _READ[type(rows[0])]
    held = [text for text in chain.from_iterable(map(jsons, rows)) if text is not None]
    longest = max(map(len, filter(None, chain.from_iterable(map(texts, rows)))), default=0)
    return max(longest, sum(map(len, held))) <= LONG // 4 and _SIGN.search("\n".join(held)) is None


def _moved(row: Any, shelf: _Shelf) -> Any:
    changes: dict[str, Any] = {}
    for column in _TEXT[type(row)]:
        text = getattr(row, column)
        if text is not None and _is_long(text):
            data = text.encode("utf-8", "surrogatepass")
            mark = f"\n[blob {shelf.put(data, 'text/plain')} holds all {len(data)} bytes]\n"
            changes[column] = text[:SHOWN] + mark + text[-SHOWN:]
            if column == "content" and row.content_state == "present":
                changes["content_state"] = "external"
    for column in _JSON[type(row)]:
        text = getattr(row, column)
        if text is None:
            continue
        moved = _without_media(text, shelf) if any(sign in text for sign in _SIGNS) else text
        if _is_long(moved):
            moved = _shortened(moved, shelf)
        if moved != text:
            changes[column] = moved
    return replace(row, **changes) if changes else row


def _is_long(text: str) -> bool:
    return len(text) > LONG or (len(text) > LONG // 4 and len(text.encode("utf-8", "surrogatepass")) > LONG)


def _without_media(text: str, shelf: _Shelf) -> str:
    """JSON text with a reference in place of every medium."""

    def from_url(match: re.Match[str]) -> str:
        data = _decoded(match.group(2))
        mime = match.group(1).removeprefix("data:").split(";")[0] or "text/plain"
        return match.group() if data is None else shelf.reference(data, mime, match.group(1))

    def from_field(match: re.Match[str]) -> str:
        data = _decoded(match.group(3))
        mime = None if data is None else _mime_of(data, match)
        if data is None or mime is None:
            return match.group()
        return f'"{match.group(1)}"{match.group(2)}{shelf.reference(data, mime, "")}'

    return _FIELD.sub(from_field, _DATA_URL.sub(from_url, text))


def _decoded(text: str) -> bytes | None:
    """The bytes of base64 that is in its canonical form, so that they give the text again."""
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return data if base64.b64encode(data).decode() == text else None


def _mime_of(data: bytes, match: re.Match[str]) -> str | None:
    """What the bytes begin with, or what the object around them says that they are."""
    found = next((mime for magic, mime in _MAGIC if data.startswith(magic)), None)
    if data[:4] == b"RIFF":
        found = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        found = "video/mp4"
    if found is not None:
        return found
    text = match.string
    before, after = text[max(0, match.start() - _AROUND) : match.start()], text[match.end() : match.end() + _AROUND]
    said = [*_KIND.findall(before.rpartition("{")[2])[-1:], *_KIND.findall(after.partition("}")[0])[:1]]
    if not said:
        return None
    return said[0] if "/" in said[0] else _AUDIO.get(said[0])


def _shortened(text: str, shelf: _Shelf) -> str:
    """A JSON column that is too long even without media: its longest strings move, and if that isn't enough, all."""

    def move(match: re.Match[str]) -> str:
        literal = match.group()
        return (
            literal
            if match.group(1) or len(literal) < _LITERAL
            else shelf.reference(_utf8(literal), "application/json", "json")
        )

    shortened = _STRING.sub(move, text)
    return shelf.reference(_utf8(shortened), "application/json", "json") if _is_long(shortened) else shortened


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _restored(row: Any, held: Mapping[str, bytes], used: dict[str, int]) -> Any:
    changes: dict[str, Any] = {}
    for column in _TEXT[type(row)]:
        text = getattr(row, column)
        mark = None if text is None else _MARK.search(text)
        data = None if mark is None else held.get(mark.group(1))
        if mark is None or data is None:
            continue
        whole = data.decode("utf-8", "surrogatepass")
        if whole.startswith(text[: mark.start()]) and whole.endswith(text[mark.end() :]):
            changes[column] = whole
            used[mark.group(1)] = used.get(mark.group(1), 0) + 1
            if column == "content" and row.content_state == "external":
                changes["content_state"] = "present"
    for column in _JSON[type(row)]:
        text = getattr(row, column)
        whole = text
        while whole is not None and '{"blob":"' in whole:
            filled = _REFERENCE.sub(lambda match: _filled(match, held, used), whole)
            if filled == whole:
                break
            whole = filled  # the column as a whole may have held references
        if whole != text:
            changes[column] = whole
    return replace(row, **changes) if changes else row


def _filled(match: re.Match[str], held: Mapping[str, bytes], used: dict[str, int]) -> str:
    data = held.get(match.group(1))
    if data is None:
        return match.group()
    used[match.group(1)] = used.get(match.group(1), 0) + 1
    if match.group(2) == "json":
        return data.decode("utf-8", "surrogatepass")
    return f'"{match.group(2)}{base64.b64encode(data).decode()}"'
