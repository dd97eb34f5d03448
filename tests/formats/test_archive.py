"""Zip archives as they come: packed in any way, damaged in any way, and those that mean harm."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from sources import USER, jsonl, read

from flywheel.formats import archive
from flywheel.formats.archive import Member, MemberError, member_records, members_of, unpacked
from flywheel.formats.reader import Record
from flywheel.records import Reject

CHAT = jsonl({"messages": [USER, {"role": "assistant", "content": "On its way."}]})


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, data in members:
            made.writestr(name, data)
    return file.getvalue()


def with_zstd(*members: tuple[str, bytes], crc: int | None = None, size: int | None = None) -> bytes:
    """An archive of zstd members, which Python's zipfile can't write before 3.14."""
    body, directory = b"", b""
    for name, data in members:
        packed = zstandard.ZstdCompressor().compress(data)
        total = len(data) if size is None else size
        numbers = (zlib.crc32(data) if crc is None else crc, len(packed), total, len(name), 0)
        common = struct.pack("<HHHHHLLLHH", 63, 0, archive.ZSTD, 0, 33, *numbers)
        directory += b"PK\x01\x02" + struct.pack("<H", 63) + common + struct.pack("<HHHLL", 0, 0, 0, 0, len(body))
        directory += name.encode()
        body += b"PK\x03\x04" + common + name.encode() + packed
    end = struct.pack("<HHHHLLH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def codes(data: bytes) -> list[str]:
    return [reject.code for reject in read(data).rejects]


@pytest.mark.parametrize("pack", [zipped, with_zstd, lambda *m: zipped(*m, method=zipfile.ZIP_STORED)])
@pytest.mark.parametrize("size", [1 << 20, 7])
def test_every_member_is_a_source(pack: Any, size: int) -> None:
    outcome = read(pack(("a/one.jsonl", CHAT), ("two.jsonl", CHAT * 3)), size=size)
    assert outcome.format == "openai_chat"
    assert (outcome.n_records, outcome.rejects) == (4, [])


def test_large_members_stream_in_pieces() -> None:
    data = random.Random("zip").randbytes(3 << 20)
    for made in (zipped(("x", data)), with_zstd(("x", data)), zipped(("x", data), method=zipfile.ZIP_STORED)):
        file = io.BytesIO(made)
        (member,), _ = members_of(file)
        pieces = []
        for piece in unpacked(file, member):
            file.seek(0)  # somebody else reads the archive in between
            pieces.append(piece)
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) <= archive.CHUNK


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_a_damaged_member_gives_its_good_half(cut: float) -> None:
    rng = random.Random("damage")
    lines = [
        json.dumps({"messages": [USER, {"role": "assistant", "content": rng.randbytes(400).hex()}]}) + "\n"
        for _ in range(500)
    ]
    made = bytearray(zipped(("chats.jsonl", "".join(lines).encode())))
    at = int(len(made) * cut)
    made[at : at + 64] = b"\xff" * 64
    outcome = read(bytes(made))
    assert "damaged_zip" in [reject.code for reject in outcome.rejects]
    assert len(outcome.fragments) >= 500 * cut * 0.8


def test_a_wrong_checksum_is_damage_although_all_bytes_are_there() -> None:
    made = with_zstd(("a.jsonl", CHAT), crc=1)
    outcome = read(made)
    assert [reject.code for reject in outcome.rejects] == ["damaged_zip"]
    assert len(outcome.fragments) == 1
    file = io.BytesIO(made)
    members, _ = members_of(file)
    (item,) = member_records(file, members)
    assert isinstance(item, Reject)
    assert item.code == "damaged_zip"


def test_members_that_expand_too_far_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FREE_EXPANSION", 1 << 20)
    assert codes(zipped(("bomb", b"\0" * (4 << 20)), ("a.jsonl", CHAT))) == ["zip_bomb"]


def test_members_that_lie_about_their_size_are_stopped() -> None:
    file = io.BytesIO(with_zstd(("bomb", b"\0" * (32 << 20)), size=10))
    (member,), _ = members_of(file)
    with pytest.raises(MemberError, match="more than its directory entry says"):
        list(unpacked(file, member))


def test_members_that_share_bytes_are_opened_once() -> None:
    made = zipped(("a.jsonl", CHAT))
    start = made.index(b"PK\x01\x02")
    entry, end = made[start : made.index(b"PK\x05\x06")], made[made.index(b"PK\x05\x06") :]
    numbers = list(struct.unpack("<4s4H2LH", end))
    numbers[3] = numbers[4] = 50
    numbers[5] = len(entry) * 50
    outcome = read(made[:start] + entry * 50 + struct.pack("<4s4H2LH", *numbers))
    assert outcome.fragments == [] or len(outcome.fragments) == 1
    assert {reject.code for reject in outcome.rejects} == {"overlapping_members"}


@pytest.mark.parametrize("name", ["../up.jsonl", "a/../../up.jsonl", "/etc/x.jsonl", "..\\up.jsonl", "C:\\x.jsonl"])
def test_unsafe_paths_are_refused_and_the_rest_is_read(name: str) -> None:
    outcome = read(zipped((name, CHAT), ("good.jsonl", CHAT)))
    assert [reject.code for reject in outcome.rejects] == ["unsafe_path"]
    assert len(outcome.fragments) == 1


def test_links_and_encrypted_members_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "/etc/passwd")
        made.writestr("a.jsonl", CHAT)
    assert codes(file.getvalue()) == ["symbolic_link"]
    data = bytearray(zipped(("a.jsonl", CHAT)))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert codes(bytes(data)) == ["encrypted"]


def test_other_methods_archives_in_archives_and_empty_ones() -> None:
    assert codes(zipped(("a.jsonl", CHAT), method=zipfile.ZIP_BZIP2)) == ["unread_compression"]
    assert codes(zipped(("inner.zip", zipped(("a.jsonl", CHAT))))) == ["nested_archive"]
    assert codes(zipped()) == ["empty"]
    assert codes(zipped(("folder/", b""))) == ["empty"]
    assert codes(zipped(("__MACOSX/._a.jsonl", b"\0\5\x16\7"), ("a.jsonl", CHAT), (".DS_Store", b"\0"))) == []


def test_a_directory_too_large_to_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = zipped(*((f"{ix}.jsonl", CHAT) for ix in range(20)))
    monkeypatch.setattr(archive, "MOST_MEMBERS", 15)
    members, refused = members_of(io.BytesIO(made))
    assert (len(members), [reject.code for reject in refused]) == (15, ["too_many_members"])
    monkeypatch.setattr(archive, "MOST_DIRECTORY", 100)
    assert codes(made) == ["damaged_zip"]


def test_root_members_come_first_and_keep_their_place() -> None:
    file = io.BytesIO(zipped(("samples/1.json", b"1"), ("samples/2.json", b"[2"), ("header.json", b"{}")))
    members, _ = members_of(file)
    items = list(member_records(file, members))
    assert [item.ix if isinstance(item, Record) else item.record_ix for item in items] == [2, 0, 1]
    assert [item.path for item in items if isinstance(item, Record)] == ["header.json", "samples/1.json"]
    assert [item.code for item in items if isinstance(item, Reject)] == ["truncated_json"]


def test_a_member_too_large_for_one_record_is_refused_unread() -> None:
    member = Member("a", archive.MAX_RECORD + 1, 10, 0, 0, 0)
    (item,) = member_records(io.BytesIO(), [member])
    assert isinstance(item, Reject)
    assert item.code == "record_too_large"


def test_no_bytes_raise(samples: Path) -> None:
    rng = random.Random("zip bytes")
    sources = [
        zipped(("a.jsonl", CHAT), ("b/c.json", CHAT)),
        with_zstd(("a.jsonl", CHAT), ("header.json", b"{}")),
        (samples / "inspect" / "log_message_deduplication.eval").read_bytes(),
    ]
    for _ in range(400):
        data = bytearray(rng.choice(sources))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(4, len(data))
            if rng.random() < 0.6:
                data[at] = rng.randrange(256)
            else:
                del data[at : at + rng.randrange(60)]
        read(bytes(data))


def test_refusals_in_members_carry_their_own_bytes_and_the_place_of_the_member() -> None:
    chat = CHAT.decode().encode("utf-16") + "{broken".encode("utf-16-le")
    made = zipped(("a.jsonl", CHAT + b"{broken\n"), ("b.jsonl", chat), ("c.html", b"<html>"), ("d.bin", b"PAR1" * 9))
    members, _ = members_of(io.BytesIO(made))
    rejects = read(made).rejects
    assert [(reject.byte_offset, reject.byte_len) for reject in rejects] == [
        (member.header_offset, member.packed) for member in members
    ]
    assert [reject.raw for reject in rejects] == [
        b"{broken", "{broken".encode("utf-16-le"), b"<html>", b"PAR1" * 9,
    ]  # fmt: skip
