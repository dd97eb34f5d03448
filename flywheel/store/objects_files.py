"""Regular files as objects: what they are, opened without waiting, and their bytes as they were when they were hashed.

Errors are sentences that name the path and the remedy. Not covered: folders (`objects.py` walks them), Windows.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from pathlib import Path

from flywheel.errors import ObjectGone, ObjectUnread

CHUNK = 1 << 20


def stat_regular(path: Path) -> os.stat_result:
    """The status of what the path leads to. Errors: ObjectUnread if that is no regular file, or isn't there."""
    try:
        status = path.stat()
    except OSError as error:
        raise unread(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise ObjectUnread(
            f"{shown(path)} is neither a file nor a folder (a pipe or a device?); save it to a file first"
        )
    return status


def open_regular(path: Path) -> io.FileIO:
    """A regular file, opened; never waits for the other end of a pipe. Errors: ObjectUnread, ObjectGone."""
    stat_regular(path)
    try:
        return io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        raise unread(path, error) from error


def unread(path: Path, error: OSError) -> ObjectUnread:
    """The error with a sentence for a path that the system does not let us read."""
    if isinstance(error, PermissionError):
        return ObjectUnread(f"{shown(path)} can't be read by this user; change its permissions or leave it out")
    if isinstance(error, FileNotFoundError):
        return ObjectGone(f"{shown(path)} does not exist, or is a link that leads nowhere; it is left out")
    return ObjectUnread(f"{shown(path)} can't be read ({error.strerror}); mend it or leave it out")


def shown(path: object) -> str:
    """A path for a sentence: names may hold line breaks, and bytes that are no text."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def state_of(status: os.stat_result) -> str:
    """What changes when a file does."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_ino}"


def sha256_of(file: io.FileIO, size: int) -> str | None:
    """sha256 of the first bytes; None if there are fewer."""
    digest, at = hashlib.sha256(), 0
    while at < size and (chunk := os.pread(file.fileno(), min(CHUNK, size - at), at)):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest() if at == size else None


class Window(io.RawIOBase):
    """The first bytes of a file, as many as were hashed, whatever is appended. Errors: ObjectUnread if they change."""

    def __init__(self, file: io.FileIO, name: str, size: int, sha256: str, state: str) -> None:
        self._file, self._name, self._size, self._sha256, self._state = file, name, size, sha256, state
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = max(0, min(len(buffer), self._size - self._at))
        data = os.pread(self._file.fileno(), left, self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        if (left and not data) or (data and self._at == self._size):
            self.check()
        return len(data)

    def check(self) -> None:
        """Appending leaves the bytes that were hashed as they are; anything else doesn't."""
        state = state_of(os.fstat(self._file.fileno()))
        if state != self._state and sha256_of(self._file, self._size) != self._sha256:
            raise ObjectUnread(
                f"{shown(self._name)} was rewritten while it was read, so none of it is kept; write files under a "
                f"name that ends in .tmp and rename them when they are whole. The next ingest reads what it became"
            )
        self._state = state

    def close(self) -> None:
        self._file.close()
        super().close()
