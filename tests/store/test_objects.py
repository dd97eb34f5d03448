"""Landing objects: whole ones only, by key, with their hashes."""

from __future__ import annotations

import hashlib
import os
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from flywheel.errors import ObjectGone, WorkspaceError
from flywheel.store.objects import FolderStore, Notes, StoredObject
from flywheel.store.objects_index import ObjectIndex


def test_objects_come_back_by_key_in_order(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "landing")
    assert store.list() == []
    data = {"b.jsonl": b"2\n" * 100_000, "a/deep/ünïcode name.json": b"", "a.jsonl": b"1"}
    put = [store.put(key, value) for key, value in data.items()]
    assert store.list() == sorted(put, key=lambda stored: stored.key)
    assert store.list()[0] == StoredObject("a.jsonl", 1, hashlib.sha256(b"1").hexdigest())
    for key, value in data.items():
        (stored,) = (stored for stored in store.list() if stored.key == key)
        with store.open(stored).stream as stream:
            assert stream.read() == value


def test_uploads_on_their_way_are_not_objects(tmp_path: Path) -> None:
    for name in (".DS_Store", ".git/config", "big.jsonl.part", "x.tmp", "y.partial", "dir.tmp/z.jsonl", "ok.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert [stored.key for stored in FolderStore(tmp_path).list()] == ["ok.jsonl"]


def test_putting_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a", b"old")
    assert store.put("a", b"new").sha256 == hashlib.sha256(b"new").hexdigest()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    with store.open(store.list()[0]).stream as stream:
        assert stream.read() == b"new"


def put_and_list(root: str, name: str, rounds: int) -> None:
    """What one process does: after each file, all of its own are listed."""
    store = FolderStore(Path(root, "landing"), ObjectIndex(Path(root, "index"), "landing"))
    for number in range(rounds):
        store.put(f"{name}/{number}.jsonl", f"{name} {number}".encode())
        past = time.time() - 100
        os.utime(Path(root, "landing", name, f"{number}.jsonl"), (past, past))
        own = [stored for stored in store.list(Notes()) if stored.key.startswith(f"{name}/")]
        assert {stored.sha256 for stored in own} == {
            hashlib.sha256(f"{name} {n}".encode()).hexdigest() for n in range(number + 1)
        }


def test_several_processes_share_an_index(tmp_path: Path, processes: ForkServerContext) -> None:
    workers = [processes.Process(target=put_and_list, args=(str(tmp_path), f"p{n}", 25)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert len(ObjectIndex(tmp_path / "index", "landing").entries()) > 0


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../up", "a/../../up", ".hidden", "a/.b", "x.tmp"])
def test_a_key_stays_below_the_root(tmp_path: Path, key: str) -> None:
    store = FolderStore(tmp_path / "root")
    with pytest.raises(WorkspaceError, match="can't be a key"):
        store.put(key, b"")
    with pytest.raises(WorkspaceError, match="can't be a key"):
        store.open(StoredObject(key, 0, ""))
    assert not (tmp_path / "root").exists()


def test_a_missing_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(ObjectGone, match=r"gone\.jsonl does not exist"):
        FolderStore(tmp_path).open(StoredObject("gone.jsonl", 0, ""))
