"""One object from S3, whole: what breaks off is resumed, what was replaced is started over, what is gone is said.

Each request after the first asks for the ETag of the first (If-Match), so the bytes are those of one object and never a
mixture of two. Between tries without progress there is a pause; after `RESUMES` of them it is an error with a sentence.

Not covered: several parts of one object at a time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from flywheel.errors import ObjectError, ObjectUnread
from flywheel.store.objects_client import REPLACED, S3Place, code_of, explained, is_servers_fault
from flywheel.store.objects_files import CHUNK

RESUMES = 3  # tries in a row without a byte of progress
RESTARTS = 5  # times that the object was replaced while it was read
PAUSE = 0.5  # seconds, doubled each time


@dataclass(slots=True)
class Download:
    """One object on its way. `get` is the client's get_object."""

    get: Callable[..., Any]
    place: S3Place
    key: str  # in the bucket
    sink: BinaryIO | None = None  # None: only the hash is wanted
    replaced: int = 0
    etag: str = ""
    size: int = 0
    _done: int = 0
    _hash: Any = None

    def run(self, etag: str = "") -> tuple[int, str, str]:
        """Size, sha256 and ETag of what was read: of the object with the given ETag, or of the one in its place.

        Errors: ObjectGone, or ObjectError with a sentence.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        self._start_over(etag)
        failures = 0
        while True:
            before = self._done
            try:
                self._read_on()
                return self.size, self._hash.hexdigest(), self.etag
            except (ClientError, BotoCoreError, _BrokenOff) as error:
                if code_of(error) in REPLACED and self.replaced < RESTARTS:
                    self.replaced += 1
                    self._start_over("")
                    continue
                failures = 0 if self._done > before else failures + 1
                if failures == RESUMES or (isinstance(error, ClientError) and not is_servers_fault(error)):
                    raise self._given_up(error) from error
                time.sleep(PAUSE * 2**failures)

    def _start_over(self, etag: str) -> None:
        self.etag, self._done, self._hash = etag, 0, hashlib.sha256()
        if self.sink is not None:
            self.sink.seek(0)
            self.sink.truncate()

    def _read_on(self) -> None:
        """From where it stands to the end, in one request."""
        arguments: dict[str, str] = {"IfMatch": f'"{self.etag}"'} if self.etag else {}
        if self._done:
            arguments["Range"] = f"bytes={self._done}-"
        answer = self.get(Bucket=self.place.bucket, Key=self.key, **arguments)
        if self._done and "ContentRange" not in answer:  # a server that knows no ranges
            self._start_over(self.etag)
        self.etag, self.size = answer["ETag"].strip('"'), self._done + answer["ContentLength"]
        for chunk in answer["Body"].iter_chunks(CHUNK):
            self._hash.update(chunk)
            if self.sink is not None:
                self.sink.write(chunk)
            self._done += len(chunk)
        if self._done != self.size:
            raise _BrokenOff(f"{self._done} of {self.size} bytes")

    def _given_up(self, error: Exception) -> ObjectError:
        said = explained(error, self.place, self.key)
        if not self._done or isinstance(said, ObjectUnread):
            return said
        return ObjectError(
            f"{self.place.url(self.key)}: the server broke off after {self._done} of {self.size} bytes and did not go "
            f"on ({code_of(error) or type(error).__name__}); nothing of it was staged. Run the same command when the "
            f"server answers again"
        )


class _BrokenOff(Exception):
    """The answer ended early without an error of its own."""
