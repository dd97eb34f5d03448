"""Fragments that wait for others of their key until a batch's end: in memory, beyond a budget in files without a name.

They are not redacted yet (what belongs together shares its placeholders), so they may lie on disk only where nothing
survives the process: the files are deleted before they are written to. Their keys' hashes share them out over several
files, and one that is still too large is shared out again, until what is in it fits the budget.

Not covered: a single key larger than the budget (it is held whole).
"""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flywheel.records import Fragment

BUDGET = 48 << 20  # bytes of pickled fragments; as objects they are several times larger, one key at a time
_FANOUT = 16  # one hexadecimal digit of the key's hash a level
_LENGTHS = 8 + 4  # bytes before each entry: the hash of its key, the length of what follows

Packed = tuple[bytes, bytes]
"""The hash of a fragment's key, and the fragment."""


def packed(fragment: Fragment) -> Packed:
    """The fragment as it is held, or passed from process to process."""
    return hashlib.sha256(fragment.key.encode("utf-8", "surrogatepass")).digest()[:8], pickle.dumps(fragment, 5)


class Held:
    """Takes fragments in, and gives them out key by key. Close it (or leave its `with`) to let go of its files."""

    def __init__(self, folder: Path, budget: int = BUDGET, level: int = 0) -> None:
        """`folder`: of the file system that spilled fragments may lie on."""
        self._folder, self._budget, self._level = folder, budget, level
        self._entries: list[Packed] = []
        self._size = 0
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()

    def __len__(self) -> int:
        """Bytes that are held, in memory or not."""
        return self._size

    def add(self, entry: Packed) -> None:
        """Take in one fragment."""
        self._size += len(entry[1]) + _LENGTHS
        if self._files:
            self._write(entry)
            return
        self._entries.append(entry)
        if self._size > self._budget and self._level < 2 * len(entry[0]):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files = [tempfile.TemporaryFile(dir=self._folder) for _ in range(_FANOUT)]  # noqa: SIM115 - closed on exit
            for held in self._entries:
                self._write(held)
            self._entries = []

    def groups(self) -> Iterator[list[Fragment]]:
        """All fragments of one key, in the order they were taken in; one key after the other, in no order."""
        if not self._files:
            by_key: dict[bytes, list[bytes]] = {}
            for key, data in self._entries:
                by_key.setdefault(key, []).append(data)
            self._entries = []
            while by_key:
                yield [pickle.loads(data) for data in by_key.pop(next(iter(by_key)))]
        for file in self._files:
            with Held(self._folder, self._budget, self._level + 1) as part:
                for entry in _read(file):
                    part.add(entry)
                file.close()
                yield from part.groups()

    def _write(self, entry: Packed) -> None:
        key, data = entry
        file = self._files[int(key.hex()[self._level], 16)]
        file.write(key + len(data).to_bytes(4, "little") + data)


def _read(file: BinaryIO) -> Iterator[Packed]:
    file.seek(0)
    while head := file.read(_LENGTHS):
        yield head[:8], file.read(int.from_bytes(head[8:], "little"))
