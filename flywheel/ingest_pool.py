"""The objects of one batch, read by this process or shared out among several.

Every process reads whole objects, or byte ranges of one large file of JSON lines, and writes parts of the same draft.
What several of them know parts of (fragments that wait for others) comes back to this process. The rows don't depend
on how the work was shared out: places in a source are counted from its start, whoever read the range.

Not covered: what happens to the batch (`ingest.py`); several machines.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from flywheel.config import Config
from flywheel.errors import FlywheelError, LakeError, ObjectUnread
from flywheel.formats.read import encoding_of, read_records
from flywheel.formats.reader import Source, fingerprint
from flywheel.formats.sniff import Reading, open_readings
from flywheel.formats.split import layout_of
from flywheel.ingest_source import ByteRange, SourceReport, read_source
from flywheel.records import Reject
from flywheel.store.held import Packed
from flywheel.store.lake_stage import PartWriter, rewrite
from flywheel.store.lake_staged import parts_of
from flywheel.store.landing import LandingBytes, uri_of
from flywheel.store.objects import ObjectStore, StoredObject, open_store
from flywheel.store.tables import Stamps
from flywheel.trajectory.redact import Redaction
from flywheel.workspace import Workspace

SHARED_FROM = 64 << 20  # bytes of a file that is worth sharing out
RANGES = 4  # a process: the last ones finish at about the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One object to read, or a range of one."""

    number: int
    stored: StoredObject
    part: ByteRange | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """The object is another one by now (None: it can't be read), so what was read of it counts for nothing."""

    listed: StoredObject
    now: StoredObject | None
    error: ObjectUnread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every process needs to know."""

    workspace: Workspace
    config: Config
    redaction: Redaction
    draft: Path
    stamps: Stamps


def read_all(
    job: Job, objects: Sequence[StoredObject], hold: Callable[[Packed], None], done: Callable[[StoredObject, int], None]
) -> Sequence[SourceReport | Replaced]:
    """Read the objects into the draft; a report each, in their order. `done(object, bytes)` after each task.

    Where objects changed under the readers only they are reported, and the draft is worthless.
    Errors: ObjectError where the store can't be reached, LakeError for a value that fits no column.
    """
    processes = job.config.ingest.processes
    store = open_store(job.workspace, job.config)
    tasks = list(_tasks(store, objects, job.config, processes))
    if processes == 1 or len(tasks) == 1:
        found = _here(job, store, tasks, hold, done)
    else:
        found = _shared(job, tasks, min(processes, len(tasks)), hold, done)
    changed = [item for item in found.values() if isinstance(item, Replaced)]
    if changed:
        return changed
    return _whole(job.draft, tasks, {number: item for number, item in found.items() if isinstance(item, SourceReport)})


def _here(
    job: Job,
    store: ObjectStore,
    tasks: Sequence[Task],
    hold: Callable[[Packed], None],
    done: Callable[[StoredObject, int], None],
) -> dict[int, SourceReport | Replaced]:
    found = {}
    with PartWriter(job.draft, "0", job.stamps) as writer:
        for task in tasks:
            found[task.number] = _read(job, store, task, writer, hold)
            done(task.stored, task.stored.size)
    return found


def _read(
    job: Job, store: ObjectStore, task: Task, writer: PartWriter, hold: Callable[[Packed], None]
) -> SourceReport | Replaced:
    try:
        with LandingBytes(store, task.stored) as source:
            if source.stored.sha256 != task.stored.sha256:
                return Replaced(task.stored, source.stored)
            return read_source(source, task.part, job.config.ingest.format, job.redaction, writer, hold)
    except ObjectUnread as error:
        return Replaced(task.stored, None, error)


def _tasks(store: ObjectStore, objects: Sequence[StoredObject], config: Config, processes: int) -> Iterator[Task]:
    number = 0
    for stored in objects:
        shared = processes > 1 and stored.size >= SHARED_FROM
        for part in (_ranges(store, stored, config, processes * RANGES) if shared else ()) or (None,):
            yield Task(number=number, stored=stored, part=part)
            number += 1


def _ranges(store: ObjectStore, stored: StoredObject, config: Config, wanted: int) -> list[ByteRange]:
    """The object cut at line starts; nothing where one process has to read all of it."""
    try:
        with LandingBytes(store, stored) as source:
            if source.compression is not None or encoding_of(next(source(), b"")) != "utf-8":
                return []
            opened = next(
                open_readings(source, Source(source_id=stored.sha256, uri=uri_of(stored)), config.ingest.format)
            )
            if not _is_shareable(opened) or layout_of(source()) != "lines":
                return []
            assert isinstance(opened, Reading)
            first = next((item.value for item in read_records(source, "record") if not isinstance(item, Reject)), None)
            cuts = [0, *(_line_start(source, stored.size * n // wanted) for n in range(1, wanted)), stored.size]
    except ObjectUnread:
        return []  # whoever reads it meets that again, and reports it
    return [
        ByteRange(
            number=number,
            start=start,
            stop=stop,
            reader=opened.reader.name,
            match=opened.match,
            first_record=fingerprint(first),
        )
        for number, (start, stop) in enumerate(pairwise(cuts))
        if start < stop
    ]


def _is_shareable(opened: Reading | Reject) -> bool:
    return (
        isinstance(opened, Reading)
        and opened.container == "json"
        and opened.match.unit == "record"
        and getattr(opened.reader, "independent", False)
    )


def _line_start(source: LandingBytes, at: int) -> int:
    for chunk in source.between(at, source.stored.size):
        found = chunk.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(chunk)
    return at


def _whole(draft: Path, tasks: Sequence[Task], found: dict[int, SourceReport]) -> list[SourceReport]:
    """One report an object; rows of ranges get their place in the whole source."""
    reports: dict[str, SourceReport] = {}
    for task in tasks:
        report, before = found[task.number], reports.get(task.stored.sha256)
        if before is None:
            reports[task.stored.sha256] = report
            continue
        for table in ("trajectory", "quarantine"):
            for path in parts_of(draft, table):
                if path.name == f"{table}.{_part_name(task)}.parquet":
                    rewrite(path, np.array([], np.int64), before.n_records)
        reports[task.stored.sha256] = _sum(before, report)
    return list(reports.values())


def _sum(before: SourceReport, more: SourceReport) -> SourceReport:
    losses = {kind: before.losses.get(kind, 0) + more.losses.get(kind, 0) for kind in {*before.losses, *more.losses}}
    (name, version, match, n), (*_, n_more) = before.readers[0], more.readers[0]
    return replace(
        before,
        readers=((name, version, match, n + n_more),),
        n_records=before.n_records + more.n_records,
        n_repaired=before.n_repaired + more.n_repaired,
        n_quarantined=before.n_quarantined + more.n_quarantined,
        losses=losses,
        starts=(*before.starts, before.n_records),
    )


def _part_name(task: Task) -> str:
    return f"range-{task.number}"


def _shared(
    job: Job,
    tasks: Sequence[Task],
    processes: int,
    hold: Callable[[Packed], None],
    done: Callable[[StoredObject, int], None],
) -> dict[int, SourceReport | Replaced]:
    """The tasks by that many processes, each of which takes the next one when it's ready."""
    context = multiprocessing.get_context("spawn")
    waiting, found = list(reversed(tasks)), {}
    workers = {}
    for number in range(processes):
        ours, theirs = context.Pipe()
        worker = context.Process(target=work, args=(job, number, theirs), daemon=True)
        worker.start()
        theirs.close()
        workers[ours] = worker
    try:
        open_ends = set(workers)
        while open_ends:
            for end in wait(list(open_ends)):
                assert isinstance(end, Connection)
                try:
                    said = end.recv()
                except EOFError as error:
                    workers[end].join()
                    raise LakeError(
                        f"a process that read for this batch ended with exit code {workers[end].exitcode}; nothing was "
                        "staged: run ingest again, with fewer `processes` if memory is short"
                    ) from error
                match said:
                    case BaseException():
                        raise said
                    case None:
                        end.send(waiting.pop() if waiting else None)
                    case "closed":
                        open_ends.discard(end)
                    case Task() as task, result:
                        found[task.number] = result
                        done(task.stored, task.part.stop - task.part.start if task.part else task.stored.size)
                    case _:
                        hold(said)
    finally:
        for end, worker in workers.items():
            worker.terminate() if open_ends else worker.join()
            end.close()
    return found


def work(job: Job, number: int, end: Connection) -> None:
    """What a reading process does: ask for a task, do it, say what came of it, until there is none."""
    _die_with_parent()
    try:
        store = open_store(job.workspace, job.config)
        with PartWriter(job.draft, str(number), job.stamps) as writer:
            for task in iter(lambda: _next(end), None):
                if task.part is None:
                    result = _read(job, store, task, writer, end.send)
                else:
                    with PartWriter(job.draft, _part_name(task), job.stamps) as own:
                        result = _read(job, store, task, own, end.send)
                end.send((task, result))
        end.send("closed")
    except FlywheelError as error:  # it is the parent's to raise
        end.send(error)


def _next(end: Connection) -> Task | None:
    end.send(None)
    task: Task | None = end.recv()
    return task


def _die_with_parent() -> None:
    """A killed parent can't end its children, so they watch it."""
    parent: Any = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
