"""Landing objects as streams of bytes: files copied in under a name of their content, gzip opened on the way out.

A damaged or bomb-like gzip stream gives what could be read and then says why it stopped, instead of raising: the good
half of a file is worth having. Offsets are those of the decompressed bytes.

Not covered: zstd, zip and other containers (they are read as they are, and no reader accepts them).
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from flywheel.errors import ConfigError
from flywheel.store.artifacts import file_sha256, sync_folder
from flywheel.store.objects import FolderStore, ObjectStore, StoredObject
from flywheel.workspace import Workspace

CHUNK = 1 << 20
GZIP = b"\x1f\x8b"
MOST_EXPANSION = 200  # text logs pack 5 to 50 times; gzip itself can do 1000
FREE_EXPANSION = 64 << 20
_GZIP_WINDOW = 31  # zlib's way to say: with a gzip header
_PIECE = 1 << 12  # packed bytes at a time: what is lost with a damaged one
_UNSAFE = re.compile(r"[^A-Za-z0-9@._-]+")  # an address in a name stays one, so that redaction sees it


def land(workspace: Workspace, paths: Sequence[Path]) -> list[str]:
    """Copy files (folders: all files below) into data/landing, under their content's name; gives the keys.

    A file that lies there already, whatever it's called, is not copied again.
    Errors: ConfigError for a path that is missing, no regular file, or not readable; nothing is copied then.
    """
    files = [file for path in paths for file in _files(path)]
    known = {stored.sha256: stored.key for stored in FolderStore(workspace.landing).list()} if files else {}
    keys = []
    for file in files:
        sha256 = file_sha256(file)
        if sha256 not in known:
            known[sha256] = f"{sha256[:16]}-{_UNSAFE.sub('_', file.name).lstrip('.') or 'file'}"
            if known[sha256].endswith((".tmp", ".part", ".partial")):  # the store takes such names for unfinished
                known[sha256] += ".landed"
            _copy(file, workspace.landing / known[sha256])
        keys.append(known[sha256])
    return keys


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ConfigError(f"{path} does not exist; give files or folders of traces")
    found = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in found:
        if not file.is_file():
            raise ConfigError(f"{file} is neither a file nor a folder (a pipe or a device?); save it to a file first")
        if not os.access(file, os.R_OK):
            raise ConfigError(f"{file} can't be read by this user; change its permissions or leave it out")
    return found


def _copy(file: Path, target: Path) -> None:
    """Streamed, and visible only when complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.urandom(4).hex()}.tmp")
    with file.open("rb") as source, draft.open("wb") as out:
        while chunk := source.read(CHUNK):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(target)
    sync_folder(target.parent)


@dataclass(slots=True)
class LandingBytes:
    """One landing object; each call opens it anew and yields its decompressed bytes."""

    store: ObjectStore
    stored: StoredObject
    compression: str | None = field(default=None, init=False)
    size: int = field(default=0, init=False)  # decompressed, as far as the last pass got
    damage: tuple[str, str] | None = field(default=None, init=False)  # code and sentence, once a pass met it

    def __post_init__(self) -> None:
        with self.store.open(self.stored.key) as stream:
            self.compression = "gzip" if stream.read(2) == GZIP else None

    def __call__(self) -> Iterator[bytes]:
        self.size = 0
        with self.store.open(self.stored.key) as stream:
            for chunk in self._unpacked(stream) if self.compression else iter(lambda: stream.read(CHUNK), b""):
                self.size += len(chunk)
                yield chunk

    def _unpacked(self, stream: BinaryIO) -> Iterator[bytes]:
        """The members of a gzip stream one after the other; stops, with `damage` set, where it can't go on."""
        limit = FREE_EXPANSION + MOST_EXPANSION * self.stored.size
        member, packed = zlib.decompressobj(_GZIP_WINDOW), b""
        while packed := packed or stream.read(_PIECE):
            if member.eof:
                if not packed.strip(b"\0"):  # padding
                    packed = b""
                    continue
                member = zlib.decompressobj(_GZIP_WINDOW)
            try:
                chunk = member.decompress(packed, CHUNK)
            except zlib.error as error:
                self.damage = ("damaged_gzip", f"the gzip stream is damaged after {self.size} bytes: {error}")
                return
            packed = member.unused_data if member.eof else member.unconsumed_tail
            if chunk:
                yield chunk
            if self.size > limit:
                self.damage = ("gzip_bomb", f"{self.stored.size} bytes of gzip give more than {limit}: not read on")
                return
        if not member.eof:
            self.damage = ("damaged_gzip", f"the gzip stream breaks off after {self.size} bytes")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a byte range, and the sha256 of all of it."""

    head: bytes
    sha256: str


def excerpts(
    chunks: Iterable[bytes], ranges: Iterable[tuple[int, int]], longest: int
) -> dict[tuple[int, int], Excerpt]:
    """The given (offset, length) ranges of a stream in one pass, at most `longest` bytes of each held."""
    waiting = sorted(set(ranges), reverse=True)
    active: list[_Range] = []
    done: dict[tuple[int, int], Excerpt] = {}
    at = 0
    for chunk in chunks:
        while waiting and waiting[-1][0] < at + len(chunk):
            active.append(_Range(*waiting.pop(), longest))
        for part in active:
            part.feed(chunk, at)
        at += len(chunk)
        done |= {(p.offset, p.length): p.excerpt() for p in active if p.offset + p.length <= at}
        active = [p for p in active if p.offset + p.length > at]
        if not active and not waiting:
            break
    left = [*active, *(_Range(*span, longest) for span in waiting)]  # ranges that reach beyond the end
    return done | {(p.offset, p.length): p.excerpt() for p in left}


class _Range:
    def __init__(self, offset: int, length: int, longest: int) -> None:
        self.offset, self.length, self.longest = offset, length, longest
        self.head = b""
        self.hash = hashlib.sha256()

    def feed(self, chunk: bytes, at: int) -> None:
        part = chunk[max(0, self.offset - at) : max(0, self.offset + self.length - at)]
        self.hash.update(part)
        self.head += part[: self.longest - len(self.head)]

    def excerpt(self) -> Excerpt:
        return Excerpt(self.head, self.hash.hexdigest())
