"""No silent change: every text and number of every sample is found again in the rows that it became.

Python's own `json` says what stood in the file. A text must be in a row as it is, or inside a longer text (parts of a
message are joined); a number as it was typed, or as a number of equal value; a time in either, or as the datetime that
it names. What a reader refuses is not compared: it stays in the landing object and is named in quarantine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sources import SOURCE, Outcome, chunked, read_chunks

from flywheel.formats.archive import member_records, members_of
from flywheel.formats.containers import container_of, records_of, spooled
from flywheel.formats.parse import NumberText
from flywheel.formats.read import Chunks
from flywheel.formats.reader import Record
from flywheel.formats.spans import KINDS, hex_id
from flywheel.formats.streams import sse_events
from flywheel.formats.times import read_time
from flywheel.records import Fragment

MOST_RECORDS = 200  # of a large file; the rest is of the same kind
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SUMS = {"total_tokens", "totalTokens", "total_token_count", "totalTokenCount"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
FOLDERS = (
    "anthropic_messages", "atif", "claude_code", "hf_parquet", "inspect", "langfuse", "langsmith", "malformed",
    "mini_swe_agent", "mlflow", "openai_chat", "openai_responses", "openhands", "openinference", "other_agents", "otlp",
    "sharegpt", "swe_agent", "tau2_bench", "tau_bench", "verifiers", "who_and_when",
)  # fmt: skip


class Rows:
    """Every value that stands in the rows of a source."""

    def __init__(self, outcome: Outcome) -> None:
        self.texts: set[str] = set()
        self.numbers: set[Decimal] = set()
        self.times: set[datetime] = set()
        for fragment in outcome.fragments:
            self._fragment(fragment)
        for attachment in outcome.attachments:
            for row in attachment.outcomes:
                self._row(row)
        self.all = "\0".join(sorted(self.texts))
        self.squeezed = re.sub(r"\s+", "", self.all)

    def _fragment(self, fragment: Fragment) -> None:
        rows = (*fragment.steps, *fragment.tool_calls, *fragment.outcomes, *fragment.blobs, *fragment.spans)
        for row in (fragment.trajectory, *rows):
            self._row(row)

    def _row(self, row: Any) -> None:
        for field in fields(row):
            self.add(getattr(row, field.name), depth=0)

    def add(self, value: Any, depth: int) -> None:
        """A value of a column, or of JSON text in it."""
        if isinstance(value, (list, tuple)):
            for item in value:
                self.add(item, depth)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.add(key, depth)
                self.add(item, depth)
        elif isinstance(value, NumberText):
            self._text(value.text, depth)
        elif isinstance(value, datetime):
            self.times.add(value)
        elif isinstance(value, bytes):
            self.texts.add(value.decode("utf-8", "replace"))
        elif isinstance(value, str):
            self._text(value, depth)
        elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            self.numbers.add(Decimal(str(value)))

    def _text(self, value: str, depth: int) -> None:
        if value in self.texts:
            return
        self.texts.add(value)
        if NUMBER.fullmatch(value) and len(value) < 400:
            self.numbers.add(Decimal(value))
        if depth < 4 and value[:1] in "[{" and (decoded := loads(value)) is not None:
            self.add(decoded, depth + 1)

    def have(self, leaf: Any) -> bool:
        """Whether a value of the source stands in them."""
        if isinstance(leaf, NumberText):
            return self._number(leaf.text)
        if isinstance(leaf, str):
            return self._has_text(leaf)
        return self._number(str(leaf))

    def _has_text(self, leaf: str) -> bool:
        if leaf in self.texts or leaf.strip() in self.all or self._time(leaf):
            return True
        if NUMBER.fullmatch(leaf) and self._number(leaf):
            return True
        if leaf.endswith("=") and hex_id(leaf) in self.texts:  # an id that was base64 is hex in the rows
            return True
        if leaf.startswith(("event:", "data:")) and (events := sse_events(leaf)) is not None:
            return all(self.have(text) for event in events for text in deltas(event))
        leaf = leaf.removeprefix("\0json:")  # how Hermes marks a column that holds JSON
        decoded = loads(leaf) if leaf[:1] in "[{" else None
        if decoded is not None:  # JSON inside a text was opened
            return all(self.have(item) for item in leaves(decoded))
        return re.sub(r"\s+", "", leaf) in self.squeezed

    def _number(self, text: str) -> bool:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return text in self.texts
        return number in self.numbers or text in self.texts or self._time(text)

    def _time(self, text: str) -> bool:
        found = read_time(text).at
        return found is not None and found in self.times


def loads(text: str) -> Any:
    """A JSON value with numbers as they were typed; None where it is none."""
    try:
        value = json.loads(text, parse_float=NumberText, parse_int=NumberText, parse_constant=NumberText, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def leaves(value: Any) -> Iterator[Any]:
    """The texts and numbers of a decoded value; sums of token counts are not: rows hold what they are sums of."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "kind" and isinstance(item, int) and item in range(len(KINDS)):
                yield f"SPAN_KIND_{KINDS[item]}"  # a number of OTLP's enumeration is stored as its name
            elif key not in SUMS:
                yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif value is not None and not isinstance(value, bool) and value != "":
        yield value


def deltas(event: Any) -> Iterator[Any]:
    """The values of an event of a stream that are its answer: what the envelopes of events say is no part of it."""
    body = event if isinstance(event, dict) else {}
    found = [
        body.get("delta"),
        *(choice.get("delta") for choice in body.get("choices") or () if isinstance(choice, dict)),
    ]
    for delta in found:
        held = {key: item for key, item in delta.items() if key != "type"} if isinstance(delta, dict) else delta
        yield from (leaf for leaf in leaves(held) if isinstance(leaf, str))


def records(chunks: Chunks) -> Iterator[Record]:
    """The records as containers give them, whoever reads them then."""
    container = container_of(chunks)
    if container == "archive":
        with spooled(chunks) as file:
            yield from (item for item in member_records(file, members_of(file)[0]) if isinstance(item, Record))
        return
    yield from (item for item in records_of(chunks, container, "record") if isinstance(item, Record))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_value_of_the_samples_is_in_the_rows(samples: Path, folder: str) -> None:
    missing: dict[str, list[str]] = {}
    for path in sorted(file for file in (samples / folder).rglob("*") if file.is_file()):
        outcome = read_chunks(chunked(path.read_bytes()), source=SOURCE)
        if not outcome.fragments and not outcome.attachments:
            continue  # sample_table.py says why
        rows = Rows(outcome)
        refused = {(reject.byte_offset, reject.byte_len) for reject in outcome.rejects}
        lost = [
            repr(leaf)[:120]
            for record in islice(records(chunked(path.read_bytes())), MOST_RECORDS)
            if record.raw is not None or (record.offset, record.length) not in refused
            for leaf in leaves(record.value)
            if not rows.have(leaf)
        ]
        if lost:
            missing[path.relative_to(samples).as_posix()] = list(dict.fromkeys(lost))[:8]
    assert not missing, "\n".join(f"{path}: {', '.join(lost)}" for path, lost in missing.items())
