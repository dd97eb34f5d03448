"""Landing objects on S3: listed with what was known before, fetched once, and never half.

An object is downloaded whole before anyone reads it, to a file without a name that is gone with the process. A read
that breaks off goes on from where it stopped (range and ETag), so what is read is one state of the object: of one that
was replaced meanwhile, the new one. Small objects are fetched several at a time when they are listed, and kept until
they are opened; larger ones are fetched again by `open`. Uploads in progress aren't listed by S3 itself.

What concerns one object (deleted, archived, forbidden) leaves that object out; anything else (no connection, 5xx and
throttling that outlast the retries, no credentials) is an ObjectError for the whole store: infrastructure, so no object
is called bad for it. What was hashed until then stays in the index.

Not covered: which pages are listed (`objects_listing.py`), the client (`objects_client.py`), S3 Express buckets.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from flywheel.config import Ingest
from flywheel.errors import ObjectUnread
from flywheel.store import objects_listing as listing
from flywheel.store.objects import Notes, Opened, StoredObject, check_key, is_ignored
from flywheel.store.objects_client import S3Place, explained
from flywheel.store.objects_download import Download
from flywheel.store.objects_files import CHUNK
from flywheel.store.objects_index import Entry, ObjectIndex
from flywheel.store.objects_listing import Listed, Page
from flywheel.store.objects_scratch import Key, Scratch, scratch_of
from flywheel.workspace import Workspace

SMALL = 4 << 20  # bytes; fetched whole into memory, `AT_ONCE` of them
AT_ONCE = 8
_SAVED = 256  # hashed objects between two writes of the index


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects below a prefix. Keys are relative to `base`; `client` is `place.client()`."""

    place: S3Place
    client: Any
    index: ObjectIndex | None = None  # without one, all is listed and hashed each time
    base: str = ""
    scratch: Scratch = field(default_factory=lambda: Scratch(Path(tempfile.gettempdir())), compare=False)
    settle: float = 0.0  # seconds that an object must have been left alone
    full_hours: float = 24.0  # 0: all is listed each time
    everything: bool = False  # hidden and unfinished names too
    page: int = listing.PAGE

    def one(self, key: str, listed: Listed, notes: Notes) -> list[StoredObject]:
        """That object, unless it is left out."""
        found = dict(self._hashed({key: listed}, notes))
        return [StoredObject(key, e.size, e.sha256, e.state) for key, e in found.items()]

    def list(self, notes: Notes | None = None) -> list[StoredObject]:
        """Every object that is known, after asking for what is new."""
        known = self.index.entries() if self.index else {}
        sweep = self._sweep(known)
        fresh = {
            key: item
            for key, item in sweep.found.items()
            if key not in known or (known[key].state, known[key].size) != (item.etag, item.size)
        }
        gone = known.keys() - sweep.found.keys() if sweep.full else set()
        after = {key: entry for key, entry in known.items() if key not in fresh and key not in gone}
        after.update(self._hashed(fresh, notes))
        if self.index:
            self.index.replace(known, after)
            self.index.set_marks({"cursor": sweep.cursor})
            if sweep.full:
                self.index.set_marks({"full": repr(time.time()), "order": sweep.order})
        return [StoredObject(key, e.size, e.sha256, e.state) for key, e in sorted(after.items())]

    def open(self, stored: StoredObject) -> Opened:
        """The object's bytes, downloaded to a file without a name."""
        stream = self.scratch.kept(self._kept_as(stored))
        if stream is not None:
            return Opened(stored, stream)
        file = self.scratch.file()
        try:
            found = StoredObject(stored.key, *self._download(stored.key, file).run(stored.state))
        except BaseException:
            file.close()
            raise
        return Opened(found, self.scratch.keep_large(self._kept_as(found), file))

    def put(self, key: str, data: bytes | BinaryIO) -> StoredObject:
        """Upload an object, in parts if it's large; S3 shows it when it's complete."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        check_key(key, self.place.url())
        source = io.BytesIO(data) if isinstance(data, bytes) else data
        digest = hashlib.sha256()
        for chunk in iter(lambda: source.read(CHUNK), b""):
            digest.update(chunk)
        size = source.tell()
        source.seek(0)
        try:
            self.client.upload_fileobj(source, self.place.bucket, self.base + key)
        except (BotoCoreError, ClientError) as error:
            raise explained(error, self.place) from error
        except Boto3Error as error:  # the transfer's own, with the client's as its context
            raise explained(
                error.__context__ if isinstance(error.__context__, Exception) else error, self.place
            ) from error
        return StoredObject(key, size, digest.hexdigest())

    def delete(self, key: str) -> None:
        """Remove an object; one that isn't there is no error. Versions that the bucket keeps are its owner's affair."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.client.delete_object(Bucket=self.place.bucket, Key=self.base + key)
        except (BotoCoreError, ClientError) as error:
            raise explained(error, self.place) from error
        if self.index:
            self.index.remove([key])

    def _sweep(self, known: Mapping[str, Entry]) -> listing.Sweep:
        marks = self.index.marks() if self.index else {}
        order = marks.get("order", "")
        old = time.time() - float(marks.get("full", "0")) >= self.full_hours * 3600
        if old or listing.needs_full(len(known), order, self.page):
            return listing.everything(self.pages)
        return listing.some(self.pages, known, order, marks.get("cursor", ""), self.page)

    def pages(self, after: str) -> Iterator[Page]:
        """What the server lists after a key, page by page. Errors: ObjectError."""
        from botocore.exceptions import BotoCoreError, ClientError

        arguments: dict[str, Any] = {"Bucket": self.place.bucket, "Prefix": self.place.prefix, "MaxKeys": self.page}
        if after:
            arguments["StartAfter"] = self.base + after
        while True:
            try:
                answer = self.client.list_objects_v2(**arguments)
            except (BotoCoreError, ClientError) as error:
                raise explained(error, self.place) from error
            contents = answer.get("Contents", ())
            if contents:
                yield Page(last=self._key(contents[-1]), items=dict(filter(self._counts, map(self._item, contents))))
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _key(self, content: Mapping[str, Any]) -> str:
        return str(content["Key"]).removeprefix(self.base)

    def _item(self, content: Mapping[str, Any]) -> tuple[str, Listed]:
        modified = content["LastModified"].timestamp()
        return self._key(content), Listed(size=content["Size"], etag=content["ETag"].strip('"'), modified=modified)

    def _counts(self, item: tuple[str, Listed]) -> bool:
        """Whether it's an object to read: no folder's marker, no unfinished name, settled."""
        key, listed = item
        if key.endswith("/") or not key or (self.settle and time.time() - listed.modified < self.settle):
            return False
        return self.everything or not any(is_ignored(part) for part in key.split("/"))

    def _hashed(self, fresh: Mapping[str, Listed], notes: Notes | None) -> Iterator[tuple[str, Entry]]:
        """The objects with their hashes, several at a time; what is done is saved even if the rest fails."""
        left = iter(fresh.items())
        with ThreadPoolExecutor(AT_ONCE) as threads:
            while batch := dict(islice(left, _SAVED)):
                done: dict[str, Entry] = {}
                try:
                    for key, got in zip(batch, threads.map(self._hash, batch, batch.values()), strict=True):
                        if isinstance(got, Entry):
                            done[key] = got
                            if notes is not None:
                                notes.replaced += got.state != batch[key].etag
                        elif notes is None:
                            raise got
                        else:
                            notes.leave_out(got)
                finally:
                    if self.index:
                        self.index.add(done)
                yield from done.items()

    def _hash(self, key: str, listed: Listed) -> Entry | ObjectUnread:
        """The entry of one object, or why it is left out. Errors: ObjectError for what is no fault of this object."""
        held = io.BytesIO() if listed.size <= SMALL else None
        try:
            stored = StoredObject(key, *self._download(key, held).run())
        except ObjectUnread as error:
            return error
        if held is not None:
            self.scratch.keep(self._kept_as(stored), held.getvalue())
        return Entry(size=stored.size, state=stored.state, sha256=stored.sha256, modified=listed.modified)

    def _kept_as(self, stored: StoredObject) -> Key:
        return self.place.url(self.base + stored.key), stored.state

    def _download(self, key: str, sink: BinaryIO | None) -> Download:
        return Download(self.client.get_object, self.place, self.base + key, sink)


def open_landing(workspace: Workspace, settings: Ingest, *, full: bool = False) -> S3Store:
    """The landing zone at `[ingest] landing`. Errors: ConfigError for an impossible address, ObjectError."""
    typed = S3Place.parse(settings.landing, settings.endpoint)
    prefix = typed.prefix if not typed.prefix or typed.prefix.endswith("/") else typed.prefix + "/"
    place = replace(typed, prefix=prefix)
    client = place.client()
    return S3Store(
        place,
        client,
        index=ObjectIndex(workspace.object_index, f"{client.meta.endpoint_url} {place.url()}"),
        base=prefix,
        scratch=scratch_of(workspace.object_index.parent),
        settle=settings.settle_seconds,
        full_hours=0.0 if full else settings.full_listing_hours,
    )


def open_path(workspace: Workspace, settings: Ingest, url: str) -> S3Store:
    """An object or a prefix that a person named, with keys from its last folder on: `s3://b/x/runs` gives `runs/...`.

    Errors: ConfigError for an impossible address, ObjectError.
    """
    place = S3Place.parse(url.rstrip("/") if url.count("/") > 3 else url, settings.endpoint)
    client = place.client()
    return S3Store(
        place,
        client,
        index=ObjectIndex(workspace.object_index, f"{client.meta.endpoint_url} {place.url()}"),
        base=place.prefix[: place.prefix.rfind("/") + 1],
        scratch=scratch_of(workspace.object_index.parent),
        full_hours=0.0,
        everything=True,
    )


def named(store: S3Store, notes: Notes) -> list[StoredObject]:
    """What a person means by an address: the object of exactly that key, or all below it, or all that begin so."""
    place, name = store.place, store.place.prefix.removeprefix(store.base)
    first = next(store.pages(""), None)
    if first is not None and name in first.items:  # it sorts before all others that begin so
        return store.one(name, first.items[name], notes)
    below = replace(store, place=replace(place, prefix=f"{place.prefix}/")) if name else store
    return below.list(notes) or store.list(notes)
