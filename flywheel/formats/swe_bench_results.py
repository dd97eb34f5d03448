"""SWE-bench predictions and reports: files beside trajectories that name them by instance.

    {instance_id, model_name_or_path, model_patch}        a prediction: a line, an element, or the value of its instance
    {instance: {resolved, tests_status, patch_exists, ...}}       a harness report of instances
    {resolved_ids, unresolved_ids, error_ids, ...}        a report of a run

They give outcomes and no trajectories: a patch without the messages that led to it can't be labelled, repaired or
learnt from, and would count each run twice beside its trajectory. The patch is the value of an outcome without
polarity; `resolved` is a verifier's. Both join every trajectory of the instance, so `metadata` names the model.

Not covered: logs of the tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text
from flywheel.formats.scores import scored
from flywheel.records import Attachment, Outcome, Reject

_RUN = {"resolved_ids", "unresolved_ids"}
_LISTS = {
    "resolved_ids": True, "unresolved_ids": False, "resolved": True, "empty_patch_ids": False, "error_ids": None,
    "incomplete_ids": None,
}  # fmt: skip


class SweBenchResults:
    """The reader."""

    name = "swe_bench_results"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        known = [value for value in head.values if _outcomes(value)]
        return Match(confidence=round(0.95 * len(known) / len(head.values), 3)) if known else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Attachment | Reject]:
        for record in records:
            outcomes = _outcomes(record.value)
            if outcomes:
                yield Attachment(record_ix=record.ix, outcomes=tuple(outcomes))
            else:
                yield record.reject("not_swe_bench", "the record is no prediction and no report of SWE-bench")


def _outcomes(value: Any) -> list[Outcome]:
    given = as_dict(value)
    if _is_prediction(given):
        return [_prediction(given)]
    if given.keys() >= _RUN:
        return _run(given)
    items = {name: as_dict(item) for name, item in given.items()}
    if items and all(_is_prediction(item) for item in items.values()):
        return [_prediction(item) for item in items.values()]
    if items and all(isinstance(item.get("resolved"), bool) and "patch_exists" in item for item in items.values()):
        return [_report(name, item) for name, item in items.items()]
    return []


def _is_prediction(item: Mapping[str, Any]) -> bool:
    return as_text(item.get("instance_id")) is not None and "model_patch" in item and "messages" not in item


def _prediction(item: Mapping[str, Any]) -> Outcome:
    rest = {key: value for key, value in item.items() if key not in ("instance_id", "model_patch")}
    return scored(
        None,
        "prediction",
        item["model_patch"],
        polarity=None,
        source_kind="system",
        source_id=as_text(item.get("model_name_or_path")),
        native_target_id=as_text(item["instance_id"]),
        metadata=rest,
    )


def _report(name: str, item: Mapping[str, Any]) -> Outcome:
    rest = {key: value for key, value in item.items() if key != "resolved"}
    good = item["resolved"] is True
    return scored(
        None, "resolved", good, polarity=1 if good else -1, source_id="swe-bench", native_target_id=name, metadata=rest
    )


def _run(given: Mapping[str, Any]) -> list[Outcome]:
    """An outcome for each instance that a run's report lists; one that no verdict was reached on has a null value."""
    rest = {key: value for key, value in given.items() if key not in _LISTS}
    found: dict[str, Outcome] = {}
    for key, good in _LISTS.items():
        for instance in as_list(given.get(key)):
            name = as_text(instance)
            if name is None or (name in found and good is None):
                continue
            found[name] = scored(
                None,
                "resolved",
                good,
                polarity=None if good is None else 1 if good else -1,
                source_id="swe-bench",
                native_target_id=name,
                metadata={**rest, "listed": key},
            )
    return list(found.values())
