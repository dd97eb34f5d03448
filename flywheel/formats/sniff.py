"""Which reader reads a source: by content, with a confidence, or by name. The list of readers is here.

Not covered: containers that are no JSON text (Parquet, zip, zstd): they are recognised and refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flywheel.errors import FormatError
from flywheel.formats.atif import Atif
from flywheel.formats.openai_chat import OpenAIChat
from flywheel.formats.read import Chunks, read_head, read_records
from flywheel.formats.reader import Match, Reader, Record, Source
from flywheel.formats.tau_bench import TauBench
from flywheel.records import Fragment, Reject

READERS: tuple[Reader, ...] = (Atif(), OpenAIChat(), TauBench())
AUTO = "auto"
_MAGIC = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd stream"),
    (b"BZh", "a bzip2 stream"),
    (b"\xfd7zXZ", "an xz stream"),
)


@dataclass(slots=True)
class Reading:
    """A source with the reader chosen for it. Iterate `items` to the end; only then are the counts complete."""

    chunks: Chunks
    source: Source
    reader: Reader
    match: Match
    n_records: int = 0
    n_repaired: int = 0

    def items(self) -> Iterator[Fragment | Reject]:
        """What the reader yields, and the records that could not even be decoded, each record at least once."""
        undecoded: list[Reject] = []
        for item in self.reader.read(self._records(undecoded), self.source):
            yield from undecoded
            undecoded.clear()
            yield item
        yield from undecoded

    def _records(self, undecoded: list[Reject]) -> Iterator[Record]:
        for item in read_records(self.chunks, self.match.unit):
            self.n_records += 1
            if isinstance(item, Reject):
                undecoded.append(item)
            else:
                self.n_repaired += bool(item.repairs)
                yield item


def open_reading(chunks: Chunks, source: Source, format_name: str = AUTO) -> Reading | Reject:
    """The source with the best reader for it, or with the named one; a Reject of the whole where nobody reads it.

    Errors: FormatError for a name that is no format.
    """
    named = None if format_name == AUTO else reader_named(format_name)
    head = read_head(chunks)
    if named is not None:
        return Reading(chunks, source, named, named.sniff(head) or Match(confidence=0.0))
    found = [
        (match, reader) for reader in READERS if (match := reader.sniff(head)) is not None and match.confidence > 0
    ]
    if found:
        match, reader = max(found, key=lambda pair: (pair[0].confidence, pair[1].name))
        return Reading(chunks, source, reader, match)
    code, message = _why_not(chunks, decodable=bool(head.values))
    size = sum(map(len, chunks()))
    return Reject(record_ix=0, byte_offset=0, byte_len=size, code=code, message=message)


def reader_named(name: str) -> Reader:
    """The reader of that format. Errors: FormatError with the names there are."""
    for reader in READERS:
        if reader.name == name:
            return reader
    known = ", ".join(sorted(reader.name for reader in READERS))
    raise FormatError(f"no format {name!r}; use auto, or one of: {known}")


def _why_not(chunks: Chunks, decodable: bool) -> tuple[str, str]:
    """A code and a sentence for a source that no reader accepts."""
    if decodable:
        known = ", ".join(sorted(reader.name for reader in READERS))
        return "unknown_format", f"JSON, but of no format that is read here ({known}); --format forces one"
    first = next((chunk for chunk in chunks() if chunk), b"")
    for magic, what in _MAGIC:
        if first.startswith(magic):
            return "unread_container", f"{what}: this container is not read; export JSON or JSON lines"
    reject = next((item for item in read_records(chunks, "record") if isinstance(item, Reject)), None)
    if reject is None:
        return "empty", "there is nothing but blanks in it"
    return reject.code, reject.message
