"""What all tracing formats share: one row a span, lossless, and the partial fragments that carry them.

A `Span` keeps everything a span had: attributes, resource, events and links as JSON text, what has no column under the
attribute `REST`. A log record becomes a row too, of kind LOG: it has no id of its own, its parent is the span it
belongs to, its text and attributes are its attributes (`BODY`). So the steps of a trajectory can be made from span rows
alone (`traces.py`), whichever record, file or batch they came in.

Ids are hex whatever they were (base64, `0x...`, upper case). Nanoseconds stay nanoseconds, even senseless ones.

Not covered: what attributes mean (`genai.py`, `openinference_spans.py`, `mlflow_spans.py`, `vendor_spans.py`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import Record, Source, as_int, as_int32, as_text, trajectory_id
from flywheel.formats.times import read_time
from flywheel.records import Fragment, Span, Trajectory

LOG = "LOG"
REST, BODY = "flywheel.rest", "flywheel.log.body"
KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
STATUSES = ("UNSET", "OK", "ERROR")
_HEX = re.compile(r"[0-9a-fA-F]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"\.(\d{7,9})")  # digits that a datetime can't hold


def hex_id(value: Any) -> str | None:
    """A trace or span id as lower-case hex; what can't be one (`tr-...`, a uuid) as it stands; zeros are no id."""
    text = as_text(value)
    if text is None:
        return None
    bare = text[2:] if text[:2] in ("0x", "0X") else text
    if len(bare) in (12, 24) and bare.endswith("="):
        try:
            bare = base64.b64decode(bare, validate=True).hex()
        except binascii.Error:
            return text
    if not _HEX.fullmatch(bare):
        return text
    return bare.lower() if bare.strip("0") else None


def nanos(value: Any) -> int | None:
    """Nanoseconds since 1970 from a number, its text, or ISO 8601. A number is not looked at: it may be senseless."""
    if isinstance(value, NumberText):
        value = value.text
    if isinstance(value, str):
        text = value.strip()
        if not text.lstrip("-").isdigit():
            return _iso_nanos(text)
        value = int(text) if len(text) < 20 else None
    if isinstance(value, float) and abs(value) < 2**62:
        value = int(value)
    return as_int(value)


def _iso_nanos(text: str) -> int | None:
    at = read_time(text).at
    if at is None:
        return None
    delta = at - _EPOCH
    finer = _FRACTION.search(text)
    below = int(finer.group(1).ljust(9, "0")[6:9]) if finer is not None else 0
    return (delta.days * 86400 + delta.seconds) * 10**9 + delta.microseconds * 1000 + below


def kind_name(value: Any) -> str | None:
    """The specification's name (`SPAN_KIND_CLIENT`) of a number or of any spelling; others (`LLM`) as they stand."""
    return _named(value, "SPAN_KIND_", KINDS, "SpanKind.")


def status_name(value: Any) -> str | None:
    """The specification's name (`STATUS_CODE_ERROR`) of a number or of any spelling."""
    return _named(value, "STATUS_CODE_", STATUSES, "StatusCode.")


def _named(value: Any, prefix: str, names: tuple[str, ...], other_prefix: str) -> str | None:
    number = as_int(value)
    if number is not None:
        return prefix + names[number] if 0 <= number < len(names) else str(number)
    text = as_text(value)
    if text is None:
        return None
    bare = text.removeprefix(prefix).removeprefix(other_prefix).upper()
    return prefix + bare if bare in names else text


def make_span(
    *,
    attributes: Mapping[str, Any],
    rest: Mapping[str, Any],
    resource: Any = None,
    events: Any = None,
    links: Any = None,
    dropped: Any = None,
    **columns: Any,
) -> Span:
    """A row from decoded values; ids, times and names are normalised already. `rest` is what has no column."""
    left = {key: value for key, value in rest.items() if value not in (None, "", [], {})}
    number = as_int32(dropped)
    if number is None and dropped is not None:
        left["droppedAttributesCount"] = dropped
    kept = {**attributes, REST: left} if left else attributes
    return Span(
        attributes=dumps(kept) if kept else None,
        resource=dumps(resource) if resource else None,
        events=dumps(events) if events else None,
        links=dumps(links) if links else None,
        dropped_attributes=number or None,
        **columns,
    )


def trace_fragments(
    format_name: str, spans: Iterable[Span], record: Record, source: Source, first: Callable[[], str]
) -> Iterator[Fragment]:
    """The spans of one record as partial fragments, one a trace, in order of appearance.

    `first` gives the fingerprint of the source's first record: short trace ids are unique within a source only. Spans
    without a trace id are one trace by record.
    """
    traces: dict[str | None, list[Span]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    for trace_id, rows in traces.items():
        key = trajectory_id(format_name, trace_id or f"record {record.ix}", first())
        trajectory = Trajectory(
            trajectory_id=key,
            content_sha256="",
            native_id=trace_id,
            trace_id=trace_id,
            source_id=source.source_id,
            source_record_ix=record.ix,
            format=format_name,
            n_steps=0,
            content_complete=True,
            quality_flags=record.repairs or None,
        )
        yield Fragment(key=key, record_ix=record.ix, trajectory=trajectory, partial=True, spans=tuple(rows))
