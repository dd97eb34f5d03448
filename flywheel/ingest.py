"""Ingest: landing objects that the lake does not know yet become one staged batch of trajectories.

    flywheel ingest [PATH or s3://ADDRESS ...] [--format NAME] [--stage-only] [--full]

Each object is sniffed, read, assembled, redacted, then completed (counts and hashes of what is really stored), all
before anything is written. What can't be read goes to `quarantine` with its byte range, a code, a sentence, redacted
bytes and the hash of the original. Bad data never raises: an object that no reader accepts is quarantined whole.
Memory is bounded, whatever the objects weigh: see `ingest_source.py`.

The batch is named by the hashes of its objects, so the same objects give the same batch. An object whose batch is
staged already is not read again: judging it is `validate`'s work, and a failed one waits there under its name.
A file or object that can't be opened (gone, forbidden, a pipe) is left out and named in `refused`; the rest goes on.

Not covered: judging and publishing (`validate`).
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace as changed

from flywheel.config import Config
from flywheel.formats.assemble import join
from flywheel.formats.sniff import reader_named
from flywheel.ingest_pool import Job, Replaced, read_all
from flywheel.ingest_rejoin import rejoined, with_known
from flywheel.ingest_source import KEPT_BYTES, RANGE_BITS, SourceReport, store_whole
from flywheel.progress import Progress, silent
from flywheel.records import Fragment, SourceFile, canonical_json, content_id
from flywheel.store.held import Held
from flywheel.store.keys import redaction_key
from flywheel.store.lake import Lake
from flywheel.store.lake_known import Known
from flywheel.store.lake_stage import PartWriter, settle
from flywheel.store.landing import land
from flywheel.store.objects import Notes, StoredObject, open_store
from flywheel.trajectory.redact import Redaction
from flywheel.workspace import Workspace

__all__ = ["KEPT_BYTES", "IngestResult", "ingest", "land"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What was staged. `records` are the formats' own units; each is in a trajectory or in quarantine."""

    batch: str | None  # None: nothing new
    files: int
    records: int
    trajectories: int
    quarantined: int
    repaired: int  # records that were readable only after mending
    skipped: int  # landing objects that the lake or a staged batch has already
    bytes: int
    seconds: float
    formats: dict[str, int]  # files by format
    refused: tuple[str, ...] = ()  # a sentence for each file or object that could not be opened
    unread: tuple[str, ...] = ()  # of the given paths: those of which nothing could be read
    deleted: int = 0  # objects that were gone between listing and reading
    replaced: int = 0  # and those that were read as the newer ones


def ingest(
    workspace: Workspace,
    config: Config,
    paths: Sequence[Path | str] = (),
    progress: Progress = silent,
    *,
    full: bool = False,
) -> IngestResult:
    """Land the given paths, then stage every landing object that is not recorded yet as one batch.

    `full`: list a large S3 prefix to its end, whenever that was done last.
    Errors: ConfigError for an impossible address, FormatError for an unknown `[ingest] format`, WorkspaceError without
    a redaction key, ObjectError where the landing zone can't be reached. Data itself never raises.
    """
    started = time.perf_counter()
    if config.ingest.format != "auto":
        reader_named(config.ingest.format)
    key = redaction_key(workspace)
    given, notes = land(workspace, config, paths), Notes()
    store, lake = open_store(workspace, config, full=full), Lake(workspace)
    landed = store.list(notes)
    known = lake.staged_objects() | lake.recorded_objects()  # in that order: a batch goes from here to there
    fresh = {stored.sha256: stored for stored in landed if stored.sha256 not in known}
    staged = _Staged()
    while fresh:
        changes = _stage(workspace, config, lake, key, fresh, staged, progress)
        if not changes:
            break
        for change in changes:  # what was read meanwhile may be half the old and half the new: all of it begins again
            del fresh[change.listed.sha256]
            if change.error is not None:
                notes.leave_out(change.error)
            elif change.now is not None and change.now.sha256 not in known:
                notes.replaced += 1
                fresh[change.now.sha256] = change.now
    reports = staged.reports
    return IngestResult(
        batch=staged.batch,
        files=len(reports),
        records=sum(report.n_records for report in reports),
        trajectories=staged.rows.get("trajectory", 0),
        quarantined=staged.rows.get("quarantine", 0),
        repaired=sum(report.n_repaired for report in reports),
        skipped=sum(stored.sha256 in known for stored in landed),
        bytes=sum(stored.size for stored in fresh.values()),
        seconds=time.perf_counter() - started,
        formats=dict(sorted(Counter(map(_format, reports)).items())),
        refused=(*given.refused, *notes.left_out),
        unread=given.unread,
        deleted=notes.deleted,
        replaced=notes.replaced,
    )


@dataclass(slots=True)
class _Staged:
    """What became of the fresh objects."""

    batch: str | None = None
    reports: Sequence[SourceReport] = ()
    rows: Mapping[str, int] = field(default_factory=dict)


def _stage(
    workspace: Workspace,
    config: Config,
    lake: Lake,
    key: bytes,
    fresh: Mapping[str, StoredObject],
    staged: _Staged,
    progress: Progress,
) -> list[Replaced]:
    """Stage the objects as one batch and fill in `staged`; or the objects that changed under the readers."""
    objects = [stored for _, stored in sorted(fresh.items())]  # by content: the order must not depend on names
    own, is_redacted = config.redaction.patterns, config.redaction.mode == "on"
    redaction = Redaction(key=key, own=tuple(sorted(own.items())), enabled=is_redacted)
    inputs = {"objects": sorted(fresh), **redaction.inputs()}
    batch = content_id("batch", *inputs.values())
    draft, stamps = lake.draft(batch), lake.stamps(batch)
    job = Job(workspace=workspace, config=config, redaction=redaction, draft=draft, stamps=stamps)
    total, done = sum(stored.size for stored in objects), 0

    def tell(stored: StoredObject, size: int) -> None:
        nonlocal done
        done += size
        progress(done, total, stored.key)

    try:
        with Held(workspace.staging) as held:
            found = read_all(job, objects, held.add, tell)
            changes = [item for item in found if isinstance(item, Replaced)]
            if changes:
                return changes
            reports = {report.sha256: report for report in found if isinstance(report, SourceReport)}
            losses = {sha256: Counter(report.losses) for sha256, report in reports.items()}
            elsewhere = _store_held(lake, held, job, reports, losses)
        n_trajectories = Counter(settle(draft, stamps)) + elsewhere
        now = datetime.now(UTC)
        with PartWriter(draft, "sources", stamps) as writer:
            for stored in objects:
                report = reports[stored.sha256]
                row = _source_file(stored, report, redaction, now, n_trajectories[stored.sha256])
                writer.add("source_file", [_with_losses(row, losses[stored.sha256], is_redacted)])
        staged.rows = lake.finish_draft(batch, draft, inputs)
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # it is gone if it became the batch
    progress(total, total, "bytes read")
    staged.batch, staged.reports = batch, list(reports.values())
    return []


def _store_held(
    lake: Lake, held: Held, job: Job, reports: Mapping[str, SourceReport], losses: Mapping[str, Counter[str]]
) -> Counter[str]:
    """Join what waited for the end, also with what the lake has of it, and write it.

    Gives how many trajectories a source has parts of that name another.
    """
    elsewhere: Counter[str] = Counter()
    if not len(held):
        return elsewhere
    with Known(lake) as known, PartWriter(job.draft, "held", job.stamps) as writer:
        for group, stored in with_known(known, held.groups()):
            placed = sorted((_placed(fragment, reports) for fragment in group), key=_place)
            named, lost = set(), losses[placed[-1].trajectory.source_id]
            for whole in join(placed) if stored is None else rejoined(stored, placed, job.redaction, lost):
                named.add(whole.trajectory.source_id)
                losses[whole.trajectory.source_id] += store_whole(whole, job.redaction, writer)
            elsewhere.update({fragment.trajectory.source_id for fragment in placed} - named)
    return elsewhere


def _placed(fragment: Fragment, reports: Mapping[str, SourceReport]) -> Fragment:
    """The fragment with its places counted from the start of its source, if a byte range gave it."""
    number, ix = divmod(fragment.record_ix, 1 << RANGE_BITS)
    head = fragment.trajectory
    start = reports[head.source_id].starts[number]
    if not start:
        return fragment
    return changed(
        fragment,
        record_ix=start + ix,
        trajectory=changed(head, source_record_ix=start + head.source_record_ix),
    )


def _place(fragment: Fragment) -> tuple[str, int]:
    return fragment.trajectory.source_id, fragment.record_ix


def _format(report: SourceReport) -> str:
    return "+".join(sorted({name for name, *_ in report.readers})) or "unknown"


def _source_file(
    stored: StoredObject, report: SourceReport, redaction: Redaction, now: datetime, n_trajectories: int
) -> SourceFile:
    adapter, version, match, _ = max(report.readers, key=lambda reading: reading[3], default=("none", "0", None, 0))
    return SourceFile(
        source_id=stored.sha256,
        uri=redaction.text(stored.key) if redaction.enabled else stored.key,  # people put names into file names
        sha256=stored.sha256,
        bytes=stored.size,
        compression=report.compression,
        encoding=report.encoding,
        format=_format(report),
        format_version=match.version if match else None,
        format_confidence=match.confidence if match else None,
        adapter=adapter,
        adapter_version=version,
        ingested_at=now,
        n_records=report.n_records,
        n_trajectories=n_trajectories,  # some may be in other objects too
        n_quarantined=report.n_quarantined,
        n_repaired=report.n_repaired,
    )


def _with_losses(row: SourceFile, losses: Counter[str], is_redacted: bool) -> SourceFile:
    said = dict(losses) if is_redacted else {**losses, "redaction": "off"}
    return replace(row, loss_report=canonical_json(said) if said else None)
