"""Ingest: landing objects that the lake does not know yet become one staged batch of trajectories.

    flywheel ingest [PATH or s3://ADDRESS ...] [--format NAME] [--stage-only] [--full]

Each object is sniffed, read, assembled, redacted, then completed (counts and hashes of what is really stored), all
before anything is written. What can't be read goes to `quarantine` with its byte range, a code, a sentence, redacted
bytes and the hash of the original. Bad data never raises: an object that no reader accepts is quarantined whole.

The batch is named by the hashes of its objects, so the same objects give the same batch. An object whose batch is
staged already is not read again: judging it is `validate`'s work, and a failed one waits there under its name.
A file or object that can't be opened (gone, forbidden, a pipe) is left out and named in `refused`; the rest goes on.

Not covered: judging and publishing (`validate`), batches larger than memory.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import ObjectUnread
from flywheel.formats.assemble import assemble, complete
from flywheel.formats.read import encoding_of
from flywheel.formats.reader import Source
from flywheel.formats.sniff import Reading, open_readings, reader_named
from flywheel.progress import Progress, silent
from flywheel.records import Attachment, Fragment, Quarantine, Reject, SourceFile, canonical_json, content_id
from flywheel.store import artifacts
from flywheel.store.keys import redaction_key
from flywheel.store.lake import Lake
from flywheel.store.landing import Excerpt, LandingBytes, excerpts, land
from flywheel.store.objects import Notes, ObjectStore, StoredObject, open_store
from flywheel.trajectory.redact import Redactor, redact_bytes, redact_fragment, redact_outcomes
from flywheel.workspace import Workspace

__all__ = ["IngestResult", "ingest", "land"]

KEPT_BYTES = 16 << 10  # of a refused record; all of it stays in the landing object
_CUT_MARGIN = 1 << 10  # redacted with it and then dropped, so that no secret survives by being cut in two


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


@dataclass(slots=True)
class _Read:
    """One landing object after reading."""

    stored: StoredObject
    source: LandingBytes
    encoding: str
    readings: list[Reading] = field(default_factory=list)
    n_refused: int = 0  # sources (the object, or members of an archive) that no reader accepts
    fragments: list[Fragment] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    excerpts: dict[tuple[int, int], Excerpt] = field(default_factory=dict)

    @property
    def n_records(self) -> int:
        """A source that no reader accepts counts as one record; the unread rest of a damaged one as another."""
        read = sum(reading.n_records for reading in self.readings)
        return read + self.n_refused + (self.source.damage is not None)

    @property
    def n_repaired(self) -> int:
        """Records that were readable only after mending."""
        return sum(reading.n_repaired for reading in self.readings)


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
    known = lake.recorded_objects() | _in_staging(workspace, lake)
    fresh = {stored.sha256: stored for stored in landed if stored.sha256 not in known}
    total, done = sum(stored.size for stored in fresh.values()), 0
    found: dict[str, _Read] = {}
    for _, stored in sorted(fresh.items()):
        progress(done, total, stored.key)
        item = _read(store, stored, config.ingest.format, notes)
        if item is not None and item.stored.sha256 not in known:
            found[item.stored.sha256] = item
        done += stored.size
    progress(done, total, "bytes read")
    read = [item for _, item in sorted(found.items())]  # by content: the order must not depend on names
    tables = _rows(read, key)
    batch = content_id("batch", sorted(found)) if found else None
    if batch is not None:
        lake.stage(batch, tables, objects=sorted(found))
    return IngestResult(
        batch=batch,
        files=len(read),
        records=sum(item.n_records for item in read),
        trajectories=len(tables["trajectory"]),
        quarantined=len(tables["quarantine"]),
        repaired=sum(item.n_repaired for item in read),
        skipped=sum(stored.sha256 in known for stored in landed),
        bytes=total,
        seconds=time.perf_counter() - started,
        formats=dict(sorted(Counter(row.format for row in tables["source_file"]).items())),
        refused=(*given.refused, *notes.left_out),
        unread=given.unread,
        deleted=notes.deleted,
        replaced=notes.replaced,
    )


def _in_staging(workspace: Workspace, lake: Lake) -> set[str]:
    """sha256 of the objects whose batch waits for its verdict, or failed and waits to be dealt with."""
    folders = (workspace.staging / batch for batch in (*lake.staged(), *lake.failed()))
    return {sha256 for folder in folders for sha256 in artifacts.load(folder).inputs["objects"]}


def _read(store: ObjectStore, stored: StoredObject, format_name: str, notes: Notes) -> _Read | None:
    """One object; None, and a note, if it can't be opened or changes under the reader."""
    try:
        with LandingBytes(store, stored) as source:
            notes.replaced += source.stored.sha256 != stored.sha256
            return _read_whole(source, source.stored, format_name)
    except ObjectUnread as error:
        notes.leave_out(error)
        return None


def _read_whole(source: LandingBytes, stored: StoredObject, format_name: str) -> _Read:
    item = _Read(stored, source, encoding_of(next(iter(source()), b"")))
    for opened in open_readings(source, Source(source_id=stored.sha256, uri=stored.key), format_name):
        if isinstance(opened, Reject):
            item.n_refused += 1
            item.rejects.append(opened)
            continue
        base = item.n_records
        item.readings.append(opened)
        for thing in opened.items():
            moved = replace(thing, record_ix=base + thing.record_ix)
            if isinstance(moved, Reject):
                item.rejects.append(moved)
            elif isinstance(moved, Attachment):
                item.attachments.append(moved)
            else:
                item.fragments.append(moved)
    if item.rejects:
        spans = [(reject.byte_offset, reject.byte_len) for reject in item.rejects if reject.raw is None]
        item.excerpts = excerpts(source(), spans, KEPT_BYTES + _CUT_MARGIN)
    return item


def _rows(read: Sequence[_Read], key: bytes) -> dict[str, list[Any]]:
    """The rows of every table, from redacted trajectories. Objects may continue each other's trajectories."""
    tables: dict[str, list[Any]] = {
        name: [] for name in ("source_file", "quarantine", "trajectory", "step", "tool_call", "outcome", "blob", "span")
    }
    losses: dict[str, Counter[str]] = {item.stored.sha256: Counter() for item in read}
    for fragment in assemble(fragment for item in read for fragment in item.fragments):
        redacted = redact_fragment(fragment, key)
        whole = complete(redacted.fragment)
        source_id = whole.trajectory.source_id
        losses[source_id] += Counter({f"redacted {kind}": n for kind, n in redacted.counts.items()})
        losses[source_id] += Counter(whole.trajectory.quality_flags or ())
        tables["trajectory"].append(whole.trajectory)
        tables["step"] += whole.steps
        tables["tool_call"] += whole.tool_calls
        tables["outcome"] += whole.outcomes
        tables["blob"] += whole.blobs
        tables["span"] += whole.spans
    for attachment in (attachment for item in read for attachment in item.attachments):
        tables["outcome"] += redact_outcomes(attachment.outcomes, key)
    now = datetime.now(UTC)
    for item in read:
        refused = _quarantine(item, key)
        tables["quarantine"] += refused
        tables["source_file"].append(_source_file(item, key, now, len(refused), losses[item.stored.sha256]))
    return tables


def _quarantine(item: _Read, key: bytes) -> list[Quarantine]:
    rows = []
    for reject in item.rejects:
        excerpt = (
            item.excerpts[reject.byte_offset, reject.byte_len]
            if reject.raw is None
            else Excerpt(reject.raw[: KEPT_BYTES + _CUT_MARGIN], hashlib.sha256(reject.raw).hexdigest())
        )
        row = Quarantine(
            source_id=item.stored.sha256,
            record_ix=reject.record_ix,
            byte_offset=reject.byte_offset,
            byte_len=reject.byte_len,
            code=reject.code,
            message=reject.message,
            original_sha256=excerpt.sha256,
            redacted=redact_bytes(excerpt.head, item.encoding, key)[:KEPT_BYTES],
        )
        rows.append(row)
    if item.source.damage is not None:
        code, message = item.source.damage
        rows.append(Quarantine(source_id=item.stored.sha256, byte_offset=item.source.size, code=code, message=message))
    return rows


def _source_file(item: _Read, key: bytes, now: datetime, n_quarantined: int, losses: Counter[str]) -> SourceFile:
    first = max(item.readings, key=lambda reading: reading.n_records, default=None)
    formats = sorted({reading.reader.name for reading in item.readings})
    return SourceFile(
        source_id=item.stored.sha256,
        uri=Redactor(key).text(item.stored.key),  # people put names into file names
        sha256=item.stored.sha256,
        bytes=item.stored.size,
        compression=item.source.compression,
        encoding=item.encoding,
        format="+".join(formats) or "unknown",
        format_version=first.match.version if first else None,
        format_confidence=first.match.confidence if first else None,
        adapter=first.reader.name if first else "none",
        adapter_version=first.reader.version if first else "0",
        ingested_at=now,
        n_records=item.n_records,
        n_trajectories=len({fragment.key for fragment in item.fragments}),  # some may be in other objects too
        n_quarantined=n_quarantined,
        n_repaired=item.n_repaired,
        loss_report=canonical_json(dict(losses)) if losses else None,
    )
