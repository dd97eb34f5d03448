"""Arize Phoenix: spans and annotations as its REST API, its client and its data frames give them.

    {name, context, span_kind, parent_id, status_code, attributes: {flat}}     GET /v1/projects/{p}/spans, JSON lines
    rows with context.span_id, context.trace_id, attributes.*                  get_spans_dataframe as Parquet or CSV
    {span_id | trace_id | session_id, annotator_kind, result}                  annotations, flat in data frames
    rows with context.span_id, label, score, explanation                       evaluations as data frames

Spans leave as partial fragments, one a trace (`traces.py` makes the steps). Attributes may be flat, nested, or JSON
text; cells that a data frame left empty (NULL, NaN, '' in CSV) are no attributes. Annotations are attachments to the
span, trace or session that they name.

Not covered: OTLP with OpenInference attributes (`otlp.py` reads it), Phoenix datasets and experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import (
    Head,
    Item,
    Match,
    Record,
    Source,
    as_dict,
    as_list,
    as_text,
    fingerprint,
    first_text,
)
from flywheel.formats.span_outcomes import scored, source_kind
from flywheel.formats.span_view import loosely
from flywheel.formats.spans import hex_id, kind_name, make_span, nanos, status_name, trace_fragments
from flywheel.formats.times import read_time
from flywheel.records import Attachment, Outcome, Span, content_id

_SPAN = {
    "name", "context", "span_kind", "parent_id", "start_time", "end_time", "status_code", "status_message", "events",
    "attributes", "context.span_id", "context.trace_id", "links",
}  # fmt: skip
_TARGETS = (
    ("span", ("span_id", "context.span_id")),
    ("trajectory", ("trace_id", "context.trace_id")),
    ("session", ("session_id",)),
)
_ANNOTATION = {
    "span_id", "trace_id", "session_id", "context.span_id", "context.trace_id", "name", "annotation_name",
    "annotator_kind", "result", "result.label", "result.score", "result.explanation", "label", "score", "explanation",
    "created_at",
}  # fmt: skip


class OpenInference:
    """The reader."""

    name = "openinference"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.container not in ("json", "parquet", "csv") or not head.values:
            return None
        sure = [max((_confidence(item) for item in _items(value)), default=0.0) for value in head.values]
        return Match(confidence=round(sum(sure) / len(sure), 3)) if any(sure) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: str | None = None
        for record in records:
            first = fingerprint(record.value) if first is None else first
            scope = first
            items = list(_items(record.value))
            spans = [_span(item, source) for item in items if _is_span(item)]
            outcomes = tuple(_annotation(item) for item in items if not _is_span(item) and _is_annotation(item))
            yield from trace_fragments(self.name, spans, record, source, lambda scope=scope: scope)  # type: ignore[misc]
            if outcomes:
                yield Attachment(record_ix=record.ix, outcomes=outcomes)
            if not spans and not outcomes:
                yield record.reject("not_openinference", "the record is no span and no annotation of Phoenix")


def _items(value: Any) -> list[dict[str, Any]]:
    """The spans or annotations of a record: itself, or the page of an API's answer."""
    body = as_dict(value)
    page = body.get("data")
    return [as_dict(item) for item in page] if isinstance(page, list) else [body] if body else []


def _confidence(item: Mapping[str, Any]) -> float:
    if _is_span(item):
        return 0.96
    if "annotator_kind" in item and _is_annotation(item):
        return 0.95
    return 0.85 if "context.span_id" in item and _is_annotation(item) else 0.0


def _is_span(item: Mapping[str, Any]) -> bool:
    if "context.span_id" in item:
        return "context.trace_id" in item or any(key.startswith("attributes.") for key in item)
    context = as_dict(item.get("context"))
    return "span_id" in context and "start_time" in item and ("span_kind" in item or "status_code" in item)


def _is_annotation(item: Mapping[str, Any]) -> bool:
    scores = any(key in item for key in ("result", "result.score", "result.label", "score", "label"))
    return scores and any(key in item for _, keys in _TARGETS for key in keys)


def _span(item: Mapping[str, Any], source: Source) -> Span:
    context = as_dict(item.get("context"))
    attributes = flattened(as_dict(loosely(item.get("attributes"))))
    attributes |= {
        key.removeprefix("attributes."): value
        for key, value in item.items()
        if key.startswith("attributes.") and not _is_empty(value)
    }
    kind = as_text(item.get("span_kind"))
    if kind is not None:
        attributes.setdefault("openinference.span.kind", kind)
    rest = {key: v for key, v in item.items() if key not in _SPAN and not key.startswith("attributes.")}
    rest |= {key: value for key, value in context.items() if key not in ("trace_id", "span_id")}
    return make_span(
        trace_id=hex_id(context.get("trace_id", item.get("context.trace_id"))),
        span_id=hex_id(context.get("span_id", item.get("context.span_id"))),
        parent_span_id=hex_id(None if _is_empty(item.get("parent_id")) else item.get("parent_id")),
        name=as_text(item.get("name")),
        kind=kind_name(kind),
        start_ns=nanos(item.get("start_time")),
        end_ns=nanos(item.get("end_time")),
        status=status_name(item.get("status_code")),
        status_message=as_text(item.get("status_message")),
        attributes=attributes,
        rest={key: value for key, value in rest.items() if not _is_empty(value)},
        events=as_list(loosely(item.get("events"))),
        links=as_list(loosely(item.get("links"))),
        source_id=source.source_id,
    )


def flattened(attributes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested attributes with dotted keys, as spans have them; lists and empty objects stay values."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, dict) and value:
            found |= flattened(value, f"{prefix}{key}.")
        elif not _is_empty(value):
            found[prefix + key] = value
    return found


def _is_empty(value: Any) -> bool:
    """A cell that a table left empty."""
    return value is None or value == "" or (isinstance(value, NumberText) and value.text.lower() == "nan")


def _annotation(item: Mapping[str, Any]) -> Outcome:
    given = {key: value for key, value in item.items() if not _is_empty(value)}
    result = as_dict(loosely(given.get("result")))
    label, score, explanation = (
        given.get(f"result.{name}", result.get(name, given.get(name))) for name in ("label", "score", "explanation")
    )
    kind, target = next(
        ((kind, text) for kind, keys in _TARGETS if (text := first_text(given, *keys)) is not None),
        ("trajectory", None),
    )
    name = first_text(given, "annotation_name", "name") or "evaluation"
    annotator = source_kind(given.get("annotator_kind"))
    rest = {key: value for key, value in given.items() if key not in _ANNOTATION}
    identity = first_text(given, "id", "identifier")
    return Outcome(
        outcome_id=content_id("outcome", "openinference", target, name, dumps([label, score]), identity),
        target_kind=kind,
        native_target_id=hex_id(target) if kind != "session" else None,
        session_id=target if kind == "session" else None,
        **scored(name, label, score, annotator),
        explanation=as_text(explanation),
        source_id=first_text(given, "user_id", "annotator_name") or as_text(given.get("annotator_kind")),
        created_at=read_time(given.get("created_at")).at,
        metadata=dumps(rest) if rest else None,
    )
