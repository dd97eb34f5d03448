"""A lake below an `s3://` prefix: the same tables and control files as in a folder, on any server that speaks S3.

Delta tables are written by delta-rs with conditional puts, so two publishers never overwrite a commit. DuckDB reads
through pyarrow's S3 file system: no extension, no download. A control file is replaced only if it is what this process
last saw of it (If-Match), so a publisher that lost its lease without noticing can't move HEAD.

The lease is an object that its holder renews. Nobody compares clocks: a waiter takes it over when it hasn't changed for
`TTL` seconds of the waiter's own. Released, it stays as an object that says so.

Not covered: credentials and what S3's errors mean (`objects_client.py`), servers without conditional puts.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb

from flywheel.errors import LakeError
from flywheel.store import artifacts
from flywheel.store.objects_client import REPLACED, S3Place, code_of, explained

LEASE = "publisher.lease"
STAGED = "staged"
TTL = 30.0
RENEWALS = 5  # in one TTL
POLL = 0.2


@dataclass(slots=True)
class BucketPlace:
    """One lake's place below a prefix."""

    place: S3Place
    client: Any
    credentials: Any  # of boto3's chain, for libraries whose own is shorter; renewed by themselves, written nowhere
    ttl: float = TTL
    _seen: dict[str, str | None] = field(default_factory=dict)  # ETag as last read or written; None: was not there

    @classmethod
    def open(cls, uri: str, endpoint: str) -> BucketPlace:
        """The place at an address. Errors: ConfigError for an impossible one, ObjectError."""
        import botocore.session

        place = S3Place.parse(uri.rstrip("/"), endpoint)
        return cls(place, place.client(), botocore.session.get_session().get_credentials())

    @property
    def uri(self) -> str:
        """`s3://bucket/prefix`."""
        return self.place.url()

    @property
    def options(self) -> Mapping[str, str]:
        """For delta-rs: where the server is, and that it knows conditional puts. Credentials by its own chain."""
        endpoint = self.client.meta.endpoint_url
        frozen = self._frozen()
        return {
            "aws_conditional_put": "etag",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": self.client.meta.region_name or "us-east-1",
            "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "false",
            **({"AWS_ACCESS_KEY_ID": frozen.access_key, "AWS_SECRET_ACCESS_KEY": frozen.secret_key} if frozen else {}),
            **({"AWS_SESSION_TOKEN": frozen.token} if frozen and frozen.token else {}),
        }

    def table(self, name: str) -> str:
        """`s3://bucket/prefix/name`."""
        return f"{self.uri}/{name}"

    def read(self, name: str) -> bytes | None:
        """A control file, and remember which version of it this was."""
        found = self._get(self._key(name))
        data, self._seen[name] = found or (None, None)
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replace a file if it is as it was last read here, or still isn't there; one never read here, in any case."""
        conditions = {} if name not in self._seen else _condition(self._seen[name])
        self._seen[name] = self._put(name, data, conditions)

    def delete(self, name: str) -> None:
        """Delete a file; a no-op if there is none."""
        self._call("delete_object", self._key(name))
        self._seen[name] = None

    def names(self, folder: str) -> list[str]:
        """Files directly below a folder."""
        prefix = self._key(f"{folder}/" if folder else "")
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", None, Prefix=prefix, Delimiter="/", **more)
            found += [content["Key"] for content in page.get("Contents", ())]
            if not page.get("IsTruncated"):
                break
            more = {"ContinuationToken": page["NextContinuationToken"]}
        root = self._key("")
        return sorted(key.removeprefix(root) for key in found if key != prefix)

    @contextmanager
    def lease(self, wait_s: float) -> Iterator[None]:
        """Hold the lease object, renewed until the block ends. Errors: LakeError if it can't be had in that time."""
        owner = os.urandom(8).hex()
        tag = self._acquire(owner, wait_s)
        stop = threading.Event()
        held = _Held(tag)
        renewer = threading.Thread(target=self._renew, args=(owner, held, stop), daemon=True)
        renewer.start()
        try:
            yield
        finally:
            stop.set()
            renewer.join()
            if held.tag is not None:
                with suppress(LakeError):  # taken over in the last moment: then it is not ours to release
                    self._put(LEASE, b'{"owner":null}', _condition(held.tag))

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let the connection read `s3://` through pyarrow's file system."""
        from pyarrow.fs import S3FileSystem

        from flywheel.store.lake_s3_files import BucketFiles

        parts, frozen = urlsplit(self.client.meta.endpoint_url), self._frozen()
        keys: dict[str, Any] = {}
        if frozen is not None:
            keys = {"access_key": frozen.access_key, "secret_key": frozen.secret_key, "session_token": frozen.token}
        files = S3FileSystem(
            endpoint_override=parts.netloc,
            scheme=parts.scheme,
            region=self.client.meta.region_name or "us-east-1",
            **keys,
        )
        con.register_filesystem(BucketFiles(files))

    def keep_staged(self, folder: Path) -> None:
        """Upload a staged batch; its manifest last, so that half a copy is none."""
        for name in (*sorted(artifacts.load(folder).files), artifacts.MANIFEST):
            with (folder / name).open("rb") as file:
                self._upload(f"{STAGED}/{folder.name}/{name}", file)

    def fetch_staged(self, folder: Path) -> None:
        """Download a kept batch into the folder, if it isn't there."""
        if artifacts.is_finished(folder):
            return
        draft = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
        draft.mkdir(parents=True)
        for name in self.names(f"{STAGED}/{folder.name}"):
            self._download(name, draft / name.rsplit("/", 1)[1])
        artifacts.load(draft, verify=True)
        if folder.is_dir():
            shutil.rmtree(folder)
        draft.rename(folder)

    def drop_staged(self, batch_id: str) -> None:
        """Delete the copy, its manifest first."""
        names = self.names(f"{STAGED}/{batch_id}")
        for name in sorted(names, key=lambda name: not name.endswith(artifacts.MANIFEST)):
            self.delete(name)

    def _acquire(self, owner: str, wait_s: float) -> str:
        deadline = time.monotonic() + wait_s
        watched: tuple[str, float] | None = None  # the ETag of another's lease, and since when it hasn't changed
        while True:
            found = self._get(self._key(LEASE))
            now = time.monotonic()
            if found is None:
                taken = self._try_put(owner, None)
            else:
                data, tag = found
                if watched is None or watched[0] != tag:
                    watched = (tag, now)
                is_free = json.loads(data)["owner"] is None
                taken = self._try_put(owner, tag) if is_free or now - watched[1] > self.ttl else None
            if taken is not None:
                return taken
            if now > deadline:
                raise LakeError(
                    f"another process is publishing: {self.uri}/{LEASE} was held for {wait_s:g} s; try again later"
                )
            time.sleep(POLL)

    def _try_put(self, owner: str, tag: str | None) -> str | None:
        try:
            return self._put(LEASE, _lease_of(owner), _condition(tag))
        except LakeError:
            return None  # somebody else was quicker

    def _renew(self, owner: str, held: _Held, stop: threading.Event) -> None:
        while not stop.wait(self.ttl / RENEWALS):
            # None where the lease was taken over: writes then fail by If-Match, and say so.
            held.tag = None if held.tag is None else self._try_put(owner, held.tag)

    def _key(self, name: str) -> str:
        return f"{self.place.prefix}/{name}" if self.place.prefix else name

    def _frozen(self) -> Any:
        """The credentials of this moment; None where the chain has none."""
        return None if self.credentials is None else self.credentials.get_frozen_credentials()

    def _get(self, key: str) -> tuple[bytes, str] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self.client.get_object(Bucket=self.place.bucket, Key=key)
        except (BotoCoreError, ClientError) as error:
            if code_of(error) in ("NoSuchKey", "404"):
                return None
            raise explained(error, self.place, key) from error
        return answer["Body"].read(), answer["ETag"]

    def _put(self, name: str, data: bytes, conditions: Mapping[str, str]) -> str:
        """Put a file; its new tag. Errors: LakeError if the condition doesn't hold, so somebody changed it."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self.client.put_object(Bucket=self.place.bucket, Key=self._key(name), Body=data, **conditions)
        except (BotoCoreError, ClientError) as error:
            if code_of(error) in (*REPLACED, "ConditionalRequestConflict", "NoSuchKey"):
                raise LakeError(
                    f"{self.uri}/{name} was changed by another publisher meanwhile; nothing was overwritten, try again"
                ) from error
            raise explained(error, self.place, self._key(name)) from error
        tag_now: str = answer["ETag"]
        return tag_now

    def _call(self, verb: str, key: str | None, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        named = {} if key is None else {"Key": key}
        try:
            return getattr(self.client, verb)(Bucket=self.place.bucket, **named, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise explained(error, self.place, key) from error

    def _upload(self, name: str, file: Any) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.client.upload_fileobj(file, self.place.bucket, self._key(name))
        except (BotoCoreError, ClientError) as error:
            raise explained(error, self.place, self._key(name)) from error

    def _download(self, name: str, target: Path) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with target.open("wb") as file:
                self.client.download_fileobj(self.place.bucket, self._key(name), file)
        except (BotoCoreError, ClientError) as error:
            raise explained(error, self.place, self._key(name)) from error


@dataclass(slots=True)
class _Held:
    """The tag under which the lease is held; None once it was lost."""

    tag: str | None


def _condition(tag: str | None) -> dict[str, str]:
    return {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}


def _lease_of(owner: str) -> bytes:
    # The nonce makes every renewal another version, also for servers whose ETag is a hash of the bytes.
    return json.dumps({"owner": owner, "nonce": os.urandom(8).hex()}).encode()
