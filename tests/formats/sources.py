"""Bytes to what the readers make of them, as ingest does it but without a workspace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.read import Chunks
from flywheel.formats.reader import Source
from flywheel.formats.sniff import Reading, open_readings
from flywheel.records import Attachment, Fragment, Reject

SOURCE = Source(source_id="0" * 64, uri="test")


@dataclass(frozen=True)
class Outcome:
    """What came out of one source."""

    format: str
    version: str | None
    n_records: int
    n_repaired: int
    fragments: list[Fragment]
    rejects: list[Reject]
    attachments: list[Attachment]

    @property
    def only(self) -> Fragment:
        (fragment,) = self.fragments
        return fragment


def chunked(data: bytes, size: int = 1 << 20) -> Chunks:
    return lambda: (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, format_name: str = "auto", size: int = 1 << 20) -> Outcome:
    """Read, assemble and complete a source."""
    return read_chunks(chunked(data, size), format_name)


def read_chunks(chunks: Chunks, format_name: str = "auto", source: Source = SOURCE) -> Outcome:
    """The same of any stream of bytes."""
    readings: list[Reading] = []
    items: list[Fragment | Attachment | Reject] = []
    unread = 0
    for opened in open_readings(chunks, source, format_name):
        if isinstance(opened, Reject):
            unread += 1
            items.append(opened)
        else:
            readings.append(opened)
            items += opened.items()
    return Outcome(
        format="+".join(sorted({reading.reader.name for reading in readings})) or "unknown",
        version=readings[0].match.version if readings else None,
        n_records=unread + sum(reading.n_records for reading in readings),
        n_repaired=sum(reading.n_repaired for reading in readings),
        fragments=[complete(f) for f in assemble(item for item in items if isinstance(item, Fragment))],
        rejects=[item for item in items if isinstance(item, Reject)],
        attachments=[item for item in items if isinstance(item, Attachment)],
    )


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def call(call_id: str | None, arguments: Any = "{}", name: str = "find_order") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answers(call_id: str | None, content: Any = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "Where is my order A-1029?"}
