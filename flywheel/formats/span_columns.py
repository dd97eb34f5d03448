"""Columns of a step from the span that it was made by: times, error, model, tokens.

Not covered: the trajectory's own columns (`trace_head.py`).
"""

from __future__ import annotations

from typing import Any

from flywheel.formats.reader import as_text
from flywheel.formats.span_view import Found, View
from flywheel.formats.times import Time, read_time
from flywheel.formats.usage import money

OK, ERROR = "STATUS_CODE_OK", "STATUS_CODE_ERROR"


def span_times(view: View) -> tuple[Time, Time]:
    """(start, end) of a span; a time outside of 2000-2100 is missing, and so is an end before the start."""
    start, end = read_time(view.row.start_ns), read_time(view.row.end_ns)
    if start.at is not None and end.at is not None and end.at < start.at:
        end = Time(None, "missing", end.raw)
    return start, end


def times_of(view: View) -> dict[str, Any]:
    """`ts`, `ts_end` and the nanoseconds as they stood."""
    start, end = span_times(view)
    return {"ts": start.at, "ts_end": end.at, "ts_raw": start.raw}


def error_of(view: View, raised: bool = False) -> dict[str, Any]:
    """`error_type` and `error_message` of a span that failed: its own, or of the exception it recorded. Else empty.

    An exception that was recorded on a span without a status may have been handled; with `raised` it counts.
    """
    kind = view.text("error.type")
    exceptions = [event.attributes for event in view.events if event.name == "exception"]
    if view.row.status != ERROR and kind is None and (not raised or not exceptions or view.row.status == OK):
        return {}
    exception = exceptions[-1] if exceptions else view.attributes
    kind = kind or as_text(exception.get("exception.type"))
    message = view.row.status_message or as_text(exception.get("exception.message")) or view.text("error.message")
    return {"error_type": kind or "error", "error_message": message}


def tool_columns(view: View) -> dict[str, Any]:
    """Columns of a tool's result."""
    return {"span_id": view.row.span_id, **times_of(view), **error_of(view, raised=True)}


def call_columns(view: View, found: Found) -> dict[str, Any]:
    """Columns of what one call of a model said."""
    usage = found.usage
    counted: dict[str, Any] = {} if usage is None else {name: getattr(usage, name) for name in usage.__slots__}
    return {
        "span_id": view.row.span_id,
        "llm_call_id": found.response_id,
        "model": found.model,
        "finish_reason": found.finish_reason,
        "finish_reason_raw": found.finish_reason,
        "cost_usd": money(found.cost) if found.cost is not None else None,
        **times_of(view),
        **counted,
    }
