"""Upkeep of the lake, behind `flywheel lake compact|vacuum|verify`: none of it changes what a snapshot shows.

compact   many small files of a table become few, published as a snapshot of its own; older snapshots keep their files
vacuum    deletes what no snapshot names: files of killed writes, and drafts (in staging, or one file's) that nobody
          finished in a day
verify    every problem that can be found, one sentence each; an empty list is a healthy lake

Not covered: erasure, and expiry of snapshots (every published snapshot stays readable).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import duckdb
import pyarrow as pa

from flywheel.errors import LakeError
from flywheel.ledger import Snapshot
from flywheel.records import content_id
from flywheel.store import artifacts, lake_publish, lake_views
from flywheel.store.lake import Lake
from flywheel.store.lake_read import SNAPSHOTS
from flywheel.store.tables import TABLES

WORTH_MERGING = 4  # files; compaction itself adds one to `batch` and one to `snapshot`, so two would never end
DRAFT_AGE_S = 86_400.0


def compact(lake: Lake) -> Snapshot | None:
    """Merge the small files of tables that have several; the snapshot that names the result (HEAD if none had)."""
    with lake.lease():
        lake_publish.roll_forward(lake)
        head = lake.head()
        changed = [table for table, version in _versions(head).items() if _merge(lake, table, version)]
        if head is None or not changed:
            return head
        batch_id = content_id("compact", head.snapshot_id)
        lake.stage(batch_id, {}, judged=False)
        reason = f"compaction of {', '.join(changed)}"
        return lake_publish.publish_staged(lake, batch_id, "accepted", reason, lake.turn_id, latest=True)


def vacuum(lake: Lake) -> list[str]:
    """Delete the files that no snapshot can show; what was deleted."""
    with lake.lease():
        lake_publish.roll_forward(lake)
        pinned: dict[str, set[int]] = {}
        for snapshot in lake.snapshots():
            for table, version in _versions(snapshot).items():
                pinned.setdefault(table, set()).add(version)
        deleted = [file for table in _tables(lake) for file in _vacuum_table(lake, table, pinned.get(table, set()))]
        for name in _half_written(lake):
            lake.location.delete(name)
            deleted.append(f"{lake.location.uri}/{name}")
        for path in _old_drafts(lake):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            deleted.append(str(path))
        return deleted


def verify(lake: Lake) -> list[str]:
    """Problems of the lake as sentences. Waits for a running publisher, so that its work isn't mistaken for a wreck."""
    with lake.lease():
        problems = [*_file_problems(lake), *_staging_problems(lake)]
        head = lake.head() if not problems else None
        return [*problems, *(_row_problems(lake, head) if head else ())]


def _versions(snapshot: Snapshot | None) -> dict[str, int]:
    versions: dict[str, int] = json.loads(snapshot.table_versions) if snapshot else {}
    return versions


def _tables(lake: Lake) -> list[str]:
    return [table for table in TABLES if lake.has_table(table)]


def _merge(lake: Lake, table: str, version: int) -> bool:
    """Compact one table; whether its newest version now has other files than the published one."""
    files = lake.files(table, version)
    if len(files) < WORTH_MERGING:
        return False
    delta = lake.table(table)
    properties = lake_publish.writer_properties(TABLES[table], _sample(lake, files[0]))
    delta.optimize.compact(writer_properties=properties)
    # Compared with what is published, not with what this call did: a killed compaction left its merge unpublished.
    return lake.files(table, delta.version()) != files


def _sample(lake: Lake, file: str) -> pa.Table:
    """The first rows of a file."""
    with duckdb.connect() as con:
        lake.location.attach(con)
        rows = f"FROM read_parquet({lake_views.quoted(file)}, hive_partitioning=false)"
        found: pa.Table = con.sql(f"{rows} LIMIT {lake_publish.SAMPLE_ROWS}").to_arrow_table()
        return found


def _vacuum_table(lake: Lake, table: str, pinned: set[int]) -> list[str]:
    delta = lake.table(table)

    def run(dry_run: bool) -> list[str]:
        found: list[str] = delta.vacuum(
            retention_hours=0,
            enforce_retention_duration=False,
            dry_run=dry_run,
            full=True,
            keep_versions=sorted(pinned),
        )
        return found

    # Asked first, because a vacuum of nothing would still commit two versions.
    place = lake.location.table(table)
    return [f"{place}/{name}" for name in run(dry_run=False)] if run(dry_run=True) else []


def _half_written(lake: Lake) -> list[str]:
    names = [*lake.location.names(""), *lake.location.names(SNAPSHOTS)]
    return [name for name in names if fnmatch(name.rsplit("/", 1)[-1], ".*.tmp")]


def _drafts(lake: Lake) -> Iterator[Path]:
    """Folders of staging in the making, and `write_atomic`'s files of every other artefact."""
    workspace = lake.workspace
    yield from sorted(workspace.staging.glob(".*")) if workspace.staging.is_dir() else ()
    for root in (workspace.data, workspace.models):
        for folder, folders, files in os.walk(root):  # which doesn't mind that others delete what it's about to see
            place = Path(folder)
            kept_by_others = workspace.lake == place or (place.parent == workspace.staging and place.name[0] == ".")
            folders[:] = [] if kept_by_others else sorted(folders)
            yield from (place / name for name in sorted(files) if fnmatch(name, ".*.tmp") and not kept_by_others)


def _old_drafts(lake: Lake) -> list[Path]:
    """Staging takes no lease, so only age tells a dead draft from one being written."""
    found = []
    for path in _drafts(lake):
        with suppress(FileNotFoundError):  # it has just become what it was to be
            if time.time() - path.stat().st_mtime > DRAFT_AGE_S:
                found.append(path)
    return found


def _file_problems(lake: Lake) -> Iterator[str]:
    try:
        head, snapshots = lake.head(), lake.snapshots()
    except LakeError as error:
        yield str(error)
        return
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    there: dict[str, set[str]] = {}
    seen: set[tuple[str, int]] = set()
    for snapshot in snapshots:
        if snapshot.parent_id and snapshot.parent_id not in ids:
            yield f"snapshot {snapshot.snapshot_id} names a parent {snapshot.parent_id} that has no record"
        for table, version in _versions(snapshot).items():
            if (table, version) in seen:
                continue
            seen.add((table, version))
            try:
                files = lake.files(table, version)
            except LakeError as error:
                yield f"snapshot {snapshot.snapshot_id}: {error}"
                continue
            if table not in there:
                there[table] = {name.rsplit("/", 1)[1] for name in lake.location.names(table)}
            for file in (file for file in files if file.rsplit("/", 1)[1] not in there[table]):
                yield f"snapshot {snapshot.snapshot_id}: {file} of table {table} is missing; restore it from a backup"
    if head and not lake_views.is_fresh(lake.workspace, lake.location, head):
        yield f"{lake.workspace.lake_file} doesn't show {head.snapshot_id}; `flywheel sql` or any publish rewrites it"


def _staging_problems(lake: Lake) -> Iterator[str]:
    is_publishing = lake.location.read(lake_publish.JOURNAL) is not None
    if is_publishing:
        journal = f"{lake.location.uri}/{lake_publish.JOURNAL}"
        yield f"{journal}: a publisher was killed half-way; the next publish finishes it"
    for path in _old_drafts(lake):
        yield f"{path} was never finished; `flywheel lake vacuum` removes it"
    for path in sorted(lake.workspace.staging.glob("[!.]*")) if lake.workspace.staging.is_dir() else ():
        if not artifacts.is_finished(path):
            yield f"{path} has no manifest, so it is no batch; remove it"
        elif not is_publishing and lake.published(path.name):
            yield f"{path} is published already; publishing it again removes it"


def _row_problems(lake: Lake, head: Snapshot) -> Iterator[str]:
    with lake.connect(head.snapshot_id) as con:
        for table, spec in TABLES.items():
            keys = ", ".join(spec.keys)
            sql = f"SELECT {keys}, count(*) FROM {lake_views.base(table)} GROUP BY {keys} HAVING count(*) > 1"
            doubled = con.sql(sql).fetchall()
            if doubled:
                yield f"table {table}: {len(doubled)} rows are doubled, the first with ({keys}) = {doubled[0][:-1]}"
        for table in ("step_all", "tool_call_all"):
            sql = f"SELECT count(*) FROM {table} ANTI JOIN trajectory_all USING (trajectory_id, batch_id)"
            ((orphans,),) = con.sql(sql).fetchall()
            if orphans:
                yield f"{table}: {orphans} rows have no trajectory in their batch"
