"""Langfuse's records (API objects, rows of exports) as span rows and outcomes, in either spelling of their keys.

A trace and its observations become spans of scope `langfuse`; a trace is one of kind TRACE without an id of its own.
All fields stay among the attributes, as they stood: texts that are JSON stay texts. Attributes of OpenTelemetry that
Langfuse keeps inside `metadata` are the span's attributes again.

Not covered: what the fields mean for a trajectory (`langfuse_spans.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flywheel.formats.feedback import polarity_of, value_columns
from flywheel.formats.parse import dumps
from flywheel.formats.reader import Source, as_dict, as_float, as_text
from flywheel.formats.span_outcomes import score_polarity
from flywheel.formats.span_view import loosely
from flywheel.formats.spans import make_span, nanos
from flywheel.formats.times import read_time
from flywheel.records import Outcome, Span, content_id

SCOPE, TRACE = "langfuse", "TRACE"
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_APART = {"observations", "scores", "corrections"}  # records of their own
_SCORE_SOURCES = {"ANNOTATION": "human_expert", "EVAL": "llm_judge", "API": "system"}
_BY_USERS = re.compile(r"(?i)feedback|thumb|rating|user|csat|nps")
_SCORE = {
    "id", "name", "value", "string_value", "source", "comment", "trace_id", "observation_id", "session_id",
    "timestamp",
}  # fmt: skip


def spelled(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record under the names of the blob export: `traceId` as `trace_id`."""
    return {_CAPITAL.sub(lambda match: "_" + match.group(1).lower(), key): value for key, value in record.items()}


def observation_span(record: Mapping[str, Any], source: Source) -> Span:
    """The span of one observation."""
    fields = spelled(record)
    return make_span(
        trace_id=as_text(fields.get("trace_id")),
        span_id=as_text(fields.get("id")),
        parent_span_id=as_text(fields.get("parent_observation_id")),
        name=as_text(fields.get("name")),
        kind=as_text(fields.get("type")),
        start_ns=nanos(fields.get("start_time")),
        end_ns=nanos(fields.get("end_time")),
        status="STATUS_CODE_ERROR" if fields.get("level") == "ERROR" else None,
        status_message=as_text(fields.get("status_message")),
        **_common(record, source),
    )


def trace_span(record: Mapping[str, Any], source: Source) -> Span:
    """The span that a trace's own record becomes."""
    fields = spelled(record)
    return make_span(
        trace_id=as_text(fields.get("id")),
        span_id=None,
        parent_span_id=None,
        name=as_text(fields.get("name")),
        kind=TRACE,
        start_ns=nanos(fields.get("timestamp")),
        end_ns=None,
        **_common(record, source),
    )


def _common(record: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The columns that both kinds have. Attributes of OpenTelemetry lose no name to a field: those stay in metadata."""
    kept = {key: value for key, value in record.items() if key not in _APART or _are_ids(value)}
    metadata = as_dict(loosely(kept.get("metadata")))
    given = as_dict(loosely(metadata.get("attributes")))
    attributes = {key: value for key, value in given.items() if "." in key and key not in kept}
    resource = as_dict(loosely(metadata.get("resourceAttributes")))
    if attributes or resource:
        rest = {key: value for key, value in given.items() if key not in attributes}
        metadata = {k: v for k, v in metadata.items() if k not in ("attributes", "resourceAttributes")}
        kept["metadata"] = {**metadata, **({"attributes": rest} if rest else {})}
    return {
        "scope": SCOPE,
        "attributes": {**attributes, **kept},
        "resource": resource,
        "rest": {},
        "source_id": source.source_id,
    }


def _are_ids(value: Any) -> bool:
    """Whether a trace only names its observations or scores."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def score_outcome(record: Mapping[str, Any], trajectory_id: str | None) -> Outcome:
    """One score. Without a trajectory it names its target by the id of the observation, the trace or the session."""
    fields = spelled(record)
    name = as_text(fields.get("name")) or "score"
    kind = (as_text(fields.get("data_type")) or "").upper()
    given = (as_text(fields.get("source")) or "").upper()
    source = "human_user" if given == "API" and _BY_USERS.search(name) else _SCORE_SOURCES.get(given, "system")
    text = as_text(fields.get("string_value"))
    observation, trace = as_text(fields.get("observation_id")), as_text(fields.get("trace_id"))
    rest = {key: value for key, value in record.items() if next(iter(spelled({key: 0}))) not in _SCORE}
    identity = as_text(fields.get("id")) or dumps(dict(record))
    return Outcome(
        outcome_id=content_id("outcome", "langfuse", identity),
        trajectory_id=trajectory_id,
        target_kind="step" if observation else "trajectory" if trace else "session",
        session_id=as_text(fields.get("session_id")),
        native_target_id=observation or trace,
        name=name,
        **_score_value(kind, fields.get("value"), text, name, source),
        explanation=as_text(fields.get("comment")),
        source_kind=source,
        source_id=given or None,
        created_at=read_time(fields.get("timestamp")).at,
        source_ref=as_text(fields.get("id")),
        metadata=dumps(rest) if rest else None,
    )


def _score_value(kind: str, value: Any, text: str | None, name: str, source: str) -> dict[str, Any]:
    """Columns of a value: CSV has numbers as text, booleans come as 0 and 1, corrections say what was expected."""
    number = as_float(value) if not isinstance(value, str) else _number(value)
    if kind == "CORRECTION":
        return {"value_type": "text", "value_text": text, "correction": None if text is None else dumps(text)}
    if kind == "BOOLEAN" and number in (0, 1):
        truth = number == 1
        # A truth is good news unless the name says otherwise ("hallucinated: true").
        inverse = score_polarity(name, None, 0.0, "llm_judge") is None
        return {"value_type": "boolean", "value_bool": truth, "value_num": number, "value_text": text,
                "value_raw": dumps(value), "polarity": 1 if truth is not inverse else -1}  # fmt: skip
    if kind in ("CATEGORICAL", "TEXT") or number is None:
        return {**value_columns(text if text is not None else value), "polarity": polarity_of(text)}
    return {**value_columns(value), "value_num": number, "value_type": "number",
            "polarity": score_polarity(name, text, number, source)}  # fmt: skip


def _number(text: str) -> float | None:
    try:
        return as_float(float(text))
    except ValueError:
        return None
