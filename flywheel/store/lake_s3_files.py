"""`s3://` for DuckDB through pyarrow, safe for the threads with which DuckDB reads ahead.

DuckDB reads a place of a Python file by `seek` and then `read`, and does so from several threads with one file. Between
the two another thread may seek: short reads, pages that don't decompress, footers that aren't any. So a seek here holds
for the thread that asked, and its next read is one positioned read; a read without a seek goes on where the last ended.

Not covered: credentials and addresses (`lake_s3.py`), writing.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from fsspec.implementations.arrow import ArrowFSWrapper


class BucketFiles(ArrowFSWrapper):  # type: ignore[misc]  # fsspec has no types
    """fsspec over `pyarrow.fs.S3FileSystem`, for `DuckDBPyConnection.register_filesystem`."""

    protocol = "s3"

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> Any:
        file = super()._open(path, mode, block_size, **options)
        if mode == "rb" and options.get("seekable", True):
            file.stream = PositionedStream(file.stream)
        return file


class PositionedStream:
    """A `pyarrow.NativeFile` whose seeks are each thread's own."""

    def __init__(self, file: Any) -> None:
        """`file`: open for random access."""
        self._file = file
        self._size: int = file.size()
        self._next = 0  # where a read without a seek begins
        self._own = threading.local()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._file.closed)

    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def writable(self) -> bool:
        """It isn't."""
        return False

    def tell(self) -> int:
        """Where this thread's next read begins."""
        sought: int | None = getattr(self._own, "sought", None)
        return self._next if sought is None else sought

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Where this thread's next read begins, and no other's."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._own.sought = origin + offset
        return origin + offset

    def read(self, size: int | None = None) -> bytes:
        """Up to `size` bytes (None or negative: the rest)."""
        start = self.tell()
        rest = max(self._size - start, 0)
        data: bytes = self._file.read_at(rest if size is None or size < 0 else min(size, rest), start)
        self._own.sought = None
        self._next = start + len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer; the number of bytes."""
        data = self.read(memoryview(buffer).nbytes)
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
