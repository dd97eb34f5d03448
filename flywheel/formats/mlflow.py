"""MLflow traces: `Trace.to_json()`, the REST API's answers, and `search_traces()` as a table.

    {info: {trace_id, state, trace_metadata, tags, assessments}, data: {spans}}     schema 3; ids of spans are base64
    {info: {request_id, status, request_metadata, ...}, data: {spans}}              schema 2; ids are `0x...`
    rows with trace_id | request_id and spans, or the whole trace as JSON text in `trace`

The spans leave as partial fragments (`traces.py` makes the steps); a trace without any gets one from its request and
response. Assessments are outcomes: feedback with a polarity, expectations with a `correction` and none.

Not covered: artifacts that spans refer to, MLflow's runs and metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from flywheel.formats.mlflow_spans import decoded
from flywheel.formats.otlp_values import flat, plain_links
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Item,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.span_outcomes import scored, source_kind
from flywheel.formats.span_view import loosely, tokens
from flywheel.formats.spans import hex_id, make_span, nanos, status_name
from flywheel.formats.times import read_time
from flywheel.formats.usage import money
from flywheel.records import Fragment, Outcome, Span, Trajectory, content_id

_IDS = ("trace_id", "request_id")
_METADATA = ("trace_metadata", "request_metadata")
_SPAN = {
    "trace_id", "span_id", "parent_span_id", "name", "start_time_unix_nano", "end_time_unix_nano", "events", "status",
    "attributes", "links", "context", "parent_id", "start_time", "end_time", "status_code", "status_message",
}  # fmt: skip
_ASSESSMENT = {
    "assessment_id", "assessment_name", "name", "trace_id", "span_id", "source", "create_time", "feedback",
    "expectation", "rationale",
}  # fmt: skip


class MLflow:
    """The reader."""

    name = "mlflow"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.container not in ("json", "parquet", "csv") or not head.values:
            return None
        found = [trace for value in head.values for trace in _traces(value)[:1]]
        if not found:
            return None
        confidence = round(0.96 * len(found) / len(head.values), 3)
        version = next((text for info, _, _ in found if (text := _schema(info)) is not None), None)
        return Match(confidence=confidence, version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            traces = _traces(record.value)
            if not traces:
                yield record.reject("not_mlflow", "the record has no trace info and no spans")
            for info, spans, rest in traces:
                yield _fragment(info, spans, rest, record, source, first)


_Trace = tuple[Mapping[str, Any], list[Any], Mapping[str, Any]]  # info, spans, what stood beside them


def _traces(value: Any) -> list[_Trace]:
    body = as_dict(value)
    if isinstance(body.get("traces"), list):
        return [trace for item in body["traces"] for trace in _traces(item)]
    whole = as_dict(loosely(body.get("trace")))
    if "info" in whole or "trace_info" in whole:  # the whole trace in a cell, its columns beside it
        found = _traces(whole)
        return [(info, spans, {**rest, **_beside(body, info)}) for info, spans, rest in found]
    info = as_dict(body.get("info")) or as_dict(body.get("trace_info"))
    if first_text(info, *_IDS) is not None:
        spans = as_list(as_dict(loosely(body.get("data"))).get("spans", body.get("spans")))
        data = {key: item for key, item in as_dict(loosely(body.get("data"))).items() if key != "spans"}
        rest = {key: item for key, item in body.items() if key not in ("info", "trace_info", "data", "spans")}
        return [(info, spans, {**rest, **({"data": data} if data else {})})]
    if first_text(body, *_IDS) is not None and any(key in body for key in _METADATA):
        row = {key: loosely(item) for key, item in body.items() if item is not None}
        return [({key: item for key, item in row.items() if key != "spans"}, as_list(row.get("spans")), {})]
    return []


def _beside(row: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a row that its trace does not hold itself."""
    held = {"trace", "spans", *info, *_IDS, *_METADATA, "timestamp_ms", "execution_time_ms", "execution_duration"}
    return {key: loosely(item) for key, item in row.items() if key not in held and item is not None}


def _schema(info: Mapping[str, Any]) -> str | None:
    return as_text(_members(info, *_METADATA).get("mlflow.trace_schema.version"))


def _members(info: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """An object, or the list of `{key, value}` that older servers and maps of Parquet give."""
    for name in names:
        value = loosely(info.get(name))
        if isinstance(value, list):
            return {text: as_dict(item).get("value") for item in value if (text := as_text(as_dict(item).get("key")))}
        if isinstance(value, dict):
            return value
    return {}


def _fragment(
    info: Mapping[str, Any], spans: list[Any], rest: Mapping[str, Any], record: Record, source: Source, first: str
) -> Fragment:
    native_id = first_text(info, *_IDS) or ""
    key = trajectory_id("mlflow", native_id, first)
    metadata, tags = _members(info, *_METADATA), _members(info, "tags")
    rows = [_span(as_dict(loosely(span)), source) for span in spans]
    if not rows:
        rows = [_whole(info, rest, metadata, native_id, source)]
    outcomes = [_assessment(as_dict(item), key, native_id) for item in as_list(loosely(info.get("assessments")))]
    own = {name: value for name, value in tags.items() if not name.startswith("mlflow.")}
    kept = {"metadata": metadata, "tags": tags}
    trajectory = Trajectory(
        trajectory_id=key,
        content_sha256="",
        native_id=native_id,
        trace_id=next((row.trace_id for row in rows if row.trace_id), None) or hex_id(native_id.removeprefix("tr-")),
        conversation_id=first_text(metadata, "mlflow.trace.session"),
        session_id=first_text(metadata, "mlflow.trace.session"),
        user_id=first_text(metadata, "mlflow.trace.user"),
        tenant=first_text(own, "tenant", "tenant_id"),
        task_id=first_text(own, "task_id") or first_text(metadata, "task_id"),
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="mlflow",
        format_version=_schema(info),
        agent_name=first_text(tags, "mlflow.traceName"),
        n_steps=0,
        content_complete=True,
        quality_flags=(*record.repairs, *_state_flags(info)) or None,
        metadata=dumps({name: value for name, value in kept.items() if value}) if metadata or tags else None,
        extra=_extra(info, rest),
        **_totals(metadata),
        **_timing(info),
    )
    return Fragment(
        key=key,
        record_ix=record.ix,
        trajectory=trajectory,
        partial=True,
        outcomes=tuple({outcome.outcome_id: outcome for outcome in outcomes}.values()),
        spans=tuple(rows),
    )


def _state_flags(info: Mapping[str, Any]) -> tuple[str, ...]:
    state = first_text(info, "state", "status") or ""
    return ("in_progress",) if state.endswith("IN_PROGRESS") else ()


def _totals(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What MLflow summed over the trace."""
    given = as_dict(loosely(metadata.get("mlflow.trace.tokenUsage")))
    usage = tokens(
        input=given.get("input_tokens"),
        output=given.get("output_tokens"),
        read=given.get("cache_read_input_tokens"),
        write=given.get("cache_creation_input_tokens"),
        total=given.get("total_tokens"),
    )
    cost = money(as_dict(loosely(metadata.get("mlflow.trace.cost"))).get("total_cost"))
    counted = {} if usage is None else {name: getattr(usage, name) for name in usage.__slots__}
    return {**counted, "cost_usd": cost, "cost_source": None if cost is None else "recorded"}


def _timing(info: Mapping[str, Any]) -> dict[str, Any]:
    time = read_time(info.get("request_time", info.get("timestamp_ms")))
    lasted = info.get("execution_duration_ms", info.get("execution_time_ms", info.get("execution_duration")))
    ms = as_float(lasted)
    if ms is None and isinstance(lasted, str) and lasted.endswith("s"):  # protobuf's Duration
        seconds = lasted[:-1]
        ms = float(seconds) * 1000 if seconds.replace(".", "", 1).isdecimal() else None
    end: datetime | None = None
    if time.at is not None and ms is not None and 0 <= ms < 10**10:
        end = time.at + timedelta(milliseconds=ms)
    return {
        "started_at": time.at,
        "ended_at": end,
        "duration_ms": ms,
        "time_quality": time.quality if time.at is not None else None,
    }


def _extra(info: Mapping[str, Any], rest: Mapping[str, Any]) -> str | None:
    known = {*_IDS, *_METADATA, "tags", "assessments"}
    left = {key: value for key, value in info.items() if key not in known}
    kept = {**left, **({"beside": rest} if rest else {})}
    return dumps(kept) if kept else None


def _span(span: Mapping[str, Any], source: Source) -> Span:
    attributes, odd = flat(loosely(span.get("attributes")))
    context, status = as_dict(span.get("context")), as_dict(span.get("status"))
    rest = {key: value for key, value in span.items() if key not in _SPAN}
    return make_span(
        trace_id=hex_id(span.get("trace_id", context.get("trace_id"))),
        span_id=hex_id(span.get("span_id", context.get("span_id"))),
        parent_span_id=hex_id(span.get("parent_span_id", span.get("parent_id"))),
        name=as_text(span.get("name")),
        kind=None,
        start_ns=nanos(span.get("start_time_unix_nano", span.get("start_time"))),
        end_ns=nanos(span.get("end_time_unix_nano", span.get("end_time"))),
        status=status_name(status.get("code", span.get("status_code"))),
        status_message=as_text(status.get("message", span.get("status_message"))),
        attributes=attributes,
        rest={**rest, **({"attributes": odd} if odd else {})},
        events=as_list(loosely(span.get("events"))),
        links=plain_links(span.get("links")),
        source_id=source.source_id,
    )


def _whole(
    info: Mapping[str, Any], rest: Mapping[str, Any], metadata: Mapping[str, Any], native_id: str, source: Source
) -> Span:
    """The one span of a trace that came without its spans: what it was asked and what it answered."""
    asked = info.get("request", rest.get("request", metadata.get("mlflow.traceInputs", info.get("request_preview"))))
    said = info.get("response", rest.get("response", metadata.get("mlflow.traceOutputs", info.get("response_preview"))))
    failed = (first_text(info, "state", "status") or "").endswith("ERROR")
    return make_span(
        trace_id=hex_id(native_id.removeprefix("tr-")),
        span_id=None,
        name=first_text(_members(info, "tags"), "mlflow.traceName"),
        status="STATUS_CODE_ERROR" if failed else None,
        attributes={
            "mlflow.spanType": "AGENT",
            **({} if asked is None else {"mlflow.spanInputs": asked}),
            **({} if said is None else {"mlflow.spanOutputs": said}),
        },
        rest={"spans": "missing"},
        source_id=source.source_id,
    )


def _assessment(item: Mapping[str, Any], key: str, native_id: str) -> Outcome:
    source, feedback = as_dict(item.get("source")), as_dict(item.get("feedback"))
    name = first_text(item, "assessment_name", "name") or "assessment"
    kind = source_kind(source.get("source_type"))
    span = hex_id(item.get("span_id"))
    expected = item.get("expectation")
    correction: Any = None
    if expected is not None:
        body = as_dict(expected)
        packed = as_dict(body.get("serialized_value"))
        correction = decoded(packed["value"], []) if "value" in packed else body.get("value", expected)
        columns = {**scored(name, None, None, kind), "correction": dumps(correction)}
    else:
        value = feedback.get("value")
        label = value if isinstance(value, str) else None
        columns = scored(name, label, None if label is not None else value, kind)
    if item.get("valid") is False:
        columns["polarity"] = None
    rest = {name: thing for name, thing in item.items() if name not in _ASSESSMENT}
    packing = {k: v for k, v in as_dict(as_dict(expected).get("serialized_value")).items() if k != "value"}
    rest |= {"expectation": packing} if packing else {}
    rest |= {"source_type": source["source_type"]} if "source_type" in source else {}
    rest |= {"feedback": more} if (more := {k: v for k, v in feedback.items() if k != "value"}) else {}
    identity = as_text(item.get("assessment_id")) or dumps([name, source, feedback, expected])
    return Outcome(
        outcome_id=content_id("outcome", key, identity),
        trajectory_id=key,
        target_kind="span" if span else "trajectory",
        native_target_id=span or native_id,
        **columns,
        explanation=as_text(item.get("rationale")),
        source_id=as_text(source.get("source_id")),
        created_at=read_time(item.get("create_time", item.get("create_time_ms"))).at,
        source_ref=as_text(item.get("assessment_id")),
        metadata=dumps(rest) if rest else None,
    )
