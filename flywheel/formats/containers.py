"""What a source is packed in, by its first bytes, and its records: JSON text, Parquet, CSV, protobuf, cassettes, zip.

A container other than JSON text needs to be looked at from several places, so it is copied to a temporary file without
a name (gone with the process). Its records carry their own bytes (`raw`), since no byte range of the source gives them.

Not covered: decompression of gzip and zstd streams (`store/landing.py`), which container a format is found in.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from flywheel.formats.read import Chunks, Quick, read_head, read_records
from flywheel.formats.reader import Container, Head, Record, Unit
from flywheel.records import Reject

HEAD_VALUES = 8
Open = Callable[[BinaryIO], Iterator[Record | Reject]]


def container_of(chunks: Chunks) -> Container:
    """What the source is packed in, told by its first bytes."""
    first = next((chunk for chunk in chunks() if chunk), b"")
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "archive"
    from flywheel.formats import cassettes, csv_rows, event_stream, otlp_proto

    if cassettes.looks_like(first):
        return "yaml"
    if event_stream.looks_like(first):
        return "events"
    if otlp_proto.looks_like(first):
        return "protobuf"
    return "csv" if csv_rows.looks_like(first) else "json"


def head_of(chunks: Chunks, container: Container, uri: str) -> Head:
    """What readers sniff at."""
    if container == "json":
        found = read_head(chunks)
        return Head(values=found.values, in_array=found.in_array, uri=uri)
    values = []
    for item in records_of(chunks, container, "record"):
        if isinstance(item, Record):
            values.append(item.value)
        if len(values) == HEAD_VALUES:
            break
    return Head(values=tuple(values), in_array=False, container=container, uri=uri)


def records_of(
    chunks: Chunks, container: Container, unit: Unit, quick: Quick | None = None
) -> Iterator[Record | Reject]:
    """The records of a source in order. Never raises on data."""
    if container == "json":
        yield from read_records(chunks, unit, quick)
        return
    from flywheel.formats import cassettes, csv_rows, event_stream, otlp_proto, parquet_rows

    readers: dict[Container, Open] = {
        "parquet": parquet_rows.records,
        "csv": csv_rows.records,
        "protobuf": otlp_proto.records,
        "yaml": cassettes.records,
        "events": event_stream.records,
    }
    with spooled(chunks) as file:
        yield from readers[container](file)


def spooled(chunks: Chunks) -> BinaryIO:
    """The source as a seekable file that has no name and vanishes when it's closed."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    for chunk in chunks():
        file.write(chunk)
    file.seek(0)
    return file


def is_safe_member(info: zipfile.ZipInfo) -> bool:
    """Whether a member of an archive is a file at a path below its root."""
    parts = info.filename.replace("\\", "/").split("/")
    return not info.is_dir() and ".." not in parts and not info.filename.startswith(("/", "\\"))
