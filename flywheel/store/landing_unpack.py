"""Compressed streams of landing objects, opened: gzip and zstd, several members or frames one after the other.

A damaged or bomb-like stream gives what could be read, and then says why it stops instead of raising: the good half of
a file is worth having. Memory is bounded whatever the stream claims: pieces of a kilobyte are unpacked at a time, and
zstd windows above 128 MB (`--long=28` and more) are refused.

Not covered: bzip2, xz, zip (an archive is read by its members, see `formats/archive.py`), dictionaries.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

Compression = Literal["gzip", "zstd"]

CHUNK = 1 << 20
MOST_EXPANSION = 200  # text logs pack 5 to 50 times; gzip itself can do 1000, zstd 30,000
FREE_EXPANSION = 64 << 20
_GZIP_WINDOW = 31  # zlib's way to say: with a gzip header
_ZSTD_WINDOW = 128 << 20
_PIECES: dict[Compression, int] = {"gzip": 1 << 12, "zstd": 1 << 10}  # bytes at a time; damage costs what's in one
_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SKIPPABLE = b"\x2a\x4d\x18"  # after a byte 0x5?: a frame of zstd without data, as pzstd writes it first


class Unreadable(Exception):
    """The stream can't be unpacked further; `code` and the sentence say why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Member:
    """One gzip member or zstd frame; `feed` gives its bytes, and what of the input it has not taken yet."""

    unpack: Any
    bounded: bool  # takes a limit, and gives back what it did not need

    def feed(self, packed: bytes) -> tuple[bytes, bytes]:
        chunk = self.unpack.decompress(packed, CHUNK) if self.bounded else self.unpack.decompress(packed)
        return chunk, self.unpack.unused_data if self.unpack.eof else self.unpack.unconsumed_tail

    @property
    def ended(self) -> bool:
        return bool(self.unpack.eof)


def compression_of(head: bytes) -> Compression | None:
    """What a stream is packed with, by its first four bytes."""
    if len(head) >= 4 and head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
        return "zstd"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def unpacked(read: Callable[[int], bytes], compression: Compression, packed_size: int) -> Iterator[bytes]:
    """The bytes of the members one after the other. Errors: Unreadable, after all that could be read."""
    limit = FREE_EXPANSION + MOST_EXPANSION * packed_size
    opener, damaged = _opener(compression)
    member, packed, size = opener(), b"", 0
    while packed := packed or read(_PIECES[compression]):
        if member.ended:
            if not packed.strip(b"\0"):  # padding
                packed = b""
                continue
            member = opener()
        try:
            chunk, packed = member.feed(packed)
        except damaged as error:
            message = f"the {compression} stream is damaged after {size} bytes: {error}"
            raise Unreadable(f"damaged_{compression}", message) from error
        size += len(chunk)
        if chunk:
            yield chunk
        if size > limit:
            message = f"{packed_size} bytes of {compression} give more than {limit}: not read on"
            raise Unreadable(f"{compression}_bomb", message)
    if not member.ended:
        raise Unreadable(f"damaged_{compression}", f"the {compression} stream breaks off after {size} bytes")


def repacked(chunks: Iterable[bytes], compression: Compression | None, target: BinaryIO) -> None:
    """Write bytes into a file, packed like the object that they come from."""
    if compression == "gzip":
        with gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as out:
            out.writelines(chunks)
    elif compression == "zstd":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(target, closefd=False) as packed:
            for chunk in chunks:
                packed.write(chunk)
    else:
        target.writelines(chunks)


def _opener(compression: Compression) -> tuple[Callable[[], _Member], type[Exception]]:
    if compression == "gzip":
        return lambda: _Member(zlib.decompressobj(_GZIP_WINDOW), bounded=True), zlib.error
    import zstandard

    frames = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return lambda: _Member(frames.decompressobj(), bounded=False), zstandard.ZstdError
