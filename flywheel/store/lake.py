"""The lake: Delta tables that one publisher writes and everybody reads as plain Parquet through DuckDB.

    stage      rows -> data/staging/<batch>/<table>.parquet, its manifest last (`lake_stage.py`: more than memory holds)
    publish    a staged batch -> the tables, then one new snapshot of all of them; or `reject`, and it stays staged
    connect    SQL over the newest snapshot, or over any older one by its id

A batch is named by its inputs, so staging or publishing it again is a no-op. Views: `lake_views.py`; reading:
`lake_read.py`; crash safety, revisions and what counts as the same row: `lake_publish.py`; upkeep: `lake_maintain.py`.
Not covered: judging a batch (`flywheel/validate.py`), erasure (`lake_erase.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

import flywheel
from flywheel.errors import ArtifactError, LakeError
from flywheel.ledger import Batch, Snapshot
from flywheel.records import canonical_json, content_id
from flywheel.store import artifacts, lake_publish
from flywheel.store.lake_read import LakeReader
from flywheel.store.lake_staged import parts_of, row_count
from flywheel.store.tables import TABLES, Stamps, spec_of, stamped, to_arrow
from flywheel.workspace import Workspace

PUBLISHED_STATES = ("accepted", "forced")
_FAILED = "failed.json"  # beside the manifest of a rejected batch
_TO_JUDGE, _OWN = "batch", "ledger"  # what a manifest calls a batch that waits for `validate`, and any other
_PUBLISHERS_OWN = ("batch", "snapshot")
_FOLLOWERS = ("step", "tool_call")  # visible only through a trajectory of the same batch


class Lake(LakeReader):
    """The lake of a workspace, for those who write it too.

    Rows of the ledger are stamped with `turn_id`: the one given, else that of the turn in progress, if there is one.
    """

    def __init__(self, workspace: Workspace, turn_id: str | None = None, *, lease_s: float = 300.0) -> None:
        super().__init__(workspace, lease_s=lease_s)
        self._turn_id = turn_id

    @property
    def turn_id(self) -> str | None:
        """The turn that whatever is written now belongs to."""
        return self._turn_id or _turn_in_progress(self.workspace)

    def stage(
        self,
        batch_id: str,
        tables: Mapping[str, Sequence[Any]],
        objects: Sequence[str] = (),
        overwrite: bool = False,
        judged: bool = True,
    ) -> None:
        """Write a batch where `validate` judges it; nothing of it is in the lake yet. `objects`: sha256 of its sources.

        With `judged` False no `validate` touches it: whoever stages it publishes it at once.
        A no-op if the batch is staged (unless `overwrite`) or published already. Errors: LakeError for a value that
        doesn't fit its column, two different rows under one key, or steps without their trajectory.
        """
        own = [table for table in _PUBLISHERS_OWN if table in tables]
        if own:
            raise LakeError(f"batch {batch_id}: the publisher itself writes the table {own[0]}; leave it out")
        self._stage(batch_id, tables, objects, overwrite, _TO_JUDGE if judged else _OWN)

    def staged(self) -> list[str]:
        """Batches that wait for a verdict: staged, not rejected, not published. Sorted."""
        head, failed = self.head(), self.failed()
        done = (head.batches or ()) if head else ()  # a publisher killed at its last step leaves the folder behind
        return [batch for batch in self._to_judge() if batch not in done and batch not in failed]

    def failed(self) -> dict[str, str]:
        """Rejected batches that still lie in staging, with the reason of each."""
        found = {}
        for batch in self._to_judge():
            with suppress(FileNotFoundError):  # not marked; or somebody has just published it
                mark = (self.workspace.staging / batch / _FAILED).read_bytes()
                found[batch] = json.loads(mark)["reason"]
        return found

    def staged_objects(self) -> set[str]:
        """sha256 of the objects whose batch waits for its verdict, or failed and waits to be dealt with."""
        return {sha256 for manifest in self._to_judge().values() for sha256 in manifest.inputs["objects"]}

    def in_staging(self) -> dict[str, artifacts.Manifest]:
        """Every finished batch in staging with its manifest, whatever becomes of it; by its id, sorted."""
        found = {}
        folders = self.workspace.staging.glob("[!.]*") if self.workspace.staging.is_dir() else ()
        for folder in sorted(folders):
            try:
                found[folder.name] = artifacts.load(folder)
            except (ArtifactError, FileNotFoundError):  # unfinished; or somebody has just published it
                if artifacts.is_finished(folder):
                    raise
        return found

    @contextmanager
    def deciding(self, batch_id: str) -> Iterator[bool]:
        """The right to judge a staged batch, and whether that is still to be done: somebody else may have had it.

        Waits for whoever has it; a killed holder loses it with its process.
        """
        staging = self.workspace.staging
        staging.mkdir(parents=True, exist_ok=True)
        with FileLock(staging / f".{batch_id}.lock") as lock:
            journal = self.location.read(lake_publish.JOURNAL)
            if journal is not None and json.loads(journal)["batch_id"] == batch_id:  # its publisher was killed
                with self.lease():
                    lake_publish.roll_forward(self)
            yield batch_id in self.staged()
            Path(lock.lock_file).unlink(missing_ok=True)

    def staged_rows(self, batch_id: str) -> dict[str, pa.Table]:
        """The rows of a staged batch, by table, stamps included. Errors: ArtifactError if it isn't staged."""
        folder = self.staged_folder(batch_id)
        found = {table: parts_of(folder, table) for table in TABLES}
        return {
            table: pa.concat_tables(map(pq.read_table, files)).combine_chunks()
            for table, files in found.items()
            if files
        }

    def staged_folder(self, batch_id: str) -> Path:
        """Where the files of a staged batch lie. Errors: ArtifactError if it isn't staged."""
        folder = self.workspace.staging / batch_id
        artifacts.load(folder)
        return folder

    def reject(self, batch_id: str, reason: str) -> None:
        """Name a staged batch as failed: it stays staged, and the `batch` table says so. Errors: ArtifactError."""
        folder = self.workspace.staging / batch_id
        manifest = artifacts.load(folder)
        rows = manifest.summary["rows"]
        row = Batch(
            batch_id=batch_id,
            state="failed",
            objects=tuple(manifest.inputs["objects"]),
            n_trajectories=rows.get("trajectory", 0),
            n_quarantined=rows.get("quarantine", 0),
            reason=reason,
        )
        event = content_id("reject", batch_id, reason)
        self._stage(event, {"batch": [row]}, (), False, _OWN)
        self.publish(event)
        artifacts.write_atomic(folder / _FAILED, canonical_json({"reason": reason}).encode())

    def publish(
        self,
        batch_id: str,
        tables: Mapping[str, Sequence[Any]] | None = None,
        state: str = "accepted",
        reason: str | None = None,
    ) -> Snapshot:
        """Append a batch (staged before, or given as `tables`) and publish the snapshot that has it.

        Publishing it again returns the snapshot that has it. `state` is accepted, or forced with a `reason`.
        Errors: LakeError if the batch is unknown, or another publisher holds the lease for too long.
        """
        if state not in PUBLISHED_STATES:
            raise LakeError(f"batch {batch_id} can be published as {' or '.join(PUBLISHED_STATES)}, not as {state!r}")
        if tables is not None:
            self.stage(batch_id, tables, judged=False)
        with self.lease():
            lake_publish.roll_forward(self)
            found = self.published(batch_id)
            if found:
                lake_publish.drop_staged(self, batch_id)
                return found
            if not artifacts.is_finished(self.workspace.staging / batch_id):
                raise LakeError(f"batch {batch_id} is neither staged nor published; stage it first")
            return lake_publish.publish_staged(self, batch_id, state, reason, self.turn_id)

    def _to_judge(self) -> dict[str, artifacts.Manifest]:
        return {batch: manifest for batch, manifest in self.in_staging().items() if manifest.kind == _TO_JUDGE}

    def _stage(
        self, batch_id: str, tables: Mapping[str, Sequence[Any]], objects: Sequence[str], overwrite: bool, kind: str
    ) -> None:
        folder = self.workspace.staging / batch_id
        if (artifacts.is_finished(folder) and not overwrite) or self.published(batch_id):
            return
        _check_followers(batch_id, tables)
        data = {table: to_arrow(table, _distinct(batch_id, table, rows)) for table, rows in tables.items()}
        draft, stamps = self.draft(batch_id), self.stamps(batch_id)
        for table, rows in data.items():
            _write(draft / f"{table}.parquet", stamped(table, rows, stamps))
        self.finish_draft(batch_id, draft, {"objects": list(objects)}, overwrite, kind)

    def stamps(self, batch_id: str) -> Stamps:
        """What the rows of a batch are stamped with that is staged now."""
        now = datetime.now(UTC)
        return Stamps(batch_id=batch_id, turn_id=self.turn_id, created_at=now, code_version=flywheel.__version__)

    def draft(self, batch_id: str) -> Path:
        """A new folder to write a batch in (`lake_stage.PartWriter`); `finish_draft` makes it the staged one.

        A killed writer's stays behind until `vacuum` finds it a day old.
        """
        draft = self.workspace.staging / f".{batch_id}.{os.urandom(4).hex()}"
        draft.mkdir(parents=True)
        return draft

    def finish_draft(
        self, batch_id: str, draft: Path, inputs: Mapping[str, Any], overwrite: bool = False, kind: str = _TO_JUDGE
    ) -> dict[str, int]:
        """Finish a draft as the staged batch; `inputs` has the `objects` it was made from. Gives its rows by table."""
        folder = self.workspace.staging / batch_id
        counts = {table: row_count(parts_of(draft, table)) for table in TABLES if parts_of(draft, table)}
        artifacts.finish(draft, kind, batch_id, inputs, {"rows": counts})
        if overwrite:
            with self.lease():  # nobody may be publishing the folder that is replaced
                lake_publish.roll_forward(self)
                lake_publish.drop_staged(self, batch_id)
                draft.rename(folder)
            return counts
        while draft.is_dir():
            if artifacts.is_finished(folder) or self.published(batch_id):
                shutil.rmtree(draft)  # somebody staged the same batch meanwhile: same inputs, same rows
                continue
            try:
                draft.rename(folder)
            except OSError:  # somebody was faster by a moment, and may have published it since
                if folder.exists() and not artifacts.is_finished(folder):
                    raise
        return counts


def _turn_in_progress(workspace: Workspace) -> str | None:
    try:
        journal = json.loads(workspace.current_turn.read_bytes())
    except FileNotFoundError:
        return None
    turn_id: str = journal["turn_id"]
    return turn_id


def _write(path: Path, rows: pa.Table) -> None:
    """Parquet in row groups of about 64 MiB, whatever the rows weigh."""
    group = max(1, int((64 << 20) * rows.num_rows / max(rows.nbytes, 1)))
    pq.write_table(rows, path, compression="zstd", row_group_size=group)


def _distinct(batch_id: str, table: str, rows: Sequence[Any]) -> list[Any]:
    """The rows without exact repeats. Errors: LakeError if two rows of one key differ: one would be lost."""
    spec = spec_of(table)
    keys = ("trajectory_id",) if table == "trajectory" else [key for key in spec.keys if key in spec.columns]
    seen: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        key = tuple(getattr(row, name) for name in keys)
        if seen.setdefault(key, row) != row:
            raise LakeError(
                f"batch {batch_id}, table {table}: two different rows have {', '.join(keys)} = {key}; "
                f"merge them or give them ids of their own"
            )
    return list(seen.values())


def _check_followers(batch_id: str, tables: Mapping[str, Sequence[Any]]) -> None:
    heads = {row.trajectory_id for row in tables.get("trajectory", ())}
    for table in _FOLLOWERS:
        for row in tables.get(table, ()):
            if row.trajectory_id not in heads:
                raise LakeError(
                    f"batch {batch_id}: a {table} of trajectory {row.trajectory_id} comes without its trajectory, "
                    f"so no view would show it; put both into one batch"
                )
