"""Erase: everything one user said leaves the lake, the landing zone, staging and the curricula; a tombstone stays.

    flywheel lake erase --user ID [--dry-run]

The id is the application's own; the lake knows only its keyed hash. Rows go from every version of every table (see
`store/lake_erase.py`). Of a landing object the user's records are cut out; where records have no place of their own
(Parquet, archives, one conversation a file) the whole object goes, and the result says so. Staged batches that hold
the user are dropped and read again from what is left. Curricula lose their rows. Whatever used them is marked
`not_reproducible`: snapshots, curricula, runs and policy versions, in the tombstone.

A killed erasure is finished by the next call. Not covered: weights that were trained on the rows, and bytes of promoted
curricula in DVC's cache and remote: the result names the versions, `dvc gc` removes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from flywheel.config import Config
from flywheel.errors import LakeError
from flywheel.formats.cut import find_records, without
from flywheel.formats.reader import Source
from flywheel.progress import Progress, silent
from flywheel.store import lake_erase
from flywheel.store.curricula import erase_rows
from flywheel.store.keys import redaction_key
from flywheel.store.lake import Lake
from flywheel.store.lake_erase import Found
from flywheel.store.lake_publish import drop_staged
from flywheel.store.landing import LandingBytes, packed_like
from flywheel.store.objects import ObjectStore, open_store
from flywheel.trajectory.redact import Redactor
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseResult:
    """What was removed, and what can't be reproduced any more."""

    user: str  # the keyed hash: the id itself is written nowhere
    trajectories: int
    rows: dict[str, int]  # removed from the newest version, by table
    objects_cut: tuple[str, ...]  # keys of landing objects that lost records
    objects_removed: tuple[str, ...]  # and of those that had to go whole
    staged_dropped: tuple[str, ...]
    curricula: tuple[str, ...]
    runs: tuple[str, ...]
    policy_versions: tuple[str, ...]
    snapshot: str | None
    dry_run: bool = False


def erase(
    workspace: Workspace, config: Config, *, user: str, dry_run: bool = False, progress: Progress = silent
) -> EraseResult:
    """Erase one user. Errors: LakeError for a user that neither the lake nor a staged batch knows."""
    lake = Lake(workspace)
    user_hash = Redactor(redaction_key(workspace)).user(user)
    found = lake_erase.begun(lake) or lake_erase.find(lake, user_hash, datetime.now(UTC))
    staged, found = _staged(lake, found)
    if found.user_hash == user_hash and not found.trajectories and not staged:
        raise LakeError(f"nothing of user {user!r} ({user_hash}) is in the lake or staged; check the id and the key")
    if dry_run:
        return _result(found, {}, (), (), staged, None, dry_run=True)
    store = open_store(workspace, config)
    progress(0, 4, "landing objects")
    cut, removed, found = _landing(store, found, user, config.ingest.format)
    lake_erase.begin(lake, found)
    progress(1, 4, "tables")
    snapshot, rows = lake_erase.erase(lake, found)
    progress(2, 4, "staged batches")
    with lake.lease():
        for batch in staged:
            drop_staged(lake, batch)
    progress(3, 4, "curricula")
    for curriculum in found.curricula:
        erase_rows(workspace.curricula / curriculum, found.curriculum_rows, f"rows of {found.user_hash} were erased")
    lake_erase.finish(lake)
    progress(4, 4, "erased")
    return _result(found, rows, cut, removed, staged, snapshot.snapshot_id)


def _names(source: LandingBytes, user: bytes) -> bool:
    """Whether the bytes, unpacked, hold the user's id."""
    tail = b""
    for chunk in source():
        if user in tail + chunk:
            return True
        tail = chunk[-len(user) :]
    return False


def _result(
    found: Found,
    rows: dict[str, int],
    cut: Sequence[str],
    removed: Sequence[str],
    staged: Sequence[str],
    snapshot: str | None,
    dry_run: bool = False,
) -> EraseResult:
    return EraseResult(
        user=found.user_hash,
        trajectories=len(found.trajectories),
        rows=rows,
        objects_cut=tuple(cut),
        objects_removed=tuple(removed),
        staged_dropped=tuple(staged),
        curricula=found.curricula,
        runs=found.runs,
        policy_versions=found.policy_versions,
        snapshot=snapshot,
        dry_run=dry_run,
    )


def _staged(lake: Lake, found: Found) -> tuple[list[str], Found]:
    """Batches in staging that hold the user or a trajectory that is being erased, and what they add to it."""
    ids, sources = set(found.trajectories), set(found.sources)
    waiting = []
    for batch in lake.in_staging():
        heads = lake.staged_rows(batch).get("trajectory")
        if heads is None:
            continue
        columns = (heads[name].to_pylist() for name in ("user_id", "trajectory_id", "source_id"))
        hit = [row for row in zip(*columns, strict=True) if row[0] == found.user_hash or row[1] in ids]
        if hit:
            waiting.append(batch)
            ids |= {this for _, this, _ in hit}
            sources |= {source for _, _, source in hit}
    unread = tuple(sorted(sources - set(found.sources)))
    return waiting, replace(found, trajectories=tuple(sorted(ids)), unread=unread)


def _landing(store: ObjectStore, found: Found, user: str, format_name: str) -> tuple[list[str], list[str], Found]:
    """Cut the user's records out of the landing objects; what was cut, what was removed whole, and the journal."""
    cut_keys, removed, new, quarantined = [], [], list(found.objects), list(found.quarantined)
    for stored in store.list():
        place = Source(source_id=stored.sha256, uri=stored.key)
        with LandingBytes(store, stored) as source:
            # Other exports of the same traces are in no row of the lake: what names the user is looked into as well.
            if stored.sha256 not in (*found.sources, *found.unread) and not _names(source, user.encode()):
                continue
            cut = find_records(source, place, set(found.trajectories), (user.encode(),), format_name)
            if not cut.ranges and not cut.whole:
                continue  # somebody else's records speak of the id
            quarantined += [(stored.sha256, at) for at, _ in cut.refused]
            left = without(source, cut)
            packed = None if left is None else packed_like(source, left)
        if packed is None:
            store.delete(stored.key)
            removed.append(stored.key)
        else:
            replaced = store.put(stored.key, packed)
            if stored.sha256 not in found.unread:  # the rest of it is in the lake; an unread one is still to be read
                new.append(replaced.sha256)
            cut_keys.append(stored.key)
    return cut_keys, removed, replace(found, objects=tuple(new), quarantined=tuple(quarantined))
