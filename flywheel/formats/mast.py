"""MAST: traces of multi-agent systems with annotated failure modes, `{mas_name, trace, mast_annotation, ...}`.

`trace` is `{key, index, trajectory}` or a text: the system's own log, which is one event row as it stands, because
every system writes its own. Each failure mode that was annotated is an outcome: bad where it was found, unknown where
the annotation is null. `annotations` of the human-labelled set give one outcome a mode and annotator.

Not covered: the messages inside the logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import Conversation, read_content
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
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
from flywheel.formats.scores import scored
from flywheel.records import Fragment, Outcome, Reject, Trajectory

MODES = {
    "1.1": "disobey task specification",
    "1.2": "disobey role specification",
    "1.3": "step repetition",
    "1.4": "loss of conversation history",
    "1.5": "unaware of termination conditions",
    "2.1": "conversation reset",
    "2.2": "fail to ask for clarification",
    "2.3": "task derailment",
    "2.4": "information withholding",
    "2.5": "ignored other agent's input",
    "2.6": "reasoning-action mismatch",
    "3.1": "premature termination",
    "3.2": "no or incomplete verification",
    "3.3": "incorrect verification",
}
_READ = {"mas_name", "llm_name", "benchmark_name", "trace", "mast_annotation"}


class Mast:
    """The reader."""

    name = "mast"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        found = sum(1 for value in head.values if _is_annotated(as_dict(value)))
        return Match(confidence=round(0.95 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            row = as_dict(record.value)
            if _is_annotated(row):
                yield _fragment(row, record, source, first)
            else:
                yield record.reject("not_mast", "the record has no `mas_name` with a trace and its annotation")


def _is_annotated(row: Mapping[str, Any]) -> bool:
    return "mas_name" in row and "trace" in row and ("mast_annotation" in row or "annotations" in row)


def _fragment(row: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    trace = as_dict(row["trace"])
    parts = [first_text(row, name) for name in ("mas_name", "llm_name", "benchmark_name", "trace_id")]
    parts += [first_text(trace, "key"), first_text(row, "round")]
    native_id = "/".join(part for part in parts if part) or fingerprint(row)
    this = trajectory_id("mast", native_id, first)
    conversation = Conversation(this)
    log = read_content(trace, "trajectory") if "trajectory" in trace else read_content(row, "trace")
    conversation.add(role="event", content=log.text, content_state=log.state, parts=log.parts)
    steps, _ = conversation.finish()
    rest = {key: value for key, value in row.items() if key not in _READ}
    more = {key: value for key, value in trace.items() if key != "trajectory"}
    rest |= {"trace": more} if more else {}
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="mast",
        agent_name=as_text(row.get("mas_name")),
        model=as_text(row.get("llm_name")),
        task=dumps({"benchmark": row["benchmark_name"]}) if "benchmark_name" in row else None,
        time_quality="missing",
        n_steps=len(steps),
        content_complete=True,
        quality_flags=(*record.repairs, "unparsed_log"),
        extra=dumps(rest) if rest else None,
    )
    outcomes = tuple({item.outcome_id: item for item in (*_modes(this, row), *_labels(this, row))}.values())
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, outcomes=outcomes)


def _modes(this: str, row: Mapping[str, Any]) -> Iterator[Outcome]:
    for code, value in as_dict(row.get("mast_annotation")).items():
        yield _found(this, code, value, source_kind="llm_judge", source_id="mast", explanation=MODES.get(code))


def _labels(this: str, row: Mapping[str, Any]) -> Iterator[Outcome]:
    """`{failure mode: "1.1 ...", annotator_1: true, ...}` of the human-labelled set."""
    for ix, item in enumerate(as_list(row.get("annotations"))):
        label = as_dict(item)
        mode = first_text(label, "failure mode", "failure_mode") or str(ix)
        code = re.match(r"\d\.\d", mode)
        rest = {key: value for key, value in label.items() if not key.startswith("annotator")}
        for name, value in label.items():
            if name.startswith("annotator"):
                columns = {"source_kind": "human_expert", "source_id": name, "explanation": mode, "metadata": rest}
                yield _found(this, code.group() if code else mode, value, **columns)


def _found(this: str, code: str, value: Any, **columns: Any) -> Outcome:
    """An annotation: that the mode was found is bad; that it was not says nothing of the rest."""
    number = float(value) if isinstance(value, bool) else as_float(value)
    return scored(this, f"mast/{code}", value, polarity=None if number is None else -1 if number > 0 else 0, **columns)
