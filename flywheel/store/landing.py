"""Landing objects as streams of bytes: people's files put into the landing zone, and opened (unpacked) on the way out.

A file is named by its content: `<16 hex>-<name>`; of a folder the paths below it stay, so that readers see neighbours:
`<folder>/<path>/<16 hex>-<name>`. What lies there already, whatever it's called, is not put there again. What can't be
read is left out with a sentence, and the rest lands.

An object is opened once and stays open, so that it's the same bytes however often they are gone through. A damaged or
bomb-like stream gives what could be read and then says why it stopped (`damage`). Offsets are those of the unpacked
bytes.

Not covered: zip and other containers (`formats/containers.py`).
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from flywheel.config import Config
from flywheel.errors import ObjectUnread
from flywheel.store.landing_unpack import CHUNK, Compression, Unreadable, compression_of, repacked, unpacked
from flywheel.store.objects import FolderStore, Notes, ObjectStore, StoredObject, is_ignored, open_store
from flywheel.store.objects_files import Window, shown
from flywheel.store.objects_index import ObjectIndex
from flywheel.workspace import Workspace

_UNSAFE = re.compile(r"[^A-Za-z0-9@._-]+")  # an address in a name stays one, so that redaction sees it
_LONGEST = 120  # characters of a name: with its hash and a draft's suffix it has to fit 255 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What was put into the landing zone."""

    keys: tuple[str, ...]  # of every file that was read, new or there before
    refused: tuple[str, ...]  # a sentence for each file or folder that can't be read
    unread: tuple[str, ...]  # of the given paths: those of which nothing was read


def land(workspace: Workspace, config: Config, paths: Sequence[Path | str]) -> Landed:
    """Put files, folders (all files below) and `s3://` addresses into the landing zone, under their content's name.

    Errors: ObjectError if the landing zone, or the server of an address, can't be reached; ConfigError for an address
    that is none. A path that can't be read is no error: it is refused, and the others land.
    """
    notes = Notes()
    unread: list[str] = []
    keys: list[str] = []
    target = open_store(workspace, config)
    known = {stored.sha256: stored.key for stored in target.list(Notes())} if paths else {}
    for path in paths:
        before, n_before = len(notes.left_out), len(keys)
        source, found = _source(workspace, config, path, notes)
        for stored, folder in found:
            try:
                known[stored.sha256] = known.get(stored.sha256) or _put(target, source, stored, folder)
            except ObjectUnread as error:
                notes.leave_out(error)
                continue
            keys.append(known[stored.sha256])
        if len(keys) == n_before:
            unread.append(str(path))
            if len(notes.left_out) == before:
                notes.left_out.append(f"{shown(path)} holds no files; give files or folders of traces")
    return Landed(keys=tuple(keys), refused=tuple(dict.fromkeys(notes.left_out)), unread=tuple(unread))


def _source(
    workspace: Workspace, config: Config, path: Path | str, notes: Notes
) -> tuple[ObjectStore, list[tuple[StoredObject, str]]]:
    """Where the path's files are, and each with the folder it gets in the landing zone."""
    if str(path).startswith("s3:"):
        from flywheel.store.objects_s3 import named, open_path

        store = open_path(workspace, config.ingest, str(path))
        return store, [(stored, stored.key.rpartition("/")[0]) for stored in named(store, notes)]
    path = Path(path)
    whole = path.is_dir()
    root = path if whole else path.parent
    folder = FolderStore(root, ObjectIndex(workspace.object_index, f"folder:{root.absolute()}"), everything=True)
    if whole:
        name = path.resolve().name
        return folder, [(stored, f"{name}/{stored.key}".rpartition("/")[0]) for stored in folder.list(notes)]
    try:
        return folder, [(folder.one(path.name), "")]
    except ObjectUnread as error:
        notes.leave_out(error)
        return folder, []


def _put(target: ObjectStore, source: ObjectStore, stored: StoredObject, folder: str) -> str:
    opened = source.open(stored)
    with opened.stream:
        *folders, name = (*(part for part in folder.split("/") if part), stored.key.rpartition("/")[2])
        key = "/".join((*map(_part, folders), f"{opened.stored.sha256[:16]}-{_part(name)}"))
        return target.put(key, opened.stream).key


def uri_of(stored: StoredObject) -> str:
    """Where an object stands, under the name that it had before it landed: readers know files by their names."""
    folder, slash, name = stored.key.rpartition("/")
    return f"{folder}{slash}{name.removeprefix(f'{stored.sha256[:16]}-')}"


def _part(name: str) -> str:
    """A name as a part of a key: plain characters, not hidden, not like an unfinished one, short enough."""
    plain = _UNSAFE.sub("_", name)[-_LONGEST:].lstrip(".") or "file"
    return f"{plain}.landed" if is_ignored(plain) else plain


@dataclass(slots=True)
class LandingBytes:
    """One landing object, open until it's closed; each call yields its unpacked bytes from the start.

    Errors: ObjectGone when it's made and there is no such object any more; ObjectError if it can't be read, also while
    its bytes are gone through: then nothing of it may be kept.
    """

    store: ObjectStore
    stored: StoredObject  # the newer object of this key, if it was replaced since it was listed
    compression: Compression | None = field(default=None, init=False)
    size: int = field(default=0, init=False)  # unpacked, as far as the last pass got
    damage: tuple[str, str] | None = field(default=None, init=False)  # code and sentence, once a pass met it
    _stream: BinaryIO = field(init=False, repr=False)

    def __post_init__(self) -> None:
        opened = self.store.open(self.stored)
        self.stored, self._stream = opened.stored, opened.stream
        self.compression = compression_of(self._reader()(4))

    def __enter__(self) -> LandingBytes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None and isinstance(self._stream, BufferedReader) and isinstance(self._stream.raw, Window):
                self._stream.raw.check()  # also where it wasn't read to the end
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the object; what was found out about it stays."""
        self._stream.close()

    def __call__(self) -> Iterator[bytes]:
        self.size = 0
        read = self._reader()
        try:
            packed = self.compression
            for chunk in unpacked(read, packed, self.stored.size) if packed else iter(lambda: read(CHUNK), b""):
                self.size += len(chunk)
                yield chunk
        except Unreadable as error:
            self.damage = (error.code, str(error))

    def between(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of a range of an object that isn't compressed."""
        read = self._reader(start)
        while start < stop and (chunk := read(min(CHUNK, stop - start))):
            start += len(chunk)
            yield chunk

    def _reader(self, at: int = 0) -> Callable[[int], bytes]:
        """Reads on from where it stands itself: several passes may be under way."""

        def read(size: int) -> bytes:
            nonlocal at
            self._stream.seek(at)
            data = self._stream.read(size)
            at += len(data)
            return data

        return read


def packed_like(source: LandingBytes, data: bytes | Iterable[bytes]) -> BinaryIO:
    """The given bytes packed as the object is, as a file without a name: what takes its place when it's cut."""
    file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - whoever puts it there closes it
    repacked((data,) if isinstance(data, bytes) else data, source.compression, file)
    file.seek(0)
    return file


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
