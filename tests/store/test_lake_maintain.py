"""Upkeep: fewer files, no rubbish, every snapshot as it was; and `verify` finds what is broken."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from lake_rows import batches, counts, rows_of

from flywheel.errors import LakeError
from flywheel.ledger import Snapshot
from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import compact, vacuum, verify


@pytest.fixture
def published(lake: Lake) -> list[Snapshot]:
    """Five snapshots, the last a revision of a trajectory of the first."""
    todo = {**batches(4), "batch-4": rows_of("t-0-0", content="v2")}
    return [lake.publish(batch_id, rows) for batch_id, rows in todo.items()]


def contents(lake: Lake, snapshot: Snapshot) -> list[list[tuple[object, ...]]]:
    tables = ("trajectory", "step", "tool_call", "outcome", "snapshot")
    with lake.connect(snapshot.snapshot_id) as con:
        return [con.sql(f"FROM {table} ORDER BY ALL").fetchall() for table in tables]


def test_every_snapshot_survives_compaction_and_vacuum(lake: Lake, published: list[Snapshot]) -> None:
    before = [contents(lake, snapshot) for snapshot in published]
    head = compact(lake)
    assert head is not None and head == lake.head() and head.parent_id == published[-1].snapshot_id
    assert len(lake.files("step", DeltaTable(lake.workspace.lake / "step").version())) == 1
    vacuum(lake)
    fresh = Lake(lake.workspace)
    assert [contents(fresh, snapshot) for snapshot in published] == before
    assert contents(fresh, head)[:4] == before[-1][:4]
    assert fresh.query("SELECT count(*) AS n FROM step WHERE trajectory_id = 't-0-0'") == [{"n": 3}]
    assert verify(fresh) == []
    later = fresh.publish("batch-5", rows_of("z"))
    assert counts(fresh)["trajectory_all"] == 18 and later.parent_id == head.snapshot_id


def test_there_is_an_end_to_compacting(lake: Lake, published: list[Snapshot]) -> None:
    head = compact(lake)
    assert compact(lake) == head
    assert compact(Lake(lake.workspace)) == head


def test_a_compaction_killed_before_its_snapshot_is_published_by_the_next(
    lake: Lake, published: list[Snapshot]
) -> None:
    DeltaTable(lake.workspace.lake / "step").optimize.compact()  # what a killed compaction leaves behind
    assert verify(lake) == []
    head = compact(lake)
    assert head is not None and head != published[-1]
    assert counts(lake)["step_all"] == 51 and verify(lake) == []


def test_an_empty_lake_needs_no_upkeep(lake: Lake) -> None:
    assert compact(lake) is None and vacuum(lake) == [] and verify(lake) == []


def test_vacuum_removes_leftovers_and_nothing_else(lake: Lake, published: list[Snapshot]) -> None:
    assert vacuum(lake) == []
    orphan = lake.workspace.lake / "step" / "part-00000-killed.zstd.parquet"
    orphan.write_bytes(b"half a file")
    half = lake.workspace.lake / ".HEAD.0badcafe.tmp"
    half.write_bytes(b"snap")
    old, new = (lake.workspace.staging / name for name in (".b9.old", ".b9.new"))
    for draft in (old, new):
        draft.mkdir()
    old_file, new_file = (lake.workspace.evals / f".report.json.{name}.tmp" for name in ("old", "new"))
    lake.workspace.evals.mkdir(parents=True)
    for draft in (old_file, new_file):
        draft.write_bytes(b"half a report")
    two_days_ago = time.time() - 2 * 86_400
    for draft in (old, old_file):
        os.utime(draft, (two_days_ago, two_days_ago))
        assert any(str(draft) in problem for problem in verify(lake))
    assert set(vacuum(lake)) == {str(path) for path in (orphan, half, old, old_file)}
    assert new.is_dir() and new_file.is_file() and not orphan.exists()
    assert verify(lake) == [] and counts(lake)["step_all"] == 51


class TestVerify:
    """Each kind of damage is found and named."""

    def test_a_missing_file(self, lake: Lake, published: list[Snapshot]) -> None:
        (file,) = lake.files("step", 1)
        Path(file).unlink()
        problems = verify(Lake(lake.workspace))
        assert [p for p in problems if Path(file).name in p and "table step is missing" in p]
        assert len(problems) == len(published)  # every later version still has that file

    def test_a_version_that_is_gone(self, lake: Lake, published: list[Snapshot]) -> None:
        shutil.rmtree(lake.workspace.lake / "outcome")
        problems = verify(Lake(lake.workspace))
        assert problems and all("outcome" in problem for problem in problems)

    def test_a_missing_record(self, lake: Lake, published: list[Snapshot]) -> None:
        (lake.workspace.lake / "snapshots" / f"{published[1].snapshot_id}.json").unlink()
        assert any(f"a parent {published[1].snapshot_id} that has no record" in p for p in verify(lake))

    def test_a_head_that_points_nowhere(self, lake: Lake, published: list[Snapshot]) -> None:
        (lake.workspace.lake / "HEAD").write_text("snapshot-none\n")
        assert any("no snapshot snapshot-none" in problem for problem in verify(lake))

    def test_a_broken_record(self, lake: Lake, published: list[Snapshot]) -> None:
        (lake.workspace.lake / "snapshots" / f"{published[1].snapshot_id}.json").write_text("{")
        assert any("is no snapshot record" in problem for problem in verify(lake))

    @pytest.mark.parametrize(("table", "sentence"), [("outcome", "1 rows are doubled"), ("step", "have no trajectory")])
    def test_rows_that_a_stranger_wrote(self, lake: Lake, table: str, sentence: str) -> None:
        lake.publish("b1", rows_of("a"))
        delta = DeltaTable(lake.workspace.lake / table)
        rows = pa.table(delta.to_pyarrow_table()).slice(0, 1)
        if table == "step":
            rows = rows.set_column(rows.schema.get_field_index("trajectory_id"), "trajectory_id", pa.array(["ghost"]))
        write_deltalake(delta, rows, mode="append")
        assert verify(lake) == []  # no snapshot shows them yet
        lake.publish("b2", {table: [], **rows_of("b")})
        assert any(sentence in problem for problem in verify(lake))

    def test_a_folder_in_staging_that_is_no_batch(self, lake: Lake) -> None:
        (lake.workspace.staging / "by-hand").mkdir(parents=True)
        assert any("by-hand has no manifest" in problem for problem in verify(lake))

    def test_a_published_batch_that_still_lies_in_staging(self, lake: Lake) -> None:
        lake.stage("b1", rows_of("a"))
        folder, copy = lake.workspace.staging / "b1", lake.workspace.root / "copy"
        shutil.copytree(folder, copy)
        lake.publish("b1")
        shutil.copytree(copy, folder)
        assert any("is published already" in problem for problem in verify(lake))
        assert lake.staged() == []
        lake.publish("b1")
        assert not folder.exists() and verify(lake) == []

    def test_a_file_of_views_that_is_gone(self, lake: Lake, published: list[Snapshot]) -> None:
        lake.workspace.lake_file.unlink()
        assert any("lake.duckdb doesn't show" in problem for problem in verify(lake))
        lake.connect().close()
        assert verify(lake) == []


def test_a_vanished_version_is_a_sentence(lake: Lake, published: list[Snapshot], tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"version 99 of .*step can't be opened"):
        lake.files("step", 99)
