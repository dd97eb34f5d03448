"""Langfuse: what its API, its UI and its exports to blob storage give, in JSON, JSON lines, Parquet and CSV.

    {trace: {..., scores}, observations: [...]}            one trace as the UI downloads it
    {id, timestamp, ..., observations, scores}             one trace of the API; {data: [...], meta} is a page of such
    observations_v2/, observations/ + traces/, scores/     rows of exports; a trace's rows join by `trace_id`
    {<observation>: {input: {success, data}, output}}      ChatML dumps

Observations become span rows, and the trace when all its fragments are there. Scores of traces that came before or
later are attachments. Manifests of exports hold nothing.

Not covered: datasets, prompts, media (their references stay in the messages).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.langfuse_rows import observation_span, score_outcome, spelled, trace_span
from flywheel.formats.langfuse_spans import CHATML
from flywheel.formats.reader import Head, Item, Match, Record, Source, as_dict, as_list, as_text, fingerprint
from flywheel.formats.spans import make_span, trace_fragments
from flywheel.records import Attachment, Span

_TYPES = {
    "GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
}  # fmt: skip

_MANIFESTS = "manifests/"  # beside an export's files: what was written, nothing of a trace


class Langfuse:
    """The reader."""

    name = "langfuse"
    version = "2"

    def sniff(self, head: Head) -> Match | None:
        if _MANIFESTS in head.uri and head.container == "json" and all(isinstance(v, dict) for v in head.values):
            return Match(confidence=0.5, version="manifest")
        kinds = [_kind(value) for value in head.values]
        named = [kind for kind in kinds if kind is not None]
        if not named or (len(named) < len(kinds) and head.container in ("parquet", "csv")):
            return None
        return Match(confidence=0.95 if named[0] in ("bundle", "observation") else 0.92, version=named[0])

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        opening: list[str] = []
        for record in records:
            if not opening:
                opening.append(fingerprint(record.value))
            values = list(_opened(record.value)) or [None]
            for value in values:
                yield from self._items(value, record, source, opening[0])

    def _items(self, value: Any, record: Record, source: Source, first: str) -> Iterator[Item]:
        kind, body = _kind(value), as_dict(value)
        if kind == "score":
            yield Attachment(record_ix=record.ix, outcomes=(score_outcome(body, None),))
        elif kind is None and _MANIFESTS not in (source.path or source.uri):
            yield record.reject("not_langfuse", "the record is no trace, observation or score of Langfuse")
        elif kind is not None:
            spans, scores = _trace(body, kind, source)
            for fragment in trace_fragments(self.name, spans, record, source, lambda: first):
                own = tuple(score_outcome(as_dict(score), fragment.key) for score in scores)
                scores = []
                yield replace(fragment, outcomes=tuple({outcome.outcome_id: outcome for outcome in own}.values()))
            if scores:
                yield Attachment(record_ix=record.ix, outcomes=tuple(score_outcome(as_dict(s), None) for s in scores))


def _opened(value: Any) -> Iterator[Any]:
    """The records in a record: those of a page of the API, of an array inside a line."""
    body = as_dict(value)
    if isinstance(body.get("data"), list) and "meta" in body:
        for item in body["data"]:
            yield from _opened(item)
    elif isinstance(value, list):
        for item in value:
            yield from _opened(item)
    else:
        yield value


def _trace(body: Mapping[str, Any], kind: str, source: Source) -> tuple[list[Span], list[Any]]:
    """The spans and the scores of one record."""
    if kind == "observation":
        return [observation_span(body, source)], []
    if kind == "chatml":
        return [_chatml(name, as_dict(entry), source) for name, entry in body.items()], []
    trace = as_dict(body.get("trace")) if kind == "bundle" else body
    listed = [*as_list(body.get("observations")), *(as_list(trace.get("observations")) if trace is not body else [])]
    observations: dict[str, Mapping[str, Any]] = {}
    for ix, item in enumerate(listed):
        if isinstance(item, dict):
            observations.setdefault(as_text(item.get("id")) or str(ix), item)
    spans = [trace_span({**trace, **_beside(body, trace)}, source)]
    owner = {"traceId": trace.get("id")}
    spans += [
        observation_span({**owner, **item} if "trace_id" not in item else item, source)
        for item in observations.values()
    ]
    scores = [*as_list(trace.get("scores")), *as_list(trace.get("corrections"))]
    return spans, [score for score in scores if isinstance(score, dict)]  # a list of traces has their ids only


def _beside(body: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any]:
    """What a bundle holds beside its trace and observations."""
    if trace is body:
        return {}
    return {key: value for key, value in body.items() if key not in ("trace", "observations") and key not in trace}


def _chatml(name: str, entry: Mapping[str, Any], source: Source) -> Span:
    return make_span(
        trace_id=None,
        span_id=name,
        kind=CHATML,
        scope="langfuse",
        attributes=entry,
        rest={},
        source_id=source.source_id,
    )


def _kind(value: Any) -> str | None:
    """What a record of Langfuse it is: bundle, trace, observation, score, chatml, page; None for none."""
    body = as_dict(value)
    if isinstance(body.get("trace"), dict) and isinstance(body.get("observations"), list):
        return "bundle" if "id" in body["trace"] else None
    if isinstance(body.get("data"), list) and isinstance(body.get("meta"), dict):
        inner = {_kind(item) for item in body["data"][:8]}
        return "page" if inner and None not in inner else None
    if _is_chatml(body):
        return "chatml"
    fields = spelled(body)
    if "id" not in fields:
        return None
    if "trace_id" in fields and as_text(fields.get("type")) in _TYPES and "start_time" in fields:
        return "observation"
    if _is_score(fields):
        return "score"
    if "timestamp" in fields and {"project_id", "html_path", "bookmarked", "observations"} & set(fields):
        return "trace" if {"input", "output", "tags", "metadata", "name"} & set(fields) else None
    return None


def _is_score(fields: Mapping[str, Any]) -> bool:
    about = {"trace_id", "session_id", "observation_id", "dataset_run_id"} & set(fields)
    return (
        bool(about)
        and "name" in fields
        and {"data_type", "source"} <= set(fields)
        and bool({"value", "string_value"} & set(fields))
    )


def _is_chatml(body: Mapping[str, Any]) -> bool:
    entries = [as_dict(entry) for entry in body.values()]
    return bool(entries) and all(
        set(entry) == {"input", "output"}
        and all(isinstance(as_dict(side).get("success"), bool) for side in entry.values())
        for entry in entries
    )
