"""What was downloaded and waits to be read: files without a name, gone with the process.

Small objects lie one after the other in one file until they are opened; of the large ones the last is kept, since a
large object is often opened once more (a sniff, the next range of it). Both are told by address and ETag.

Not covered: what is shared between processes (each has its own).
"""

from __future__ import annotations

import io
import os
import tempfile
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from flywheel.store.objects_files import CHUNK, Window, state_of

KEPT = 1 << 30  # bytes of small objects that wait to be opened

Key = tuple[str, str]
"""Address and ETag of an object."""


@dataclass(slots=True)
class Scratch:
    """The files of one process in a folder."""

    folder: Path
    _file: BinaryIO | None = None
    _size: int = 0
    _at: dict[Key, tuple[int, int]] = field(default_factory=dict)
    _large: tuple[Key, BinaryIO] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def file(self) -> BinaryIO:
        """A new empty file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryFile(dir=self.folder)

    def keep(self, key: Key, data: bytes) -> None:
        """Keep a small object, while there is room."""
        with self._lock:
            if self._size + len(data) <= KEPT:
                self._file = self._file or self.file()
                self._file.seek(self._size)
                self._file.write(data)
                self._at[key] = (self._size, len(data))
                self._size += len(data)

    def kept(self, key: Key) -> BinaryIO | None:
        """A small object, if it was kept, or the last large one."""
        with self._lock:
            if self._large is not None and self._large[0] == key:
                return _again(self._large[1], key[0])
            place = self._at.get(key)
            if place is None or self._file is None:
                return None
            self._file.seek(place[0])
            return io.BytesIO(self._file.read(place[1]))

    def keep_large(self, key: Key, file: BinaryIO) -> BinaryIO:
        """Keep a file that is full now in the place of the last one, and give it to be read."""
        file.flush()
        with self._lock:
            if self._large is not None:
                self._large[1].close()
            self._large = (key, file)
            return _again(file, key[0])


@lru_cache(maxsize=4)
def scratch_of(folder: Path) -> Scratch:
    """The one of this process: what was fetched when it was listed is there when it's read."""
    return Scratch(folder)


def _again(file: BinaryIO, name: str) -> BinaryIO:
    """The file from its start, with a position of its own."""
    handle = io.FileIO(os.dup(file.fileno()))
    status = os.fstat(handle.fileno())
    return io.BufferedReader(Window(handle, name, status.st_size, "", state_of(status)), CHUNK)
