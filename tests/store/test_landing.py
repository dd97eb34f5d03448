"""People's files in the landing zone: whatever they are called and whatever becomes of them; unpacked on the way."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import sqlite3
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from lake_rows import make_workspace
from s3_server import S3Folder

from flywheel.config import Config, Ingest
from flywheel.errors import ConfigError, ObjectError, ObjectGone, ObjectUnread
from flywheel.store import landing_unpack
from flywheel.store.landing import LandingBytes, land, packed_like
from flywheel.store.objects import FolderStore, Notes, StoredObject, open_store
from flywheel.store.objects_index import Entry, ObjectIndex
from flywheel.workspace import Workspace

CONFIG = Config()


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path / "bare")


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def sha16(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def landed(workspace: Workspace) -> dict[str, bytes]:
    root = workspace.landing
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@contextmanager
def as_nobody() -> Iterator[None]:
    """Permissions mean nothing to root."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        yield


def test_files_lie_flat_and_folders_keep_their_paths(bare: Workspace, inbox: Path) -> None:
    (inbox / "one.jsonl").write_bytes(b"1")
    for path in ("job 7/agent/trajectory.json", "job 7/result.json", "job 7/.claude/x.tmp/log.jsonl"):
        (inbox / "run" / path).parent.mkdir(parents=True, exist_ok=True)
        (inbox / "run" / path).write_bytes(path.encode())
    result = land(bare, CONFIG, [inbox / "one.jsonl", inbox / "run"])
    parts = {
        f"run/job_7/agent/{sha16(b'job 7/agent/trajectory.json')}-trajectory.json",
        f"run/job_7/{sha16(b'job 7/result.json')}-result.json",
        f"run/job_7/claude/x.tmp.landed/{sha16(b'job 7/.claude/x.tmp/log.jsonl')}-log.jsonl",
        f"{sha16(b'1')}-one.jsonl",
    }
    assert set(result.keys) == set(landed(bare)) == parts
    assert {stored.key for stored in open_store(bare, CONFIG).list()} == parts
    assert (result.refused, result.unread) == ((), ())
    assert land(bare, CONFIG, [inbox / "run"]).keys == tuple(k for k in result.keys if k.startswith("run/"))
    assert len(landed(bare)) == 4


@pytest.mark.parametrize(
    "name",
    ["ünï côdé.jsonl", "-rf", " ", "a\nb", "x" * 255, "…" * 80, ".hidden", "x.part", "_temporary", b"\xff\xfe.json"],
)
def test_any_name_lands_and_is_listed(bare: Workspace, inbox: Path, name: str | bytes) -> None:
    path = Path(os.fsdecode(os.fsencode(inbox) + b"/" + (name if isinstance(name, bytes) else name.encode())))
    path.write_bytes(b"data")
    (key,) = land(bare, CONFIG, [path]).keys
    assert key.startswith(sha16(b"data") + "-")
    assert land(bare, CONFIG, [inbox]).keys == (key,)
    (stored,) = open_store(bare, CONFIG).list()
    assert stored.key == key


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that another user may use; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def test_what_can_not_be_read_is_named_and_the_rest_lands(public: Path) -> None:
    bare, inbox = make_workspace(public / "bare"), public / "inbox"
    for folder in (inbox, bare.data):
        folder.mkdir()
    bare.root.chmod(0o777)
    bare.data.chmod(0o777)
    (inbox / "good.jsonl").write_bytes(b"good")
    os.mkfifo(inbox / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(inbox / "socket"))
    (inbox / "secret.jsonl").write_bytes(b"secret")
    (inbox / "secret.jsonl").chmod(0)
    (inbox / "closed").mkdir()
    (inbox / "closed" / "x.jsonl").write_bytes(b"x")
    (inbox / "closed").chmod(0)
    (inbox / "nowhere").symlink_to(inbox / "missing")
    (inbox / "again").symlink_to(inbox)  # a loop
    with as_nobody():
        result = land(
            bare, CONFIG, [inbox, inbox / "pipe", inbox / "secret.jsonl", inbox / "no-such", inbox / "closed"]
        )
    (inbox / "closed").chmod(0o700)
    assert list(landed(bare).values()) == [b"good"]
    assert len(result.refused) == 7  # each once
    said = " | ".join(result.refused)
    for name, why in (
        ("pipe", "is neither a file nor a folder"),
        ("socket", "is neither a file nor a folder"),
        ("secret.jsonl", "can't be read by this user"),
        ("closed", "can't be read by this user"),
        ("nowhere", "does not exist, or is a link that leads nowhere"),
        ("no-such", "does not exist, or"),
        ("again", "is a link to a folder"),
    ):
        assert f"{inbox / name} {why}" in said, said
    assert result.unread == tuple(str(inbox / name) for name in ("pipe", "secret.jsonl", "no-such", "closed"))


def test_an_empty_folder_is_named(bare: Workspace, inbox: Path) -> None:
    result = land(bare, CONFIG, [inbox])
    assert result.refused == (f"{inbox} holds no files; give files or folders of traces",)
    assert result.unread == (str(inbox),)


def test_what_lies_unreadable_in_the_landing_zone_is_left_out(bare: Workspace) -> None:
    store = FolderStore(bare.landing)
    store.put("good.jsonl", b"good")
    os.mkfifo(bare.landing / "pipe")
    notes = Notes()
    assert [stored.key for stored in store.list(notes)] == ["good.jsonl"]
    assert len(notes.left_out) == 1
    with pytest.raises(ObjectUnread, match="pipe"):
        store.list()


def test_a_name_that_is_no_text_is_left_out_of_the_landing_zone(bare: Workspace) -> None:
    store = FolderStore(bare.landing)
    store.put("good.jsonl", b"good")
    (bare.landing / os.fsdecode(b"bad\n\xff.jsonl")).write_bytes(b"bad")
    notes = Notes()
    assert [stored.key for stored in store.list(notes)] == ["good.jsonl"]
    (sentence,) = notes.left_out
    assert sentence.endswith("bad\\n\\udcff.jsonl has a name that is not UTF-8; rename it")


def test_a_file_that_grows_is_read_as_it_was_and_one_that_is_rewritten_is_an_error(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    path = tmp_path / "log.jsonl"
    first = b'{"a": 1}\n' * 200_000
    path.write_bytes(first)
    (stored,) = store.list()
    with path.open("ab") as growing:
        growing.write(b"more\n")
    with LandingBytes(store, stored) as source:
        assert source.stored == stored
        passing = source()
        begun = next(passing)
        with path.open("ab") as growing:
            growing.write(b"and more\n")
        assert begun + b"".join(passing) == first
    with pytest.raises(ObjectUnread, match=r"log\.jsonl was rewritten"), LandingBytes(store, stored) as source:
        passing = source()
        next(passing)
        with path.open("r+b") as rewritten:
            rewritten.write(b"X" * 10)
        list(passing)
    path.write_bytes(b"new")
    with LandingBytes(store, stored) as source:
        assert (source.stored.sha256, b"".join(source())) == (hashlib.sha256(b"new").hexdigest(), b"new")
    path.write_bytes(b"2" * len(first))
    with pytest.raises(ObjectUnread, match="rewritten"), LandingBytes(store, store.list()[0]) as source:
        next(source())
        path.write_bytes(b"3" * len(first))


def test_a_file_that_is_cut_or_deleted_while_it_is_read(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    data = os.urandom(3 << 20)
    store.put("a.bin", data)
    store.put("b.bin", data)
    a, b = store.list()
    with pytest.raises(ObjectUnread, match=r"a\.bin was rewritten"), LandingBytes(store, a) as source:
        passing = source()
        next(passing)
        os.truncate(tmp_path / "a.bin", 10)
        list(passing)
    with LandingBytes(store, b) as source:
        passing = source()
        begun = next(passing)
        store.delete("b.bin")
        assert begun + b"".join(passing) == data == b"".join(source())
    with pytest.raises(ObjectGone):
        LandingBytes(store, b)


def test_files_are_hashed_once_until_they_change(tmp_path: Path) -> None:
    index = ObjectIndex(tmp_path / "data" / "index", "folder")
    store = FolderStore(tmp_path / "landing", index)
    for name in ("a", "b"):
        store.put(name, name.encode())
    before = store.list()
    assert index.entries() == {}  # they changed a moment ago, and may within the same tick
    past = time.time() - 100
    for name in ("a", "b"):
        os.utime(tmp_path / "landing" / name, (past, past))
    assert store.list() == before
    marked = {
        key: Entry(size=1, state=e.state, sha256=f"of-{key}", modified=past) for key, e in index.entries().items()
    }
    index.add(marked)
    assert [stored.sha256 for stored in store.list()] == ["of-a", "of-b"]  # it is the index that says so
    (tmp_path / "landing" / "a").write_bytes(b"z")
    os.utime(tmp_path / "landing" / "a", (past, past))  # same size, same time
    assert [stored.sha256 for stored in store.list()] == [hashlib.sha256(b"z").hexdigest(), "of-b"]
    (tmp_path / "landing" / "b").unlink()
    assert [stored.key for stored in store.list()] == ["a"]
    assert set(index.entries()) == {"a"}
    assert ObjectIndex(index.path, "another folder").entries() == {}


def test_a_damaged_index_is_thrown_away(tmp_path: Path) -> None:
    index = ObjectIndex(tmp_path / "index", "folder")
    index.add({str(n): Entry(size=1, state="s", sha256="0", modified=0.0) for n in range(1000)})
    index.path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(ObjectError, match="was damaged and is thrown away; run the same command again"):
        index.entries()
    assert index.entries() == {}
    with sqlite3.connect(index.path) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        assert index.path.exists()


def packed(kind: str, data: bytes) -> bytes:
    return gzip.compress(data) if kind == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress(data)


def source_of(tmp_path: Path, data: bytes) -> LandingBytes:
    store = FolderStore(tmp_path)
    return LandingBytes(store, store.put("x", data))


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_members_and_padding_are_unpacked_one_after_the_other(tmp_path: Path, kind: str) -> None:
    parts = [os.urandom(2 << 20), b"", b"a" * (3 << 20), b"end"]
    padding = b"\0" * 5000 if kind == "gzip" else b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    with source_of(tmp_path, b"".join(packed(kind, part) for part in parts) + padding) as source:
        for _ in range(2):
            assert b"".join(source()) == b"".join(parts)
        assert (source.compression, source.size, source.damage) == (kind, sum(map(len, parts)), None)


def test_a_zstd_stream_may_begin_with_a_frame_without_data(tmp_path: Path) -> None:
    with source_of(tmp_path, b"\x5f\x2a\x4d\x18\x04\x00\x00\x00skip" + packed("zstd", b"data")) as source:
        assert (b"".join(source()), source.compression, source.damage) == (b"data", "zstd", None)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_of_a_damaged_stream_the_good_part_is_read(tmp_path: Path, kind: str) -> None:
    lines = b"".join(b'{"n": %d, "x": "%s"}\n' % (n, os.urandom(30).hex().encode()) for n in range(20_000))
    whole = packed(kind, lines)
    damaged = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[: len(whole) // 2] + os.urandom(200) + whole[len(whole) // 2 + 200 :],
        "followed": whole + b"this is no compressed stream",
    }
    for how, data in damaged.items():
        (tmp_path / how).mkdir()
        with source_of(tmp_path / how, data) as source:
            got = b"".join(source())
            good = next((at for at, (a, b) in enumerate(zip(lines, got, strict=False)) if a != b), len(got))
            assert good == len(got) or how == "flipped"  # only a checksum at the end tells some changes
            assert good == len(lines) if how == "followed" else len(lines) // 4 < good < len(lines)
            assert source.damage is not None
            assert source.damage[0] == f"damaged_{kind}"
            assert f"after {len(got)} bytes" in source.damage[1]


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_is_not_unpacked_and_takes_no_memory(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_unpack, "FREE_EXPANSION", 1 << 20)
    bomb = packed(kind, b"[" * (300 << 20))
    with source_of(tmp_path, bomb) as source:
        tracemalloc.start()
        assert sum(map(len, source())) < (1 << 20) + 201 * len(bomb) + (64 << 20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 << 20
        assert source.damage is not None
        assert source.damage[0] == f"{kind}_bomb"


def test_a_zstd_window_that_no_machine_should_hold_is_refused(tmp_path: Path) -> None:
    params = zstandard.ZstdCompressionParameters(window_log=29, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=params).compressobj()
    with source_of(tmp_path, packer.compress(b"x" * 1000) + packer.flush()) as source:
        assert b"".join(source()) == b""
        assert source.damage is not None
        assert source.damage[0] == "damaged_zstd"


@pytest.mark.parametrize("kind", ["gzip", "zstd", None])
def test_what_takes_the_place_of_an_object_is_packed_like_it(tmp_path: Path, kind: str | None) -> None:
    store = FolderStore(tmp_path)
    stored = store.put("x", packed(kind, b"old") if kind else b"old")
    with LandingBytes(store, stored) as source:
        put = store.put("x", packed_like(source, [b"new ", b"bytes"]))
    with LandingBytes(store, put) as source:
        assert (b"".join(source()), source.compression) == (b"new bytes", kind)


def test_the_landing_zone_may_be_another_folder(bare: Workspace, tmp_path: Path, inbox: Path) -> None:
    (inbox / "x").write_bytes(b"x")
    elsewhere = Config(ingest=Ingest(landing=str(tmp_path / "elsewhere")))
    (key,) = land(bare, elsewhere, [inbox / "x"]).keys
    assert (tmp_path / "elsewhere" / key).read_bytes() == b"x"
    assert not bare.landing.exists()


def test_the_landing_zone_may_be_on_s3(bare: Workspace, inbox: Path, s3: S3Folder) -> None:
    on_s3 = Config(ingest=Ingest(landing=s3.url.rstrip("/")))
    (inbox / "a b").mkdir()
    (inbox / "a b" / "x.jsonl").write_bytes(b"x")
    (inbox / "y.jsonl").write_bytes(b"y")
    first = land(bare, on_s3, [inbox, inbox / "y.jsonl"])
    assert set(first.keys) == {f"inbox/a_b/{sha16(b'x')}-x.jsonl", f"inbox/{sha16(b'y')}-y.jsonl"}
    store = open_store(bare, on_s3)
    assert {stored.key for stored in store.list()} == set(first.keys)
    for stored in store.list():
        with LandingBytes(store, stored) as source:
            assert b"".join(source()) in (b"x", b"y")
    assert land(bare, on_s3, [inbox]).keys == first.keys[:2]
    assert not bare.landing.exists()


def test_addresses_on_s3_land_like_paths(bare: Workspace, s3: S3Folder) -> None:
    s3.put_all({"runs/job-1/a.json": b"a", "runs/b.json": b"b", "runs-2/c.json": b"c", "d.jsonl.gz": b"d"})
    assert land(bare, CONFIG, [f"{s3.url}d.jsonl.gz"]).keys == (f"{sha16(b'd')}-d.jsonl.gz",)
    for address in (f"{s3.url}runs", f"{s3.url}runs/"):
        assert set(land(bare, CONFIG, [address]).keys) == {
            f"runs/job-1/{sha16(b'a')}-a.json", f"runs/{sha16(b'b')}-b.json",
        }  # fmt: skip
    assert land(bare, CONFIG, [f"{s3.url}runs-"]).keys == (f"runs-2/{sha16(b'c')}-c.json",)
    nothing = land(bare, CONFIG, [f"{s3.url}nothing/here"])
    assert nothing.unread == (f"{s3.url}nothing/here",)
    assert "holds no files" in nothing.refused[0]
    with pytest.raises(ConfigError, match="no address"):
        land(bare, CONFIG, ["s3://"])


def test_stored_objects_are_equal_by_content_alone() -> None:
    assert StoredObject("a", 1, "x", "etag") == StoredObject("a", 1, "x")
