"""A lake on a real S3 server: what holds on disk holds there, and what only a network can do is survived."""

from __future__ import annotations

import json
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lake_rows import counts, rows_of
from s3_server import S3Folder

from flywheel.errors import LakeError
from flywheel.records import content_id
from flywheel.store import lake_erase, lake_publish
from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import compact, vacuum, verify
from flywheel.store.lake_s3 import LEASE, BucketPlace
from flywheel.workspace import CONFIG_NAME, Workspace


def workspace_at(root: Path, s3: S3Folder) -> Workspace:
    """A workspace on some machine whose lake lies in the shared prefix."""
    (root / "data").mkdir(parents=True)
    (root / CONFIG_NAME).write_text(f'[lake]\nuri = "{s3.url}lake"\n', encoding="utf-8")
    return Workspace(root)


@pytest.fixture
def lake(tmp_path: Path, s3: S3Folder) -> Lake:
    """An empty lake on S3."""
    return Lake(workspace_at(tmp_path / "one", s3))


def test_what_holds_on_disk_holds_here(lake: Lake, tmp_path: Path, s3: S3Folder) -> None:
    lake.publish("b1", rows_of("a", "b"))
    lake.publish("b2", rows_of("c"))
    lake.publish("b1", rows_of("a", "b"))
    revised = lake.publish("b3", rows_of("a", content="v2"))
    assert counts(lake) == {
        "trajectory_all": 4, "step_all": 12, "tool_call_all": 4, "outcome": 3, "batch_all": 3, "snapshot": 3,
    }  # fmt: skip
    other = Lake(workspace_at(tmp_path / "two", s3))  # another machine
    sql = "SELECT trajectory_id, revision FROM trajectory ORDER BY ALL"
    newest = [{"trajectory_id": name, "revision": int(name == "a")} for name in "abc"]
    assert other.query(sql) == lake.query(sql) == newest
    first = content_id("snapshot", None, "b1")
    assert [row["trajectory_id"] for row in other.query(sql, snapshot=first)] == ["a", "b"]
    assert other.head() == revised
    assert verify(lake) == []
    assert not (lake.workspace.data / "lake").exists(), "nothing of the lake is on the machine"


def test_ids_are_those_of_a_lake_on_disk(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / CONFIG_NAME).touch()
    on_disk = Lake(Workspace(tmp_path / "disk"))
    for batch in ("b1", "b2"):
        here, there = lake.publish(batch, rows_of(batch)), on_disk.publish(batch, rows_of(batch))
        assert here == there


def test_upkeep(lake: Lake) -> None:
    for n in range(5):
        lake.publish(f"b{n}", rows_of(f"t{n}"))
    before = lake.query("FROM step ORDER BY ALL")
    compact(lake)
    vacuum(lake)
    assert lake.query("FROM step ORDER BY ALL") == before
    assert verify(lake) == []


def test_erasure(lake: Lake) -> None:
    from dataclasses import replace

    rows = rows_of("mine", "other", content="the blue door")
    rows["trajectory"] = [
        replace(t, user_id="user-1" if t.trajectory_id == "mine" else "user-2") for t in rows["trajectory"]
    ]
    old = lake.publish("b1", rows)
    found = lake_erase.find(lake, "user-1", datetime(2026, 1, 1, tzinfo=UTC))
    lake_erase.begin(lake, found)
    lake_erase.erase(lake, found)
    lake_erase.finish(lake)
    for snapshot in (None, old.snapshot_id):
        assert lake.query("SELECT DISTINCT trajectory_id AS id FROM step_all", snapshot=snapshot) == [{"id": "other"}]
    assert verify(lake) == []


def test_another_machine_finishes_what_a_dead_one_began(lake: Lake, tmp_path: Path, s3: S3Folder) -> None:
    """The staged batch was on the dead machine; its copy lies beside the lake."""
    lake.publish("b0", rows_of("z"))

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_publish, "write_snapshot", dies)
        with pytest.raises(Killed):
            lake.publish("b1", rows_of("a"))
    shutil.rmtree(lake.workspace.root)
    other = Lake(workspace_at(tmp_path / "two", s3))
    assert [row["id"] for row in other.query("SELECT trajectory_id AS id FROM trajectory")] == ["z"]
    other.publish("b2", rows_of("b"))
    names = [row["id"] for row in other.query("SELECT trajectory_id AS id FROM trajectory ORDER BY id")]
    assert names == ["a", "b", "z"]
    assert other.location.names("staged/b1") == []
    assert verify(other) == []


def test_publishers_on_several_machines_lose_nothing(tmp_path: Path, s3: S3Folder) -> None:
    todo = {f"b{n}": rows_of(f"t{n}a", f"t{n}b") for n in range(4)}
    errors: list[Exception] = []

    def publish(machine: int) -> None:
        try:
            lake = Lake(workspace_at(tmp_path / f"m{machine}", s3))
            for batch in sorted(todo, reverse=bool(machine % 2)):
                lake.publish(batch, todo[batch])
        except LakeError as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    lake = Lake(workspace_at(tmp_path / "reader", s3))
    assert counts(lake)["trajectory_all"] == 8
    assert counts(lake)["batch_all"] == 4
    assert verify(lake) == []


class TestTheLease:
    """One holder at a time, and a dead one's is taken over without comparing clocks."""

    def place(self, lake: Lake, ttl: float) -> BucketPlace:
        assert isinstance(lake.location, BucketPlace)
        return BucketPlace(lake.location.place, lake.location.client, lake.location.credentials, ttl=ttl)

    def test_a_held_one_is_waited_for_in_vain(self, lake: Lake) -> None:
        first, second = self.place(lake, 1.0), self.place(lake, 1.0)
        with first.lease(1.0), pytest.raises(LakeError, match="was held for 2 s"), second.lease(2.0):
            pass  # the holder renews it, so it never looks dead
        with second.lease(1.0):
            pass

    def test_a_dead_holders_is_taken_over(self, lake: Lake) -> None:
        dead, second = self.place(lake, 60.0), self.place(lake, 0.5)
        dead._acquire("somebody who dies", 1.0)
        began = time.monotonic()
        with second.lease(10.0):
            assert time.monotonic() - began > 0.5
            found = second._get(second._key(LEASE))
            assert found is not None
            assert json.loads(found[0])["owner"] != "somebody who dies"

    def test_who_lost_it_can_t_move_head(self, lake: Lake, tmp_path: Path, s3: S3Folder) -> None:
        lake.publish("b1", rows_of("a"))
        sleeper, quick = self.place(lake, 60.0), self.place(lake, 60.0)
        assert sleeper.read("HEAD") == quick.read("HEAD")
        quick.write("HEAD", b"snapshot-of-the-quick\n")
        with pytest.raises(LakeError, match="changed by another publisher"):
            sleeper.write("HEAD", b"snapshot-of-the-sleeper\n")
        assert quick.read("HEAD") == b"snapshot-of-the-quick\n"
