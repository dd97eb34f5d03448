"""Zip archives: their members as sources, or as the records of one source. zstd members (method 93) included.

Nothing is ever unpacked to a path. Refused, each with a code: paths that lead out (absolute, `..`, a drive), symbolic
links, encrypted members, methods that are not read, members that claim or turn out to expand too far, and those whose
bytes overlap with another's (a small archive can name one large member a million times). What macOS adds to an archive
(`__MACOSX/`, `.DS_Store`) is left out: it describes files and is no data of anybody's.
A member whose checksum is wrong is damaged: as a record it is refused, as a source its good half is read and the rest
is refused.

Not covered: archives inside archives, tar.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import zstandard

from flywheel.formats.containers import is_safe_member
from flywheel.formats.parse import Decoded, decode
from flywheel.formats.reader import Record
from flywheel.formats.split import MAX_RECORD
from flywheel.records import Reject

ZSTD = 93
MOST_EXPANSION = 200
FREE_EXPANSION = 64 << 20
MOST_MEMBERS = 200_000
MOST_DIRECTORY = 64 << 20  # bytes: it is held in memory, as objects that are several times larger
MOST_RAW = 1 << 20  # bytes of a refused record that are looked up and held
CHUNK = 64 << 10
_PIECE = 8 << 10  # packed bytes at a time: a damaged one costs what it would have unpacked to
_LOCAL_HEADER = 30  # bytes before the name and the extra field, whose lengths stand in its last four
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"
_IN_ZIP64 = 0xFFFFFFFF


class MemberError(Exception):
    """A member can't be read on; the message says why and quotes nothing."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive."""

    path: str
    size: int  # unpacked, as the directory says
    packed: int
    method: int
    header_offset: int
    crc: int

    def chunks(self, archive: BinaryIO) -> MemberBytes:
        """The member's bytes as a source of its own, as long as the archive is open."""
        return MemberBytes(archive, self)

    def reject(self, ix: int, code: str, message: str, raw: bytes | None = None) -> Reject:
        """The refusal of this member; its place is that of the packed bytes in the archive."""
        return Reject(
            record_ix=ix, byte_offset=self.header_offset, byte_len=self.packed, code=code, message=message, raw=raw
        )


class MemberBytes:
    """Opens a member anew each time it's called. Its bytes end where it is damaged, and `damage` then says why."""

    def __init__(self, archive: BinaryIO, member: Member) -> None:
        self._archive, self._member = archive, member
        self.damage: MemberError | None = None

    def placed(self, reject: Reject) -> Reject:
        """A refusal of a record of this member, or of all of it: the place is the member's, the bytes are its own.

        Of more than `MOST_RAW` bytes they are those of the packed member.
        """
        raw = reject.raw
        if raw is None and reject.byte_len <= MOST_RAW:
            raw = self._between(reject.byte_offset, reject.byte_offset + reject.byte_len)
        return replace(reject, byte_offset=self._member.header_offset, byte_len=self._member.packed, raw=raw)

    def _between(self, start: int, stop: int) -> bytes:
        at, found = 0, []
        for chunk in self():
            found.append(chunk[max(0, start - at) : max(0, stop - at)])
            at += len(chunk)
            if at >= stop:
                break
        return b"".join(found)

    def __call__(self) -> Iterator[bytes]:
        try:
            yield from unpacked(self._archive, self._member)
        except MemberError as error:
            self.damage = error


def members_of(file: BinaryIO) -> tuple[tuple[Member, ...], list[Reject]]:
    """The members in the order of the directory, and refusals of those that must not be opened.

    Errors: zipfile.BadZipFile for something that is no archive, or whose directory can't be read or held.
    """
    size = _directory_size(file)
    if size > MOST_DIRECTORY:
        raise zipfile.BadZipFile(f"its directory has {size} bytes; at most {MOST_DIRECTORY} can be held")
    try:
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir() and not _is_of_macos(info)]
    except (NotImplementedError, UnicodeDecodeError, ValueError, struct.error) as error:
        raise zipfile.BadZipFile("its directory is damaged") from error
    overlapping = _overlapping(infos)
    members, refused = [], []
    for ix, info in enumerate(infos[:MOST_MEMBERS]):
        member = Member(
            info.filename, info.file_size, info.compress_size, info.compress_type, info.header_offset, info.CRC
        )
        why = _unusable(info)
        if why is None and info.header_offset in overlapping:
            why = "overlapping_members", "the member's bytes are another member's too"
        if why is None:
            members.append(member)
        else:
            refused.append(member.reject(ix, *why))
    if len(infos) > MOST_MEMBERS:
        message = f"the archive has {len(infos)} members; those after the first {MOST_MEMBERS} were not opened"
        place = infos[MOST_MEMBERS].header_offset
        refused.append(
            Reject(record_ix=MOST_MEMBERS, byte_offset=place, byte_len=0, code="too_many_members", message=message)
        )
    return tuple(members), refused


def _directory_size(file: BinaryIO) -> int:
    """Bytes of the central directory as its end record says; 0 where there is none (zipfile then says so)."""
    length = file.seek(0, 2)
    start = max(0, length - (1 << 16) - 22)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        return 0
    size = int(struct.unpack_from("<L", tail, at + 12)[0])
    if size == _IN_ZIP64:
        at = tail.rfind(_END64, 0, at)
        size = int(struct.unpack_from("<Q", tail, at + 40)[0]) if at >= 0 and len(tail) >= at + 48 else 0
    return size


def _is_of_macos(info: zipfile.ZipInfo) -> bool:
    return info.filename.startswith("__MACOSX/") or info.filename.rpartition("/")[2] == ".DS_Store"


def _overlapping(infos: Sequence[zipfile.ZipInfo]) -> set[int]:
    """Offsets of members that begin before an earlier one ends."""
    found, end = set(), 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            found.add(info.header_offset)
        end = max(end, info.header_offset + _LOCAL_HEADER + info.compress_size)
    return found


def _unusable(info: zipfile.ZipInfo) -> tuple[str, str] | None:
    if not is_safe_member(info) or info.filename[1:2] == ":":
        return "unsafe_path", "the member's path leads out of the archive"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "symbolic_link", "the member is a symbolic link"
    if info.flag_bits & 1:
        return "encrypted", "the member is encrypted"
    if info.file_size > FREE_EXPANSION + MOST_EXPANSION * info.compress_size:
        return "zip_bomb", f"{info.compress_size} bytes claim to unpack to {info.file_size}: not opened"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, ZSTD):
        return "unread_compression", f"compression method {info.compress_type} is not read"
    return None


def unpacked(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """The member's bytes. Errors: MemberError where they are damaged, or more than the directory says."""
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise MemberError("damaged_zip", "the member's header is damaged")
    start = member.header_offset + _LOCAL_HEADER + sum(struct.unpack_from("<HH", header, 26))
    done, crc = 0, 0
    try:
        for chunk in _inflate(_Packed(file, start, member.packed), member.method):
            done += len(chunk)
            if done > member.size:
                raise MemberError("damaged_zip", "the member unpacks to more than its directory entry says")
            crc = zlib.crc32(chunk, crc)
            yield chunk
    except (zlib.error, zstandard.ZstdError) as error:
        raise MemberError("damaged_zip", f"the member is damaged after {done} bytes") from error
    if done < member.size:
        raise MemberError("damaged_zip", f"the member breaks off after {done} of {member.size} bytes")
    if crc != member.crc:
        raise MemberError("damaged_zip", "the member's checksum is wrong: some of its bytes are not what was written")


def _inflate(packed: _Packed, method: int) -> Iterator[bytes]:
    if method == ZSTD:
        reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)  # type: ignore[arg-type]
        yield from iter(lambda: reader.read(CHUNK), b"")
        return
    pieces = iter(lambda: packed.read(_PIECE), b"")
    if method == zipfile.ZIP_STORED:
        yield from pieces
        return
    inflate = zlib.decompressobj(-15)
    for piece in pieces:
        while piece:
            yield inflate.decompress(piece, CHUNK)
            piece = inflate.unconsumed_tail
    yield inflate.flush()


class _Packed:
    """The packed bytes of one member as a file of their own; others may read the archive in between."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, none after the member's end."""
        left = self._end - self._at
        self._file.seek(self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data


def member_records(file: BinaryIO, members: Sequence[Member]) -> Iterator[Record | Reject]:
    """Every member as one record, decoded as JSON; its place is that of the packed member in the archive.

    Members in the root come first, then the others in the order of the directory: what describes an archive as a whole
    stands in its root, and some writers append it last.
    """
    for ix, member in sorted(enumerate(members), key=lambda pair: "/" in pair[1].path):
        yield _member_record(file, member, ix)


def _member_record(file: BinaryIO, member: Member, ix: int) -> Record | Reject:
    if member.size > MAX_RECORD:
        message = f"one record of {member.size} bytes; at most {MAX_RECORD} can be held"
        return member.reject(ix, "record_too_large", message)
    try:
        data = b"".join(unpacked(file, member))
    except MemberError as error:
        return member.reject(ix, error.code, str(error))
    value = decode(data)
    if not isinstance(value, Decoded):
        return member.reject(ix, value.code, value.message, data)
    return Record(
        ix=ix,
        offset=member.header_offset,
        length=member.packed,
        value=value.value,
        repairs=value.repairs,
        path=member.path,
        raw=data,
    )
