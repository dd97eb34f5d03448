"""OpenTelemetry traces and logs: OTLP as JSON or protobuf, and the dumps of SDKs and stores that hold the same spans.

    {resourceSpans | resourceLogs: [...]}     an export request: the collector's file exporter writes one a line
    {batches: [...]} {trace: {...}}           Grafana Tempo
    {data: [{traceID, spans, processes}]}     Jaeger
    {name, context, parent_id, ...}           the console exporter of the Python SDK, spans and log records

Field names may be camelCase or snake_case, ids hex or base64, instrumentation libraries may stand for scopes. A record
is a request; its spans and GenAI log events leave as partial fragments, one a trace, and are made into trajectories
when all are there (`traces.py`). An evaluation without a trace is an attachment to the response it names.

Not covered: metrics (refused, by name), log records that are no GenAI events, OTLP profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats import span_dumps
from flywheel.formats.otlp_values import flat, get, known_as, plain_links
from flywheel.formats.reader import Head, Item, Match, Record, Source, as_dict, as_list, as_text, fingerprint
from flywheel.formats.span_outcomes import EVALUATION, evaluation
from flywheel.formats.span_view import decoded_object
from flywheel.formats.spans import (
    BODY,
    LOG,
    hex_id,
    kind_name,
    make_span,
    nanos,
    status_name,
    trace_fragments,
)
from flywheel.records import Attachment, Span

_SPAN = known_as(
    "traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes",
    "droppedAttributesCount", "events", "links", "status",
)  # fmt: skip
_LOG = known_as("traceId", "spanId", "timeUnixNano", "attributes", "droppedAttributesCount", "body", "eventName")
_SCOPED = known_as("scope", "instrumentationLibrary", "spans", "logRecords", "logs", "schemaUrl")
_SIGNALS = ("Spans", "Logs", "Metrics")


class Otlp:
    """The reader."""

    name = "otlp"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.container not in ("json", "protobuf") or not head.values:
            return None
        sure = [0.97 if _resources(value) is not None else span_dumps.confidence(value) for value in head.values]
        return Match(confidence=round(sum(sure) / len(sure), 3)) if any(sure) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: list[str] = []
        for record in records:
            if not first:
                first.append(fingerprint(record.value) if not _has_long_ids(record.value) else "")
            spans = list(self._spans(record.value, source))
            evaluated = [span for span in spans if span.trace_id is None and span.name == EVALUATION]
            rows = [span for span in spans if span.trace_id is not None or span.kind != LOG]
            yield from trace_fragments(self.name, rows, record, source, lambda: first[0])
            if evaluated:
                outcomes = tuple(
                    evaluation(decoded_object(s.attributes), s.start_ns, None, None, ()) for s in evaluated
                )
                yield Attachment(record_ix=record.ix, outcomes=outcomes)
            if not rows and not evaluated:
                yield record.reject(*_why_nothing(record.value))

    def _spans(self, value: Any, source: Source) -> Iterator[Span]:
        resources = _resources(value)
        if resources is None:
            yield from span_dumps.spans(value, source)
            return
        for signal, resource in resources:
            if signal != "Metrics":
                yield from _of_resource(as_dict(resource), signal, source)


def _has_long_ids(value: Any) -> bool:
    """Whether it's an export request: its ids are unique by themselves, so nothing has to be hashed for a scope."""
    return _resources(value) is not None


def _resources(value: Any) -> list[tuple[str, Any]] | None:
    """(signal, resource item) of an export request in any of its wrappings; None where it is none."""
    body = as_dict(value)
    inner = as_dict(body.get("trace")) or as_dict(body.get("request"))
    if inner and not any(isinstance(get(body, f"resource{signal}"), list) for signal in _SIGNALS):
        body = inner
    found: list[tuple[str, Any]] = []
    known = False
    for signal in _SIGNALS:
        for items in (get(body, f"resource{signal}"), body.get("batches") if signal == "Spans" else None):
            if isinstance(items, list):
                known = True
                found += [(signal, item) for item in items]
        if isinstance(get(body, f"scope{signal}"), list) and "resource" in body:  # one resource by itself
            return [(signal, body)]
    return found if known else None


def _why_nothing(value: Any) -> tuple[str, str]:
    resources = _resources(value)
    if resources is None:
        return "not_otlp", "the record is no export request and no span"
    if resources and all(signal == "Metrics" for signal, _ in resources):
        return "metrics", "these are metrics: trajectories are made of traces and of GenAI log events"
    return "no_spans", "the export request holds no span and no GenAI log event"


def _of_resource(item: Mapping[str, Any], signal: str, source: Source) -> Iterator[Span]:
    resource = as_dict(item.get("resource"))
    attributes, odd = flat(resource.get("attributes"))
    more = {key: value for key, value in resource.items() if key != "attributes" and value}
    if more or odd:
        attributes = {**attributes, "flywheel.rest": {**more, **({"attributes": odd} if odd else {})}}
    library = as_list(get(item, f"instrumentationLibrary{signal}"))
    for scoped in (*as_list(get(item, f"scope{signal}")), *library):
        body = as_dict(scoped)
        scope = as_dict(get(body, "scope")) or as_dict(get(body, "instrumentationLibrary"))
        columns = {
            "scope": as_text(scope.get("name")),
            "scope_version": as_text(scope.get("version")),
            "schema_url": as_text(get(body, "schemaUrl")) or as_text(get(item, "schemaUrl")),
            "resource": attributes,
            "source_id": source.source_id,
        }
        rest = {key: value for key, value in scope.items() if key not in ("name", "version")}
        rest = {"scope": rest} if rest else {}
        rest |= {key: value for key, value in body.items() if key not in _SCOPED}
        if signal == "Spans":
            for span in as_list(body.get("spans")):
                yield _span(as_dict(span), rest, columns)
        else:
            for log in as_list(get(body, "logRecords") or body.get("logs")):
                row = _log(as_dict(log), rest, columns)
                if row is not None:
                    yield row


def _span(span: Mapping[str, Any], rest: Mapping[str, Any], columns: Mapping[str, Any]) -> Span:
    attributes, odd = flat(span.get("attributes"))
    status = as_dict(span.get("status"))
    left = {**rest, **{key: value for key, value in span.items() if key not in _SPAN}}
    left |= {"attributes": odd} if odd else {}
    left |= {"status": more} if (more := {k: v for k, v in status.items() if k not in ("code", "message")}) else {}
    return make_span(
        trace_id=hex_id(get(span, "traceId")),
        span_id=hex_id(get(span, "spanId")),
        parent_span_id=hex_id(get(span, "parentSpanId")),
        name=as_text(span.get("name")),
        kind=kind_name(span.get("kind")),
        start_ns=nanos(get(span, "startTimeUnixNano")),
        end_ns=nanos(get(span, "endTimeUnixNano")),
        status=status_name(status.get("code")),
        status_message=as_text(status.get("message")),
        attributes=attributes,
        rest=left,
        events=[_event(as_dict(event)) for event in as_list(span.get("events"))],
        links=plain_links(span.get("links")),
        dropped=get(span, "droppedAttributesCount"),
        **columns,
    )


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    attributes, odd = flat(event.get("attributes"))
    rest = {key: value for key, value in event.items() if key != "attributes"}
    return {**rest, "attributes": attributes, **({"attributesRest": odd} if odd else {})}


def _log(log: Mapping[str, Any], rest: Mapping[str, Any], columns: Mapping[str, Any]) -> Span | None:
    """A row of a GenAI event; None for other log records."""
    attributes, odd = flat(log.get("attributes"))
    name = as_text(get(log, "eventName")) or as_text(attributes.get("event.name"))
    if not (name or "").startswith("gen_ai."):
        return None
    body, _ = flat([{"key": BODY, "value": log["body"]}] if log.get("body") else [])
    at = nanos(get(log, "timeUnixNano")) or nanos(get(log, "observedTimeUnixNano"))
    left = {**rest, **{key: value for key, value in log.items() if key not in _LOG}}
    left |= {"attributes": odd} if odd else {}
    return make_span(
        trace_id=hex_id(get(log, "traceId")),
        span_id=None,
        parent_span_id=hex_id(get(log, "spanId")),
        name=name,
        kind=LOG,
        start_ns=at,
        attributes={**attributes, **body},
        rest=left,
        dropped=get(log, "droppedAttributesCount"),
        **columns,
    )
