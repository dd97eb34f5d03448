"""LangSmith: runs as its API, its bulk exports and its SDKs' ingest calls have them, and feedback.

    {id | run_id, trace_id, dotted_order, run_type, inputs, outputs, ...}     a run; {runs: [...]} is a page of the API
    Parquet of a bulk export                                                  the same, nested fields as JSON text
    {post: [...], patch: [...]}                                               what an SDK sent: halves of runs
    {key, run_id, score, value, comment, correction, feedback_source}         feedback, an attachment

Runs become span rows, halves of one run are merged and the trace is made when all its fragments are there, in order of
time whatever the order of the file. `session_id` of a run is its project; the application's session is in its metadata.

Not covered: datasets and examples, attachments of runs (their names stay in the span).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.feedback import value_columns
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
from flywheel.formats.span_outcomes import score_polarity
from flywheel.formats.span_view import loosely
from flywheel.formats.spans import make_span, nanos, trace_fragments
from flywheel.formats.times import read_time
from flywheel.records import Attachment, Outcome, Span, content_id

SCOPE = "langsmith"
_TYPES = {"llm", "chain", "tool", "retriever", "prompt", "parser", "embedding"}
_DOTTED = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{6})Z(.+)")
_COLUMNS = {"trace_id", "parent_run_id", "child_runs", "events"}
_SOURCES = {
    "app": "human_expert",
    "user": "human_user",
    "model": "llm_judge",
    "auto_eval": "llm_judge",
    "api": "system",
}
_BY_USERS = re.compile(r"(?i)user|thumb|feedback|rating|csat")
_FEEDBACK = {"id", "key", "score", "value", "comment", "correction", "created_at", "run_id", "trace_id"}


class LangSmith:
    """The reader."""

    name = "langsmith"
    version = "2"

    def sniff(self, head: Head) -> Match | None:
        kinds = [_kind(value) for value in head.values]
        named = [kind for kind in kinds if kind is not None]
        if not named or 2 * len(named) <= len(kinds):
            return None
        return Match(confidence=0.92 if named[0] == "feedback" else 0.95, version=named[0])

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        opening: list[str] = []
        for record in records:
            if not opening:
                opening.append(fingerprint(record.value))
            kind, body = _kind(record.value), as_dict(record.value)
            if kind == "feedback":
                yield Attachment(record_ix=record.ix, outcomes=(_feedback(body, None, None),))
            elif kind is None:
                yield record.reject("not_langsmith", "the record is no run and no feedback of LangSmith")
            else:
                yield from self._traces(list(_runs(body)), record, source, opening[0])

    def _traces(self, runs: list[Mapping[str, Any]], record: Record, source: Source, first: str) -> Iterator[Item]:
        spans = [_span(run, source) for run in runs]
        for fragment in trace_fragments(self.name, spans, record, source, lambda: first):
            own = [outcome for run in runs if _trace_of(run) == fragment.trajectory.trace_id
                   for outcome in _outcomes(run, fragment.key)]  # fmt: skip
            yield replace(fragment, outcomes=tuple({outcome.outcome_id: outcome for outcome in own}.values()))


def _kind(value: Any) -> str | None:
    """run, batch (of an SDK), page (of the API), feedback; None for none of them."""
    body = as_dict(value)
    sent = [item for key in ("post", "patch") for item in as_list(body.get(key))]
    if sent:
        halves = all({"dotted_order", "run_type", "trace_id"} & set(as_dict(item)) for item in sent)
        return "batch" if halves else None
    if isinstance(body.get("runs"), list):
        return "page" if body["runs"] and all(_kind(run) == "run" for run in body["runs"][:8]) else None
    if as_text(body.get("run_type")) in _TYPES and {"id", "run_id"} & set(body):
        named = {"inputs", "outputs", "trace_id", "dotted_order"} & set(body)
        return "run" if len(named) > 1 else None
    if "key" in body and "run_id" in body and {"score", "value", "comment", "correction"} & set(body):
        return "feedback" if "inputs" not in body else None
    return None


def _runs(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The runs and halves of runs in a record, children that are nested in them too."""
    if "run_type" not in body and not ("dotted_order" in body and "post" not in body):
        for key in ("runs", "post", "patch"):
            for item in as_list(body.get(key)):
                if isinstance(item, dict):
                    yield from _runs({"dotted_order": None, **item})
        return
    yield body
    for child in as_list(loosely(body.get("child_runs"))):
        if isinstance(child, dict):
            owner = {"trace_id": _trace_of(body), "parent_run_id": _id_of(body), "dotted_order": None}
            yield from _runs({**owner, **child})


def _id_of(run: Mapping[str, Any]) -> str | None:
    """The id of a run; SDKs leave it out of what completes one: it's the end of the dotted order."""
    dotted = _DOTTED.fullmatch((as_text(run.get("dotted_order")) or "").rsplit(".", 1)[-1])
    return first_text(run, "id", "run_id") or (dotted.group(8) if dotted is not None else None)


def _trace_of(run: Mapping[str, Any]) -> str | None:
    dotted = _DOTTED.fullmatch((as_text(run.get("dotted_order")) or "").split(".", 1)[0])
    return as_text(run.get("trace_id")) or (dotted.group(8) if dotted is not None else _id_of(run))


def _span(run: Mapping[str, Any], source: Source) -> Span:
    error = as_text(run.get("error"))
    parent = as_text(run.get("parent_run_id"))
    dotted = (as_text(run.get("dotted_order")) or "").split(".")
    if parent is None and len(dotted) > 1 and (above := _DOTTED.fullmatch(dotted[-2])) is not None:
        parent = above.group(8)
    return make_span(
        trace_id=_trace_of(run),
        span_id=_id_of(run),
        parent_span_id=parent,
        name=as_text(run.get("name")),
        kind=as_text(run.get("run_type")),
        start_ns=_nanos(run.get("start_time")) or _dotted_nanos(dotted[-1]),
        end_ns=_nanos(run.get("end_time")),
        status="STATUS_CODE_ERROR" if error is not None or run.get("status") == "error" else None,
        status_message=error,
        scope=SCOPE,
        attributes={key: value for key, value in run.items() if key not in _COLUMNS and value is not None},
        events=loosely(run.get("events")),
        rest={},
        source_id=source.source_id,
    )


def _nanos(value: Any) -> int | None:
    """A time as SDKs write it: ISO text, or milliseconds."""
    if isinstance(value, (int, float, NumberText)) and not isinstance(value, bool):
        at = read_time(value).at
        return None if at is None else nanos(at.isoformat())
    return nanos(value)


def _dotted_nanos(part: str) -> int | None:
    found = _DOTTED.fullmatch(part)
    if found is None:
        return None
    year, month, day, hour, minute, second, micros = found.groups()[:7]
    return nanos(f"{year}-{month}-{day}T{hour}:{minute}:{second}.{micros}+00:00")


def _outcomes(run: Mapping[str, Any], key: str) -> Iterator[Outcome]:
    """What a run carries of its feedback: the objects, else the statistics over them."""
    target = _id_of(run)
    listed = [item for item in as_list(loosely(run.get("feedback"))) if isinstance(item, dict)]
    for item in listed:
        yield _feedback(item, key, target)
    stats = as_dict(loosely(run.get("feedback_stats"))) if not listed else {}
    for name, body in stats.items():
        average = as_dict(body).get("avg") if isinstance(body, dict) else body
        source = "human_user" if _BY_USERS.search(name) else "system"
        yield Outcome(
            outcome_id=content_id("outcome", "langsmith", target, name, "stats"),
            trajectory_id=key,
            target_kind="step",
            native_target_id=target,
            name=name,
            **value_columns(average),
            polarity=score_polarity(name, None, average, source),
            source_kind=source,
            metadata=dumps(body) if body else None,
        )


def _feedback(item: Mapping[str, Any], key: str | None, target: str | None) -> Outcome:
    name = as_text(item.get("key")) or "feedback"
    score, label = item.get("score"), item.get("value")
    given = as_dict(loosely(item.get("feedback_source")))
    kind = first_text(given, "type") or "api"
    source = "human_user" if kind == "api" and _BY_USERS.search(name) else _SOURCES.get(kind, "system")
    correction = item.get("correction")
    rest = {name: value for name, value in item.items() if name not in _FEEDBACK and value is not None}
    columns = value_columns(label if score is None else score)
    if score is not None and isinstance(label, str):
        columns["value_text"] = label
    return Outcome(
        outcome_id=content_id("outcome", "langsmith", as_text(item.get("id")) or dumps(dict(item))),
        trajectory_id=key,
        target_kind="step" if target or item.get("run_id") else "trajectory",
        native_target_id=target or first_text(item, "run_id", "trace_id"),
        name=name,
        **columns,
        polarity=score_polarity(name, label, score, source),
        explanation=as_text(item.get("comment")),
        correction=None if correction is None else dumps(loosely(correction)),
        source_kind=source,
        source_id=first_text(given, "user_id", "type"),
        created_at=read_time(item.get("created_at")).at,
        source_ref=as_text(item.get("id")),
        metadata=dumps(rest) if rest else None,
    )
