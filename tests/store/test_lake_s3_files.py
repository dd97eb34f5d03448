"""One file read from many threads, each with seeks of its own, as DuckDB does when it reads ahead."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from flywheel.store.lake_s3_files import PositionedStream


@pytest.fixture
def stream(tmp_path: Path) -> PositionedStream:
    (tmp_path / "numbers").write_bytes(b"".join(n.to_bytes(4, "big") for n in range(100_000)))
    return PositionedStream(pa.OSFile(str(tmp_path / "numbers")))


def test_each_thread_reads_what_it_sought(stream: PositionedStream) -> None:
    def read_some(seed: int) -> bool:
        places = random.Random(seed)
        for _ in range(500):
            n = places.randrange(100_000)
            stream.seek(4 * n)
            os.sched_yield()  # between the two is where another thread seeks
            if stream.read(4) != n.to_bytes(4, "big"):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read_some, range(8)))


def test_reads_without_a_seek_go_on_whatever_the_thread(stream: PositionedStream) -> None:
    with ThreadPoolExecutor(1) as other:
        found = [stream.read(4), other.submit(stream.read, 4).result(), stream.read(4)]
    assert [int.from_bytes(data, "big") for data in found] == [0, 1, 2]


def test_ends_as_files_do(stream: PositionedStream) -> None:
    assert stream.seek(-4, os.SEEK_END) == 399_996 == stream.tell()
    assert stream.read() == (99_999).to_bytes(4, "big")
    assert stream.read(10) == b""
    stream.seek(399_998)
    buffer = bytearray(10)
    assert stream.readinto(buffer) == 2
    stream.close()
    assert stream.closed
