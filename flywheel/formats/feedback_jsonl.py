"""Feedback that an application collected by itself: which trace, what was said of it, no messages.

    {"trace_id": "...", "feedback": {"name": "thumbs", "score": 0, "comment": "wrong total"}}
    {"response_id": "chatcmpl-...", "thumbs": "down"}

The target is named by `trajectory_id`, `trace_id`, the id of a response, message or span, `conversation_id` or
`session_id`; `feedback` has any shape that `feedback.py` takes, or its fields stand in the record itself. Each record
is an attachment: it joins its trajectory in the lake's views, whichever of the two came first.

Not covered: feedback inside traces (each format's own reader), scores of tools that name themselves (`langfuse.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.feedback import read_feedback
from flywheel.formats.parse import dumps
from flywheel.formats.reader import Head, Item, Match, Record, Source, as_dict, as_text
from flywheel.records import Attachment, Outcome

_TARGETS = {
    "trajectory_id": "trajectory", "trace_id": "trajectory", "traceId": "trajectory", "run_id": "trajectory",
    "response_id": "step", "responseId": "step", "completion_id": "step", "message_id": "step", "messageId": "step",
    "generation_id": "step", "request_id": "step", "span_id": "step", "spanId": "step",
    "conversation_id": "session", "thread_id": "session", "session_id": "session", "sessionId": "session",
}  # fmt: skip
_SAID = ("score", "value", "thumbs", "rating", "correction", "comment", "label")
_TIMES = ("created_at", "timestamp", "createdAt", "time")
_NO_FEEDBACK = {
    "messages", "request", "response", "inputs", "outputs", "input", "output", "choices", "conversations", "steps",
    "trajectory", "spans", "observations", "attributes", "prompt", "completion", "role", "content", "type",
}  # fmt: skip


class FeedbackJsonl:
    """The reader."""

    name = "feedback_jsonl"
    version = "2"

    def sniff(self, head: Head) -> Match | None:
        if head.container not in ("json", "csv", "parquet") or not head.values:
            return None
        return Match(confidence=0.75) if all(_outcomes(value) for value in head.values) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        for record in records:
            outcomes = _outcomes(record.value)
            if outcomes:
                yield Attachment(record_ix=record.ix, outcomes=outcomes)
            else:
                message = "the record names no trace, response or session, or says nothing of it"
                yield record.reject("no_feedback", message)


def _outcomes(value: Any) -> tuple[Outcome, ...]:
    """The outcomes of a record; none where it names no target, says nothing, or is more than feedback."""
    record = as_dict(value)
    key = next((key for key in _TARGETS if as_text(record.get(key)) is not None), None)
    if key is None or _NO_FEEDBACK & set(record):
        return ()
    target = as_text(record[key])
    given, beside = _said(record)
    known = {key, *_TIMES, "feedback", *(name for name in _TARGETS if as_text(record.get(name)) is not None)}
    rest = {name: item for name, item in beside.items() if name not in known}
    ids = {name: record[name] for name in _TARGETS if name in record and name != key}
    return tuple(
        replace(
            outcome,
            trajectory_id=None,
            target_kind=_TARGETS[key],
            native_target_id=None if key in ("session_id", "sessionId") else target,
            session_id=as_text(record.get("session_id")) or as_text(record.get("sessionId")),
            metadata=_with(outcome.metadata, {**ids, **rest}),
        )
        for outcome in read_feedback(given, f"{key} {target}")
    )


def _said(record: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(what `read_feedback` takes, the rest): the `feedback` field, else the record itself without its ids."""
    at = next((record[key] for key in _TIMES if record.get(key) is not None), None)
    feedback = record.get("feedback")
    if feedback is None:
        own = {key: value for key, value in record.items() if key not in _TARGETS and key not in _TIMES}
        if not any(own.get(key) is not None for key in _SAID):
            return None, {}
        return {**own, **({} if at is None else {"created_at": at})}, {}
    items = feedback if isinstance(feedback, list) else [feedback]
    if at is None:
        return items, dict(record)
    return [{"created_at": at, **(item if isinstance(item, dict) else {"value": item})} for item in items], dict(record)


def _with(metadata: str | None, more: Mapping[str, Any]) -> str | None:
    """Metadata of an outcome with more keys; it is JSON text of an object already."""
    if not more:
        return metadata
    text = dumps(dict(more))
    return text if metadata is None else f"{text[:-1]},{metadata[1:]}"
