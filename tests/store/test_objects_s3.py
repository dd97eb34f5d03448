"""Objects on a real S3 server: listed and fetched once, whole or not at all, whatever the server and others do."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import Fault, Proxy, proxied
from s3_server import BUCKET, SECRET_KEY, S3Folder, S3Server

from flywheel.config import Ingest
from flywheel.errors import ConfigError, ObjectError, ObjectGone, WorkspaceError
from flywheel.store import objects_download, objects_s3
from flywheel.store.objects import Notes, StoredObject
from flywheel.store.objects_client import S3Place
from flywheel.store.objects_index import ObjectIndex
from flywheel.store.objects_s3 import S3Store, named, open_path
from flywheel.workspace import Workspace


def store_of(s3: S3Folder, index: Path | None = None, **options: object) -> S3Store:
    known = ObjectIndex(index, s3.url) if index else None
    return S3Store(s3.place, S3Place.client(options.pop("place", s3.place)), known, s3.prefix, **options)  # type: ignore[arg-type]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tries of each request and short pauses: what is waited for is the same, only shorter."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr(objects_download, "PAUSE", 0.02)


@pytest.fixture
def proxy(s3: S3Folder) -> Iterator[Proxy]:
    with proxied(s3.server.ports[0]) as running:
        yield running


def through(proxy: Proxy, s3: S3Folder) -> S3Place:
    return S3Place(BUCKET, s3.prefix, proxy.endpoint)


def read(store: S3Store, stored: StoredObject) -> bytes:
    with store.open(stored).stream as stream:
        return stream.read()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_was_put_is_listed_page_after_page_and_comes_back(s3: S3Folder, proxy: Proxy) -> None:
    data = {f"day {n % 3}/é+{n:02d}%.jsonl": b"%d\n" % n * n for n in range(25)}
    store = store_of(s3, page=10, place=through(proxy, s3))
    assert store.list() == []
    put = [store.put(key, value) for key, value in data.items()]
    proxy.requests.clear()
    listed = store.list()
    assert proxy.lists() == 3
    assert listed == sorted(put, key=lambda stored: stored.key)
    assert {stored.key: stored.sha256 for stored in listed} == {key: sha256(value) for key, value in data.items()}
    assert {stored.key: read(store, stored) for stored in listed} == data
    store.delete(listed[0].key)
    store.delete(listed[0].key)
    assert store.list() == listed[1:]


def test_a_large_object_is_put_in_parts_and_comes_back(s3: S3Folder) -> None:
    data = os.urandom(1 << 20) * 20
    store = store_of(s3)
    put = store.put("large.bin", data)
    (listed,) = store.list()
    assert listed == put == StoredObject("large.bin", len(data), sha256(data))
    assert "-" in listed.state  # the ETag of an upload in parts
    assert sha256(read(store, listed)) == sha256(data)


def test_unfinished_uploads_and_markers_are_not_objects(s3: S3Folder) -> None:
    for key in ("folder/", ".hidden/x", "a.jsonl.part", "b.tmp", "job/_temporary/0/c.jsonl", "ok.jsonl"):
        s3.put(key, b"" if key.endswith("/") else b"x")
    upload = s3.client.create_multipart_upload(Bucket=BUCKET, Key=s3.prefix + "parts.jsonl")
    part = {"Bucket": BUCKET, "Key": s3.prefix + "parts.jsonl", "UploadId": upload["UploadId"], "PartNumber": 1}
    etag = s3.client.upload_part(**part, Body=b"x" * (5 << 20))["ETag"]
    store = store_of(s3)
    assert [stored.key for stored in store.list()] == ["ok.jsonl"]
    s3.client.complete_multipart_upload(
        Bucket=BUCKET, Key=part["Key"], UploadId=part["UploadId"],
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]},
    )  # fmt: skip
    assert [stored.key for stored in store.list()] == ["ok.jsonl", "parts.jsonl"]
    assert store_of(s3, settle=60.0).list() == []


def test_nothing_is_fetched_twice_and_the_index_may_be_lost(s3: S3Folder, proxy: Proxy, tmp_path: Path) -> None:
    index = tmp_path / "data" / "index.sqlite"
    s3.put_all({f"{n}.jsonl": b"%d" % n for n in range(5)})
    first = store_of(s3, index, place=through(proxy, s3))
    listed = first.list()
    assert len(proxy.gets()) == 5
    assert [read(first, stored) for stored in listed] == [b"%d" % n for n in range(5)]
    assert len(proxy.gets()) == 5
    s3.put("5.jsonl", b"new")
    s3.put("0.jsonl", b"other")
    proxy.requests.clear()
    again = store_of(s3, index, place=through(proxy, s3)).list()
    assert len(proxy.gets()) == 2
    assert [stored.sha256 for stored in again] == [
        sha256(b"other"), *(stored.sha256 for stored in listed[1:]), sha256(b"new"),
    ]  # fmt: skip
    index.unlink()
    proxy.requests.clear()
    assert store_of(s3, index, place=through(proxy, s3)).list() == again
    assert len(proxy.gets()) == 6
    s3.delete("3.jsonl")
    assert [s.key for s in store_of(s3, index, full_hours=0.0).list()] == [s.key for s in again if s.key[0] != "3"]


def test_deleted_and_replaced_between_list_and_get(s3: S3Folder, proxy: Proxy) -> None:
    s3.put_all({"a.jsonl": b"a", "b.jsonl": b"b", "c.jsonl": b"c"})
    proxy.faults += [
        Fault("a.jsonl", first=lambda: s3.delete("a.jsonl")),
        Fault("b.jsonl", first=lambda: s3.put("b.jsonl", b"longer than it was")),
    ]
    notes = Notes()
    store = store_of(s3, place=through(proxy, s3))
    listed = store.list(notes)
    assert listed == [
        StoredObject("b.jsonl", 18, sha256(b"longer than it was")), StoredObject("c.jsonl", 1, sha256(b"c")),
    ]  # fmt: skip
    assert read(store, listed[0]) == b"longer than it was"
    assert notes.left_out == [f"s3://{BUCKET}/{s3.prefix}a.jsonl was deleted after it was listed; it is left out"]
    assert (notes.deleted, notes.replaced) == (1, 1)
    with pytest.raises(ObjectGone, match=r"a\.jsonl was deleted"):
        s3.put("a.jsonl", b"a")
        proxy.faults.append(Fault("a.jsonl", first=lambda: s3.delete("a.jsonl")))
        store_of(s3, place=through(proxy, s3)).list()


def test_deleted_and_replaced_between_hash_and_reading(s3: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_s3, "SMALL", 0)  # none is kept until it's read
    s3.put_all({"a.jsonl": b"a", "b.jsonl": b"b"})
    store = store_of(s3)
    first, second = store.list()
    s3.put("a.jsonl", b"the new one")
    s3.delete("b.jsonl")
    opened = store.open(first)
    assert opened.stored == StoredObject("a.jsonl", 11, sha256(b"the new one"))
    assert opened.stream.read() == b"the new one"
    with pytest.raises(ObjectGone, match=r"b\.jsonl"):
        store.open(second)


@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
def test_errors_that_pass_are_waited_out(s3: S3Folder, proxy: Proxy, quick: None, code: str) -> None:
    s3.put("a.jsonl", b"a")
    proxy.faults += [Fault("list-type", status=503, code=code), Fault("a.jsonl", status=500, code=code)]
    store = store_of(s3, place=through(proxy, s3))
    assert [read(store, stored) for stored in store.list()] == [b"a"]
    assert (proxy.lists(), len(proxy.gets())) == (2, 2)


def test_errors_that_stay_name_the_object_and_keep_what_was_done(
    s3: S3Folder, proxy: Proxy, quick: None, tmp_path: Path
) -> None:
    s3.put_all({"a.jsonl": b"a", "z.jsonl": b"z"})
    proxy.faults.append(Fault("z.jsonl", times=1000, status=503, code="SlowDown"))
    notes = Notes()
    with pytest.raises(ObjectError, match="the server throttles") as caught:
        store_of(s3, tmp_path / "index", place=through(proxy, s3)).list(notes)
    assert f"{s3.prefix}z.jsonl" in str(caught.value)
    assert notes.left_out == []
    assert set(ObjectIndex(tmp_path / "index", s3.url).entries()) == {"a.jsonl"}
    proxy.faults[0].times = 0
    proxy.requests.clear()
    assert len(store_of(s3, tmp_path / "index", place=through(proxy, s3)).list()) == 2
    assert len(proxy.gets()) == 1


def test_one_forbidden_object_does_not_hold_back_the_others(s3: S3Folder, proxy: Proxy) -> None:
    s3.put_all({"a.jsonl": b"a", "frozen.jsonl": b"f", "z.jsonl": b"z"})
    proxy.faults.append(Fault("frozen.jsonl", times=10, status=403, code="InvalidObjectState"))
    notes = Notes()
    assert [stored.key for stored in store_of(s3, place=through(proxy, s3)).list(notes)] == ["a.jsonl", "z.jsonl"]
    (sentence,) = notes.left_out
    assert sentence.endswith("frozen.jsonl can't be read (InvalidObjectState): it is archived: restore it first")


def test_a_read_that_breaks_off_goes_on_from_there(s3: S3Folder, proxy: Proxy, quick: None) -> None:
    data = os.urandom(3 << 20)
    s3.put("a.bin", data)
    proxy.faults += [Fault("a.bin", cut_after=1_000_000), Fault("a.bin", cut_after=1_500_000)]
    store = store_of(s3, place=through(proxy, s3))
    (stored,) = store.list()
    assert stored.sha256 == sha256(data)
    assert read(store, stored) == data
    first, second, third = proxy.gets()
    assert first == ""
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in (second, third)]
    assert 0 < starts[0] <= 1_000_000 < starts[1] <= 2_500_000


def test_an_object_replaced_while_a_read_is_resumed_is_no_mixture(s3: S3Folder, proxy: Proxy, quick: None) -> None:
    s3.put("a.bin", b"old " * 500_000)
    new = b"new " * 600_000
    proxy.faults.append(Fault("a.bin", cut_after=1_000_000, then=lambda: s3.put("a.bin", new)))
    notes = Notes()
    store = store_of(s3, place=through(proxy, s3))
    (stored,) = store.list(notes)
    assert (stored.size, stored.sha256, notes.replaced) == (len(new), sha256(new), 1)
    assert read(store, stored) == new


def test_the_server_dies_in_mid_read_and_comes_back(own_s3_server: S3Server, quick: None) -> None:
    data = os.urandom(6 << 20)
    own_s3_server.client().put_object(Bucket=BUCKET, Key="a.bin", Body=data)
    restarts: list[threading.Thread] = []

    def die() -> None:
        own_s3_server.kill()
        restarts.append(threading.Thread(target=own_s3_server.start))
        restarts[0].start()

    with proxied(own_s3_server.ports[0]) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects_download, "PAUSE", 2.0)
        proxy.faults.append(Fault("a.bin", cut_after=2 << 20, then=die))
        place = S3Place(BUCKET, "a", proxy.endpoint)
        store = S3Store(place, place.client())
        (stored,) = store.list()
        restarts[0].join()
        assert stored.sha256 == sha256(data)
        assert [asked for asked in proxy.gets() if asked]


def test_the_server_dies_in_mid_read_and_stays_dead(own_s3_server: S3Server, quick: None, tmp_path: Path) -> None:
    own_s3_server.client().put_object(Bucket=BUCKET, Key="a.bin", Body=os.urandom(6 << 20))
    with proxied(own_s3_server.ports[0]) as proxy:
        proxy.faults.append(Fault("a.bin", cut_after=2 << 20, then=own_s3_server.kill))
        place = S3Place(BUCKET, "a", proxy.endpoint)
        notes = Notes()
        with pytest.raises(ObjectError, match=r"a\.bin: the server broke off after \d+ of 6291456 bytes"):
            S3Store(place, place.client(), ObjectIndex(tmp_path / "index", "s")).list(notes)
        assert notes.left_out == []
        assert ObjectIndex(tmp_path / "index", "s").entries() == {}


def test_what_is_wrong_with_the_server_or_the_credentials_is_a_sentence_without_secrets(
    s3: S3Folder, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(place: S3Place) -> str:
        with pytest.raises(ObjectError) as caught:
            S3Store(place, place.client()).list()
        assert SECRET_KEY not in str(caught.value)
        return str(caught.value)

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        said = refused(S3Place(BUCKET, "x/", nobody))
    assert said.startswith(f"s3://{BUCKET}/x/: {nobody} can't be reached")
    assert "create it" in refused(S3Place("no-such-bucket"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "the secret key is wrong" in refused(S3Place(BUCKET))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    assert "does not know this access key" in refused(S3Place(BUCKET))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no usable credentials (NoCredentialsError): set AWS_ACCESS_KEY_ID" in refused(S3Place(BUCKET))
    monkeypatch.setenv("AWS_PROFILE", "nowhere")
    assert "nowhere" in refused(S3Place(BUCKET))


@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3://user:pw@host/x", "gs://bucket/x"])
def test_an_impossible_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="no address of objects"):
        S3Place.parse(url)


@pytest.mark.parametrize("endpoint", ["http://user:secret@host:9000", "localhost:9000", "ftp://host"])
def test_an_endpoint_is_an_address_without_credentials(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="endpoint") as caught:
        S3Place.parse("s3://bucket", endpoint)
    assert "secret" not in str(caught.value)


def test_an_address_means_its_object_or_all_below_it_and_nothing_else_is_fetched(
    s3: S3Folder, proxy: Proxy, tmp_path: Path
) -> None:
    s3.put_all({"runs/a.json": b"a", "runs/b/c.json": b"c", "runs-2/d.json": b"d", "x.json": b"x", "x.json.bak": b"y"})

    def fetched(address: str) -> tuple[list[str], int]:
        proxy.requests.clear()
        store = open_path(Workspace(tmp_path), Ingest(endpoint=proxy.endpoint), s3.url + address)
        return [stored.key for stored in named(store, Notes())], len(proxy.gets())

    assert fetched("x.json") == (["x.json"], 1)
    for address in ("runs", "runs/"):
        (tmp_path / "data" / "objects" / "index.sqlite").unlink()
        assert fetched(address) == (["runs/a.json", "runs/b/c.json"], 2)
    assert fetched("runs-") == (["runs-2/d.json"], 1)
    assert fetched("nothing") == ([], 0)


@pytest.mark.parametrize("key", ["", "/x", "../up", "a/../b", ".hidden", "x.tmp"])
def test_a_key_stays_in_the_landing_zone(s3: S3Folder, key: str) -> None:
    with pytest.raises(WorkspaceError, match="can't be a key"):
        store_of(s3).put(key, b"x")


def test_of_a_large_prefix_only_likely_pages_are_listed_and_nothing_is_missed(
    s3: S3Folder, proxy: Proxy, tmp_path: Path
) -> None:
    s3.put_all({f"{tenant}/{n:04d}.jsonl": b"%d" % n for tenant in ("acme", "acme-2", "bolt") for n in range(100)})
    time.sleep(1.1)  # LastModified has seconds
    s3.put("acme/0100.jsonl", b"the newest")

    def keys(**options: object) -> set[str]:
        proxy.requests.clear()
        store = store_of(s3, tmp_path / "index", page=4, place=through(proxy, s3), **options)
        return {stored.key for stored in store.list()}

    known = keys()
    assert (len(known), proxy.lists()) == (301, 76)
    s3.put("acme/0101.jsonl", b"beside the newest")
    s3.put("bolt/0100.jsonl", b"at the end")
    assert keys() - known == {"acme/0101.jsonl", "bolt/0100.jsonl"}
    assert proxy.lists() <= 22
    s3.put("acme-2/0050-x.jsonl", b"nowhere special")
    s3.delete("bolt/0001.jsonl")
    runs = 0
    while "acme-2/0050-x.jsonl" not in (now := keys()):
        assert proxy.lists() <= 22
        runs += 1
        assert runs < 9
    assert "bolt/0001.jsonl" in now
    assert "bolt/0001.jsonl" not in keys(full_hours=0.0)
    assert proxy.lists() == 76
