"""A source without some of its records, byte for byte as it was elsewhere: what erasure leaves of a landing object.

Records that gave a trajectory (or part of one) of the given ids are cut out, and so are those that no reader could read
but that name one of the `words`. Of JSON lines the whole line goes, of an array the element and one comma.

Not covered: sources whose records have no place of their own (Parquet, CSV, archives, protobuf, a document that is one
conversation): `None` then, and the caller removes the whole object.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from flywheel.formats.read import Chunks, encoding_of, read_records
from flywheel.formats.reader import Record, Source
from flywheel.formats.sniff import AUTO, Reading, open_readings
from flywheel.records import Fragment, Reject

Range = tuple[int, int]


@dataclass(slots=True)
class Cut:
    """What is to go: the byte ranges of records, and which of them were refused records."""

    ranges: list[Range] = field(default_factory=list)
    refused: list[Range] = field(default_factory=list)
    whole: bool = False  # the records have no place of their own


def find_records(
    chunks: Chunks, source: Source, trajectory_ids: Collection[str], words: Collection[bytes], format_name: str = AUTO
) -> Cut:
    """The records of a source that belong to the trajectories, or were refused and name one of the words."""
    cut, refused = Cut(), []
    for opened in open_readings(chunks, source, format_name):
        if isinstance(opened, Reject):
            refused.append(opened)
            continue
        places = _places(opened)
        for item in opened.items():
            if isinstance(item, Reject):
                refused.append(item)
            elif isinstance(item, Fragment) and item.trajectory.trajectory_id in trajectory_ids:
                place = places.get(item.record_ix)
                cut.whole |= place is None
                cut.ranges += [place] if place else []
    data = b"".join(chunks()) if refused else b""
    for reject in refused:
        place = reject.byte_offset, reject.byte_len
        there = data[place[0] : sum(place)]
        said = there if reject.raw is None else reject.raw
        if any(word in said for word in words):
            cut.refused.append(place)
            cut.whole |= said != there  # a row, or a record in an archive: its place holds other bytes than its own
    cut.ranges += cut.refused
    return cut


def _places(reading: Reading) -> dict[int, Range]:
    """Where each record stands, as far as the container gives places to cut at."""
    if reading.container != "json" or reading.match.unit != "record" or reading.source.path is not None:
        return {}
    records = read_records(reading.chunks, "record")
    return {item.ix: (item.offset, item.length) for item in records if isinstance(item, Record)}


def without(chunks: Chunks, cut: Cut) -> bytes | None:
    """The source's bytes without those ranges; None where that can't be done record by record, or nothing is left."""
    data = b"".join(chunks())
    if cut.whole or encoding_of(data) != "utf-8":
        return None
    in_array = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
    kept, at = [], 0
    for start, size in sorted(set(cut.ranges)):
        if start < at:
            continue
        end = start + size
        kept.append(data[at:start])
        at = _over_comma(data, end, kept) if in_array else _over_line_end(data, end)
    kept.append(data[at:])
    left = b"".join(kept)
    return left if left.strip(b" \t\r\n[],") else None


def _over_line_end(data: bytes, end: int) -> int:
    while data[end : end + 1] in (b"\r", b" "):
        end += 1
    return end + (data[end : end + 1] == b"\n")


def _over_comma(data: bytes, end: int, kept: list[bytes]) -> int:
    """Past the comma after the element, or without the one before it, if it was the last."""
    after = end
    while data[after : after + 1] in (b" ", b"\t", b"\r", b"\n"):
        after += 1
    if data[after : after + 1] == b",":
        return after + 1
    for ix in range(len(kept) - 1, -1, -1):
        body = kept[ix].rstrip()
        if body.endswith(b","):
            kept[ix] = body[:-1]
            break
        if body:
            break
        kept[ix] = body
    return end
