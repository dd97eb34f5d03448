"""Zip archives: their members as sources, or as the records of one source. zstd members (method 93) included.

Members with unsafe paths (absolute, `..`) and those that expand too far are refused by name; nothing is ever unpacked
to a path. Encrypted members are refused.

Not covered: archives inside archives, tar.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import zstandard

from flywheel.formats.containers import is_safe_member
from flywheel.formats.parse import Decoded, decode
from flywheel.formats.read import Chunks
from flywheel.formats.reader import Record
from flywheel.formats.split import MAX_RECORD
from flywheel.records import Reject

ZSTD = 93
MOST_EXPANSION = 200
FREE_EXPANSION = 64 << 20
MOST_MEMBERS = 200_000
CHUNK = 1 << 20
_LOCAL_HEADER = 30  # bytes before the name and the extra field, whose lengths stand in its last four


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

    def chunks(self, archive: BinaryIO) -> Chunks:
        """The member's bytes as a source of its own, as long as the archive is open; ends where it is damaged."""

        def opened() -> Iterator[bytes]:
            try:
                yield from unpacked(archive, self)
            except MemberError:
                return  # the good half: what follows is missing, and its last record says so

        return opened


def members_of(file: BinaryIO) -> tuple[tuple[Member, ...], list[Reject]]:
    """The members in the order of the directory, and refusals of those that must not be opened.

    Errors: zipfile.BadZipFile for something that is no archive.
    """
    members, refused = [], []
    with zipfile.ZipFile(file) as archive:
        for ix, info in enumerate(archive.infolist()):
            if info.is_dir():
                continue
            why = _unusable(info, ix)
            if why is None:
                members.append(
                    Member(info.filename, info.file_size, info.compress_size, info.compress_type, info.header_offset)
                )
            else:
                refused.append(
                    Reject(
                        record_ix=ix,
                        byte_offset=info.header_offset,
                        byte_len=info.compress_size,
                        code=why[0],
                        message=why[1],
                    )
                )
    return tuple(members), refused


def _unusable(info: zipfile.ZipInfo, ix: int) -> tuple[str, str] | None:
    if ix >= MOST_MEMBERS:
        return "too_many_members", f"the archive has more than {MOST_MEMBERS} members"
    if not is_safe_member(info):
        return "unsafe_path", "the member's path leads out of the archive"
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
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    done = 0
    try:
        for chunk in _inflate(file, member):
            done += len(chunk)
            if done > member.size:
                raise MemberError("zip_bomb", "the member unpacks to more than its directory entry says")
            yield chunk
    except (zlib.error, zstandard.ZstdError) as error:
        raise MemberError("damaged_zip", f"the member is damaged after {done} bytes") from error
    if done < member.size:
        raise MemberError("damaged_zip", f"the member breaks off after {done} of {member.size} bytes")


def _inflate(file: BinaryIO, member: Member) -> Iterator[bytes]:
    left = member.packed
    packed = iter(lambda: file.read(min(CHUNK, left)), b"")
    if member.method == ZSTD:
        limited = _Limited(file, member.packed)
        reader = zstandard.ZstdDecompressor().stream_reader(limited, read_across_frames=True)  # type: ignore[arg-type]
        yield from iter(lambda: reader.read(CHUNK), b"")
        return
    inflate = zlib.decompressobj(-15) if member.method == zipfile.ZIP_DEFLATED else None
    for piece in packed:
        left -= len(piece)
        while piece:
            if inflate is None:
                yield piece
                break
            yield inflate.decompress(piece, CHUNK)
            piece = inflate.unconsumed_tail
        if left == 0:
            break
    if inflate is not None:
        yield inflate.flush()


class _Limited:
    """The packed bytes of one member as a file of their own."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, none after the member's end."""
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def member_records(file: BinaryIO, members: Sequence[Member]) -> Iterator[Record | Reject]:
    """Every member as one record, decoded as JSON; its place is that of the packed member in the archive."""
    for ix, member in enumerate(members):
        yield _member_record(file, member, ix)


def _member_record(file: BinaryIO, member: Member, ix: int) -> Record | Reject:
    def refused(code: str, message: str, raw: bytes | None = None) -> Reject:
        return Reject(
            record_ix=ix,
            byte_offset=member.header_offset,
            byte_len=member.packed,
            code=code,
            message=message,
            raw=raw,
        )

    if member.size > MAX_RECORD:
        return refused("record_too_large", f"one record of {member.size} bytes; at most {MAX_RECORD} can be held")
    try:
        data = b"".join(unpacked(file, member))
    except MemberError as error:
        return refused(error.code, str(error))
    value = decode(data)
    if not isinstance(value, Decoded):
        return refused(value.code, value.message, data)
    return Record(
        ix=ix,
        offset=member.header_offset,
        length=member.packed,
        value=value.value,
        repairs=value.repairs,
        path=member.path,
        raw=data,
    )
