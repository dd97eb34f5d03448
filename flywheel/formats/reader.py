"""The reader seam: one format is one file with a class that satisfies `Reader`, and one line in `sniff.READERS`.

A reader is pure. It gets the records of one source in order (already decoded; what could not be decoded never reaches
it) and yields, for every record, at least one `Fragment` or a `Reject`. It never raises on data: any value may be of
any type, so it looks through `as_dict`, `as_list`, `as_text`. What it does not know it keeps in `extra`.
What it need not do: redaction, hashes of content, counts and sums (`assemble.py` and ingest do that for all readers).

Rows of Parquet and CSV files and protobuf messages come as the same kind of records (`containers.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from flywheel.formats.parse import NumberText
from flywheel.records import Attachment, Fragment, Reject, content_id

Unit = Literal["record", "document"]
"""What one record is: a line or an array element, or the whole document (a top-level array is not opened)."""
Container = Literal["json", "parquet", "csv", "protobuf", "yaml", "events", "archive"]
"""What held the records. Of an archive that is read as one source every member is a record, with its `path`."""

Item = Fragment | Attachment | Reject

GLOBAL_ID = 16  # an id this long was made to be unique anywhere (a uuid, `chatcmpl-...`); shorter ones count per file


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The landing object that is being read.

    `uri` is its key below the landing root, folders as they were landed. It is a hint: it may go into an id only where
    a format spreads one trajectory over several files that don't name it (then: names of folders, never of the root).
    """

    source_id: str  # sha256 of the bytes
    uri: str
    path: str | None = None  # of the member, inside an archive
    first_record: str | None = None  # fingerprint of the source's first record, where a part that lacks it is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded record and the byte range it stood at (after decompression)."""

    ix: int
    offset: int
    length: int
    value: Any
    repairs: tuple[str, ...] = ()
    path: str | None = None  # the member that it is, in an archive read as one source
    raw: bytes | None = None  # its bytes, where they're at hand

    def reject(self, code: str, message: str) -> Reject:
        """The refusal of this record. The message must not quote content."""
        return Reject(
            record_ix=self.ix,
            byte_offset=self.offset,
            byte_len=self.length,
            code=code,
            message=message,
            raw=self.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a reader may sniff at: the first decodable records, and whether they were elements of one array.

    Of an archive: the names of all its members in `paths`, and no values.
    """

    values: tuple[Any, ...]
    in_array: bool
    container: Container = "json"
    paths: tuple[str, ...] = ()
    uri: str = ""  # a hint only: a file without a word about its format may be recognised by its neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How sure a reader is (0-1) that the source is of its format, and how it wants it cut into records.

    .95: the format names itself (a version, a schema). .9: keys that no other format has together. .8: the shape of
    plain chat messages. .5: a guess that any better reader may overrule.
    """

    confidence: float
    version: str | None = None
    unit: Unit = "record"


class Reader(Protocol):
    """One format."""

    name: str
    version: str
    """Of the reader, not of the format: raise it when the same bytes give other rows."""

    def sniff(self, head: Head) -> Match | None:
        """A match by content alone, or None."""
        ...

    # Optional, `independent = True`: what a record gives depends on no other one but the first, whose fingerprint is
    # `source.first_record` if it isn't there. Lines of a large file may then be shared out among processes.
    # Optional, `quick(data)`: decodes ordinary records in the format's own way, None for all others.

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        """Fragments, loose outcomes and refusals in the order of the records, holding one record at a time if it can.

        A record that holds nothing to keep (a marker, a header) gives nothing: `Reading` counts it as read.
        """
        ...


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it's an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it's an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """A non-empty string, or the text of an int (ids are often numbers); anything else is None."""
    if value.__class__ is str:  # by far the most
        return value or None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value) or None


def first_text(value: Mapping[str, Any], *keys: str) -> str | None:
    """The first of the keys that holds a text or an int."""
    for key in keys:
        text = as_text(value.get(key))
        if text is not None:
            return text
    return None


def as_int(value: Any) -> int | None:
    """A count that fits 64 bits; floats without a fraction count, booleans do not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return value


def as_int32(value: Any) -> int | None:
    """An int that fits 32 bits: positions, attempts, token ids."""
    number = as_int(value)
    return number if number is not None and -(2**31) <= number < 2**31 else None


def as_float(value: Any) -> float | None:
    """A finite number; what was typed with more digits is rounded here, and only here."""
    if isinstance(value, NumberText):
        value = float(value.text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e308 else None


def fingerprint(value: Any) -> str:
    """sha256 of a decoded value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda number: {"number": number.text})
    return hashlib.sha256(text.encode()).hexdigest()


def trajectory_id(format_name: str, native_id: str, first_record: str) -> str:
    """The id of a trajectory from its native id. `first_record` is the fingerprint of the source's first record.

    A long id is unique by itself. A short one (`0`, `r1`) is unique within its run only, and a run is recognised by
    its first record, which stays the same when the file grows, moves or is renamed.
    """
    scope = "" if len(native_id) >= GLOBAL_ID else first_record
    return content_id("trajectory", format_name, scope, native_id)
