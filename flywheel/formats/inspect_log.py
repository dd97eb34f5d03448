"""Inspect (UK AISI) evaluation logs: `.eval` archives, whole `.json` logs of any age, single samples, event streams.

    {version, status, eval, plan, results, stats, samples: [...]}    a log; one trajectory a sample and epoch
    header.json, samples/<id>_epoch_<n>.json, summaries.json, ...    the same as an archive, read as one source
    {id, epoch, input, target, messages, ...}                        a sample alone
    {events: [{event: "model", ...}, ...]}                           events alone; a trajectory a span with model calls

What a log says of the evaluation as a whole (task, packages, metrics, reductions) is yielded as loose outcomes of the
session, which is the `eval_id` (`run_id` before 2025). A log without samples gives these only. A sample that the
summaries name and that has no file (the archive was damaged, or the run died) is a trajectory without messages, and
says so.

Not covered: samples of the live buffer database, files beside a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.formats import inspect_sample
from flywheel.formats.inspect_events import event_fragments
from flywheel.formats.inspect_sample import Run
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
from flywheel.formats.scores import scored
from flywheel.records import Attachment, Outcome

_LOG = {"eval", "plan"}
_SAMPLE = {"id", "epoch", "input", "target"}
_ROWS = {"samples", "reductions"}


class InspectLog:
    """The reader."""

    name = "inspect_log"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.container == "archive":
            known = any(path == "header.json" or path.startswith("_journal/") for path in head.paths)
            samples = any(path.startswith("samples/") and "_epoch_" in path for path in head.paths)
            return Match(confidence=0.95 if known and samples else 0.9) if known or samples else None
        sure = [_confidence(value) for value in head.values]
        if not sure or not any(sure):
            return None
        version = next((as_text(as_dict(value).get("version")) for value in head.values if _is_log(value)), None)
        return Match(confidence=round(sum(sure) / len(sure), 3), version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        log = _Log(source)
        for record in records:
            yield from log.items(record)
        yield from log.unseen()


def _is_log(value: Any) -> bool:
    log = as_dict(value)
    return isinstance(log.get("eval"), dict) and log.keys() >= _LOG and bool({"version", "status"} & log.keys())


def _confidence(value: Any) -> float:
    if _is_log(value):
        return 0.95
    if as_dict(value).keys() >= _SAMPLE:
        return 0.9
    events = as_dict(value).get("events")
    if not isinstance(events, list):
        return 0.0
    named = [isinstance(as_dict(event).get("event"), str) for event in events]
    return 0.5 if not events else 0.9 * all(named)


@dataclass(slots=True)
class _Log:
    """What is known of the log so far."""

    source: Source
    run: Run = field(default_factory=Run)
    summaries: dict[tuple[str, str], tuple[Record, Mapping[str, Any]]] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)
    first: str | None = None

    def items(self, record: Record) -> Iterator[Item]:
        value = as_dict(record.value)
        self.first = self.first or fingerprint(record.value)
        name = record.path or ""
        if name == "summaries.json" or name.startswith("_journal/summaries/"):
            for summary in as_list(record.value):
                self.summaries[_key(as_dict(summary))] = record, as_dict(summary)
        elif name == "reductions.json":
            yield from _attachment(record, self._reductions(record.value))
        elif name == "_journal/start.json":
            self.run = self.run if self.run.known else Run.of(value)
        elif _is_log(value):
            yield from self._whole(record, value)
        elif value.keys() >= _SAMPLE or (name.startswith("samples/") and value):
            yield self._sample(record, value)
        elif isinstance(value.get("events"), list):
            yield from event_fragments(value, record, self.source, self.first)
        elif not name.startswith("_journal/"):
            yield record.reject("not_inspect_log", "the record is no log, no sample and no list of events of Inspect")

    def _whole(self, record: Record, value: Mapping[str, Any]) -> Iterator[Item]:
        self.run = Run.of(value)
        results = as_dict(value.get("results"))
        head = {key: item for key, item in value.items() if key not in (*_ROWS, "results")}
        head |= {"results": {key: item for key, item in results.items() if key != "scores"}} if results else {}
        status = self._of_session("status", as_text(value.get("status")), source_kind="system", metadata=head)
        reductions = self._reductions(value.get("reductions"))
        yield from _attachment(record, (status, *self._metrics(results.get("scores")), *reductions))
        for sample in as_list(value.get("samples")):
            if isinstance(sample, dict):
                yield self._sample(record, sample)

    def _sample(self, record: Record, sample: Mapping[str, Any]) -> Item:
        self.seen.add(_key(sample))
        return inspect_sample.fragment(sample, self.run, record, self.source, self.first or "")

    def unseen(self) -> Iterator[Item]:
        """Samples that the summaries name and that no record held."""
        for key, (record, summary) in self.summaries.items():
            if key not in self.seen:
                yield inspect_sample.fragment(summary, self.run, record, self.source, self.first or "", lost=True)

    def _of_session(self, name: str, value: Any, *, source_kind: str = "verifier", metadata: Any = None) -> Outcome:
        return scored(
            None,
            name,
            value,
            polarity=None,
            target_kind="session",
            session_id=self.run.session_id or self.first,
            source_kind=source_kind,
            source_id="inspect",
            metadata=metadata,
        )

    def _metrics(self, scores: Any) -> Iterator[Outcome]:
        for score in as_list(scores):
            score = as_dict(score)
            name = first_text(score, "name", "scorer") or "score"
            rest = {key: item for key, item in score.items() if key != "metrics"}
            metrics = as_dict(score.get("metrics"))
            for metric, said in metrics.items():
                value = said.get("value") if isinstance(said, dict) else said
                yield self._of_session(f"{name}/{metric}", value, metadata={**rest, "metric": said})
            if not metrics:
                yield self._of_session(name, None, metadata=rest)

    def _reductions(self, reductions: Any) -> Iterator[Outcome]:
        """What the epochs of each sample were reduced to."""
        for reduction in as_list(reductions):
            reduction = as_dict(reduction)
            rest = {key: item for key, item in reduction.items() if key != "samples"}
            for item in as_list(reduction.get("samples")):
                name = f"{first_text(reduction, 'scorer') or 'score'}/sample/{as_text(as_dict(item).get('sample_id'))}"
                metadata = {**rest, "sample": item}
                yield self._of_session(name, as_dict(item).get("value"), metadata=metadata)


def _key(sample: Mapping[str, Any]) -> tuple[str, str]:
    return str(as_text(sample.get("id"))), str(as_text(sample.get("epoch")))


def _attachment(record: Record, outcomes: Iterable[Outcome]) -> Iterator[Attachment]:
    found = tuple({outcome.outcome_id: outcome for outcome in outcomes}.values())
    if found:
        yield Attachment(record_ix=record.ix, outcomes=found)
