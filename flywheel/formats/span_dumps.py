"""Spans as SDKs and stores dump them outside of OTLP: Python's console exporters, Jaeger's JSON.

    {name, context: {trace_id, span_id}, kind, parent_id, start_time, end_time, status, attributes, events, resource}
    {body, severity_number, trace_id, span_id, timestamp, observed_timestamp, attributes, resource}
    {traceID, spans: [{traceID, spanID, operationName, references, startTime, duration, tags, logs}], processes}

Not covered: Phoenix's and MLflow's spans (readers of their own), Zipkin, the console exporter of JavaScript (no JSON).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.formats.otlp_values import plain_links
from flywheel.formats.parse import try_loads
from flywheel.formats.reader import Source, as_dict, as_int, as_list, as_text
from flywheel.formats.spans import BODY, LOG, hex_id, kind_name, make_span, nanos, status_name
from flywheel.records import Span

_CONSOLE = {
    "name", "context", "kind", "parent_id", "start_time", "end_time", "status", "attributes", "events", "links",
    "resource",
}  # fmt: skip
_LOG = {"body", "attributes", "timestamp", "trace_id", "span_id", "resource", "event_name", "dropped_attributes"}
_JAEGER = {
    "traceID", "spanID", "operationName", "references", "parentSpanID", "startTime", "duration", "tags", "logs",
    "processID", "process",
}  # fmt: skip


def confidence(value: Any) -> float:
    """How sure it is that a value is such a dump."""
    body = as_dict(value)
    if _is_console_span(body) or _is_console_log(body):
        return 0.9
    return 0.93 if _jaeger_traces(body) else 0.0


def spans(value: Any, source: Source) -> Iterator[Span]:
    """The spans of a dump; none where it is no dump."""
    body = as_dict(value)
    if _is_console_span(body):
        yield _console_span(body, source)
    elif _is_console_log(body):
        row = _console_log(body, source)
        if row is not None:
            yield row
    else:
        for trace in _jaeger_traces(body):
            yield from _jaeger_spans(trace, source)


def _is_console_span(body: Mapping[str, Any]) -> bool:
    context = as_dict(body.get("context"))
    is_phoenix = "span_kind" in body or "status_code" in body
    return "trace_id" in context and "span_id" in context and "start_time" in body and not is_phoenix


def _is_console_log(body: Mapping[str, Any]) -> bool:
    return "body" in body and "trace_id" in body and ("severity_number" in body or "observed_timestamp" in body)


def _resource(value: Any) -> dict[str, Any]:
    """`{attributes, schema_url}`, or the text of that object in older versions."""
    if isinstance(value, str):
        decoded = try_loads(value)
        value = {} if decoded is None else decoded.value
    body = as_dict(value)
    return as_dict(body.get("attributes")) if "attributes" in body else body


def _console_span(body: Mapping[str, Any], source: Source) -> Span:
    context, status = as_dict(body.get("context")), as_dict(body.get("status"))
    rest = {key: value for key, value in body.items() if key not in _CONSOLE}
    rest |= {key: value for key, value in context.items() if key not in ("trace_id", "span_id")}
    links = []
    for link in as_list(body.get("links")):
        own = as_dict(link)
        links.append({**as_dict(own.get("context")), **{key: v for key, v in own.items() if key != "context"}})
    return make_span(
        trace_id=hex_id(context.get("trace_id")),
        span_id=hex_id(context.get("span_id")),
        parent_span_id=hex_id(body.get("parent_id")),
        name=as_text(body.get("name")),
        kind=kind_name(body.get("kind")),
        start_ns=nanos(body.get("start_time")),
        end_ns=nanos(body.get("end_time")),
        status=status_name(status.get("status_code")),
        status_message=as_text(status.get("description")),
        schema_url=as_text(as_dict(body.get("resource")).get("schema_url")),
        resource=_resource(body.get("resource")),
        attributes=as_dict(body.get("attributes")),
        rest=rest,
        events=as_list(body.get("events")),
        links=plain_links(links),
        source_id=source.source_id,
    )


def _console_log(body: Mapping[str, Any], source: Source) -> Span | None:
    attributes = as_dict(body.get("attributes"))
    name = as_text(body.get("event_name")) or as_text(attributes.get("event.name"))
    if not (name or "").startswith("gen_ai."):
        return None
    return make_span(
        trace_id=hex_id(body.get("trace_id")),
        span_id=None,
        parent_span_id=hex_id(body.get("span_id")),
        name=name,
        kind=LOG,
        start_ns=nanos(body.get("timestamp")) or nanos(body.get("observed_timestamp")),
        resource=_resource(body.get("resource")),
        attributes={**attributes, **({BODY: body["body"]} if body.get("body") else {})},
        rest={key: value for key, value in body.items() if key not in _LOG},
        dropped=body.get("dropped_attributes"),
        source_id=source.source_id,
    )


def _jaeger_traces(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    traces = [as_dict(item) for item in as_list(body.get("data"))] or [dict(body)]
    return [t for t in traces if isinstance(t.get("spans"), list) and ("processes" in t or "traceID" in t)]


def _jaeger_spans(trace: Mapping[str, Any], source: Source) -> Iterator[Span]:
    processes = as_dict(trace.get("processes"))
    for item in as_list(trace["spans"]):
        span = as_dict(item)
        process = as_dict(processes.get(as_text(span.get("processID")) or "")) or as_dict(span.get("process"))
        references = [as_dict(reference) for reference in as_list(span.get("references"))]
        parents = [r.get("spanID") for r in references if r.get("refType") == "CHILD_OF"] or [span.get("parentSpanID")]
        start, duration = as_int(span.get("startTime")), as_int(span.get("duration"))
        start_ns = None if start is None else as_int(start * 1000)
        tags = _tags(span.get("tags"))
        failed = tags.get("error") in (True, "true")
        yield make_span(
            trace_id=hex_id(span.get("traceID", trace.get("traceID"))),
            span_id=hex_id(span.get("spanID")),
            parent_span_id=hex_id(parents[0]),
            name=as_text(span.get("operationName")),
            kind=kind_name(as_text(tags.get("span.kind"))),
            start_ns=start_ns,
            end_ns=None if start_ns is None or duration is None else as_int(start_ns + duration * 1000),
            status=status_name(tags.get("otel.status_code") or ("ERROR" if failed else None)),
            status_message=as_text(tags.get("otel.status_description")),
            scope=as_text(tags.get("otel.scope.name", tags.get("otel.library.name"))),
            scope_version=as_text(tags.get("otel.scope.version", tags.get("otel.library.version"))),
            resource={"service.name": process.get("serviceName"), **_tags(process.get("tags"))} if process else None,
            attributes=tags,
            rest={key: value for key, value in span.items() if key not in _JAEGER},
            events=[_jaeger_event(as_dict(log)) for log in as_list(span.get("logs"))],
            links=[
                {**r, "traceId": hex_id(r.get("traceID")), "spanId": hex_id(r.get("spanID"))} for r in references[1:]
            ],
            source_id=source.source_id,
        )


def _tags(tags: Any) -> dict[str, Any]:
    return {str(as_dict(tag).get("key")): as_dict(tag).get("value") for tag in as_list(tags)}


def _jaeger_event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = _tags(log.get("fields"))
    return {"name": as_text(fields.pop("event", None)), "timestamp": log.get("timestamp"), "attributes": fields}
