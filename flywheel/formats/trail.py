"""TRAIL: traces with annotated errors, rows of `{trace, labels}` that are both JSON text.

A trace is `{trace_id, spans}`, spans nested in `child_spans`, with OpenInference attributes: they become span rows, and
steps as all traces do. Labels are `{errors: [{category, location, evidence, description, impact}], scores: [...]}`:
each error is an outcome of the span that `location` names, each score one of the trajectory.

Not covered: what the attributes mean (`openinference_spans.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import Head, Item, Match, Record, Source, as_dict, as_list, as_text, fingerprint
from flywheel.formats.scores import scored
from flywheel.formats.spans import hex_id, kind_name, make_span, nanos, status_name, trace_fragments
from flywheel.records import Attachment, Fragment, Outcome, Span, content_id

_READ = {
    "trace_id", "span_id", "parent_span_id", "span_name", "span_kind", "timestamp", "duration", "status_code",
    "status_message", "scope_name", "scope_version", "resource_attributes", "span_attributes", "events", "links",
    "child_spans",
}  # fmt: skip
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


class Trail:
    """The reader."""

    name = "trail"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        found = sum(1 for value in head.values if _parts(value) is not None)
        return Match(confidence=round(0.95 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            parts = _parts(record.value)
            if parts is None:
                yield record.reject("not_trail", "the row has no `trace` with spans beside its `labels`")
            else:
                yield from _items(*parts, record, source, first)


def _parts(value: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """(trace, labels) of a row that has both."""
    row = as_dict(value)
    trace, labels = (_opened(row.get(name)) for name in ("trace", "labels"))
    return (trace, labels) if isinstance(trace.get("spans"), list) and "labels" in row else None


def _opened(value: Any) -> Mapping[str, Any]:
    decoded = try_loads(value) if isinstance(value, str) else None
    return as_dict(value if decoded is None else decoded.value)


def _items(
    trace: Mapping[str, Any], labels: Mapping[str, Any], record: Record, source: Source, first: str
) -> Iterator[Fragment | Attachment]:
    """The trace's spans, then its labels: they are about single spans, so they make no success or failure of it."""
    trace_id = hex_id(trace.get("trace_id"))
    rows = list(_rows(as_list(trace["spans"]), trace_id, source))
    more = {key: value for key, value in trace.items() if key not in ("spans", "trace_id")}
    rest = {key: value for key, value in labels.items() if key not in ("errors", "scores", "trace_id")}
    extra = {**({"trace": more} if more else {}), **({"labels": rest} if rest else {})}
    for fragment in trace_fragments("trail", rows, record, source, lambda: first):
        yield replace(fragment, trajectory=replace(fragment.trajectory, extra=dumps(extra) if extra else None))
    outcomes = (*_errors(labels), *_scores(labels, trace_id))
    if outcomes:
        yield Attachment(record_ix=record.ix, outcomes=outcomes)


def _rows(spans: Iterable[Any], trace_id: str | None, source: Source) -> Iterator[Span]:
    """The spans, parents before their children."""
    waiting = [as_dict(span) for span in reversed(list(spans))]
    while waiting:
        span = waiting.pop()
        waiting += [as_dict(child) for child in reversed(as_list(span.get("child_spans")))]
        start, length = nanos(span.get("timestamp")), _nanoseconds(span.get("duration"))
        yield make_span(
            attributes=as_dict(span.get("span_attributes")),
            rest={key: value for key, value in span.items() if key not in _READ} | _odd(span),
            resource=span.get("resource_attributes"),
            events=span.get("events"),
            links=span.get("links"),
            trace_id=hex_id(span.get("trace_id")) or trace_id,
            span_id=hex_id(span.get("span_id")),
            parent_span_id=hex_id(span.get("parent_span_id")),
            name=as_text(span.get("span_name")),
            kind=kind_name(span.get("span_kind")),
            start_ns=start,
            end_ns=None if start is None or length is None else start + length,
            status=status_name(span.get("status_code")),
            status_message=as_text(span.get("status_message")),
            scope=as_text(span.get("scope_name")),
            scope_version=as_text(span.get("scope_version")),
            source_id=source.source_id,
        )


def _odd(span: Mapping[str, Any]) -> dict[str, Any]:
    """What the columns hold in another spelling, as it was typed, and attributes that are no object."""
    odd = {key: span[key] for key in ("timestamp", "duration", "span_kind", "status_code") if key in span}
    attributes = span.get("span_attributes")
    return odd | ({"span_attributes": attributes} if attributes and not isinstance(attributes, dict) else {})


def _nanoseconds(value: Any) -> int | None:
    """An ISO 8601 duration."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((days * 86400 + hours * 3600 + minutes * 60 + seconds) * 10**9)


def _errors(labels: Mapping[str, Any]) -> Iterator[Outcome]:
    for ix, value in enumerate(as_list(labels.get("errors"))):
        error = as_dict(value)
        rest = {key: item for key, item in error.items() if key not in ("category", "location", "description")}
        found = scored(
            None,
            "trail/error",
            error.get("category", value),
            polarity=-1,
            target_kind="span",
            native_target_id=hex_id(error.get("location")),
            explanation=as_text(error.get("description")),
            source_kind="human_expert",
            source_id="trail",
            metadata=rest,
        )
        yield replace(found, outcome_id=content_id("outcome", found.outcome_id, ix))


def _scores(labels: Mapping[str, Any], trace_id: str | None) -> Iterator[Outcome]:
    """`{reliability_score: 4, reliability_reasoning: "...", overall: 3.5}`: one outcome a score, with its reasoning."""
    for ix, value in enumerate(as_list(labels.get("scores"))):
        for name, score in as_dict(value).items():
            if not name.endswith("_reasoning"):
                why = as_text(as_dict(value).get(f"{name.removesuffix('_score')}_reasoning"))
                yield scored(
                    None,
                    f"trail/{name}",
                    score,
                    polarity=None,
                    native_target_id=trace_id,
                    explanation=why,
                    source_kind="human_expert",
                    source_id="trail",
                    source_ref=str(ix) if ix else None,
                )
