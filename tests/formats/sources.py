"""Bytes to what the readers make of them, as ingest does it but without a workspace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.read import Chunks
from flywheel.formats.reader import Source
from flywheel.formats.sniff import open_reading
from flywheel.records import Fragment, Reject

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

    @property
    def only(self) -> Fragment:
        (fragment,) = self.fragments
        return fragment


def chunked(data: bytes, size: int = 1 << 20) -> Chunks:
    return lambda: (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, format_name: str = "auto", size: int = 1 << 20) -> Outcome:
    """Read, assemble and complete a source."""
    opened = open_reading(chunked(data, size), SOURCE, format_name)
    if isinstance(opened, Reject):
        return Outcome("unknown", None, 1, 0, [], [opened])
    items = list(opened.items())
    fragments = [complete(f) for f in assemble(item for item in items if isinstance(item, Fragment))]
    rejects = [item for item in items if isinstance(item, Reject)]
    return Outcome(opened.reader.name, opened.match.version, opened.n_records, opened.n_repaired, fragments, rejects)


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def call(call_id: str | None, arguments: Any = "{}", name: str = "find_order") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def answers(call_id: str | None, content: Any = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "Where is my order A-1029?"}
