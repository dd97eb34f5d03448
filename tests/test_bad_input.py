"""Bad input through the real command: each file gets its sentence, memory stays bounded, and its neighbours load.

One batch with everything in it and a good file beside each; the command runs without the right to read other users'
files, which root would have.
"""

from __future__ import annotations

import bz2
import ctypes
import gzip
import io
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from test_ingest import CONFIG, make_workspace, trace, write

from flywheel.ingest import ingest
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

MOST_MB = 350
LIBRARY_MB = 250  # what Great Expectations and pandas take by being imported
SPARSE = 300 << 20  # bytes: more than a record may have
noise = random.Random("bad input")


def line(ix: int, **keys: Any) -> bytes:
    return json.dumps(trace(ix, **keys)).encode() + b"\n"


def said(ix: int, text: str) -> bytes:
    return json.dumps(trace(ix, {"role": "user", "content": text})).encode() + b"\n"


def many(start: int, n: int = 200) -> bytes:
    return b"".join(line(start + ix, note=noise.randbytes(900).hex()) for ix in range(n))


def zipped(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members:
            made.writestr(name, data)
    return file.getvalue()


def gzip_bomb() -> bytes:
    return b"".join(gzip.compress(b"[" * (8 << 20)) for _ in range(40))


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"messages": [json.dumps(trace(ix)["messages"]) for ix in range(2000)]}), file)
    return file.getvalue()


def wide_csv() -> bytes:
    names, values = (f"c{ix}" for ix in range(100_000)), (str(ix) for ix in range(100_000))
    return f"{','.join(names)}\n{','.join(values)}\n".encode()


def flipped(data: bytes, at: int, n: int = 8) -> bytes:
    return data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + n]) + data[at + n :]


@dataclass(frozen=True, slots=True)
class Case:
    """A file, the codes it is refused with, words of the first sentence, and how much of it loads."""

    data: bytes
    codes: tuple[str, ...] = ()
    says: str = ""
    loads: int | None = 0  # None: some


PACKED = parquet()
CHECKED = zstandard.ZstdCompressor(write_checksum=True).compress
CASES: dict[str, Case] = {
    "empty.jsonl": Case(b"", ("empty",), "nothing but blanks"),
    "blank.json": Case(b" \n\t\n" * 1000, ("empty",), "nothing but blanks"),
    "deep.json": Case(b'{"a":' * 5000 + b"1" + b"}" * 5000, ("too_deep",), "nested deeper than"),
    "deep.jsonl": Case(line(1) + b"[" * 5000 + b"]" * 5000 + b"\n" + line(2), ("too_deep",), "nested deeper", 2),
    "long.jsonl": Case(line(3) + said(4, "x" * (3 << 20)) + line(5), loads=3),
    "long_broken.jsonl": Case(
        line(6) + b'{"messages": ["' + b"y" * (3 << 20) + b"\n" + line(7),
        ("truncated_json",), "stops before it is complete: Unterminated string starting at character 14", 2,
    ),
    "surrogates.jsonl": Case(said(8, "lone \ud83d and \udc00"), loads=1),
    "nul.jsonl": Case(said(9, "a\0b"), loads=1),
    "raw_nul.jsonl": Case(line(10) + b"\0" * 4096 + b"\n" + line(11), ("zeros",), "nothing but zero bytes", 2),
    "duplicate.jsonl": Case(b'{"id": "one-of-two-equal-keys", ' + line(12)[1:], loads=1),
    "brackets.json": Case(b"[" * (20 << 20), ("too_deep",), "nested deeper"),
    "braces.jsonl": Case(line(13) + b'{"a":[' * (4 << 20) + b"\n", ("too_deep",), "nested deeper", 1),
    "bomb.zip": Case(
        zipped(("bomb.json", b"\0" * (128 << 20)), ("good.jsonl", line(14))), ("zip_bomb",), "claim to unpack", 1
    ),
    "paths.zip": Case(
        zipped(("../../up.jsonl", line(15)), ("/tmp/root.jsonl", line(16)), ("C:\\c.jsonl", line(17)), ("a", line(18))),
        ("unsafe_path",) * 3, "leads out of the archive", 1,
    ),
    "nested.zip": Case(
        zipped(("in.zip", zipped(("a.jsonl", line(19)))), ("b.jsonl", line(20))), ("nested_archive",), "unpack it", 1
    ),
    "cut.zip": Case(zipped(("a.jsonl", many(1000)))[:-300], ("damaged_zip",), "damaged or was cut off"),
    "bomb.gz": Case(gzip_bomb(), ("too_deep", "gzip_bomb"), "nested deeper"),
    "bomb.zst": Case(zstandard.compress(b"\0" * (600 << 20)), ("zeros", "zstd_bomb"), "nothing but zero bytes"),
    "cut.gz": Case(gzip.compress(many(2000))[:-5000], ("truncated_json", "damaged_gzip"), "stops before", None),
    "cut.zst": Case(CHECKED(many(3000, 600))[:-5000], ("truncated_json", "damaged_zstd"), "stops before", None),
    "flipped.zst": Case(flipped(CHECKED(many(4000)), 90_000), ("truncated_json", "damaged_zstd"), "stops before", None),
    "wide.csv": Case(wide_csv(), ("unknown_format",), "csv, but of no format that is read here"),
    "cut.parquet": Case(PACKED[: len(PACKED) // 2], ("damaged_parquet",), "damaged, or was cut off"),
    "flipped.parquet": Case(flipped(PACKED, len(PACKED) // 2, 40), ("damaged_parquet",), "can't be read after"),
    "magic.parquet": Case(b"PAR1" + noise.randbytes(3000) + b"PAR1", ("damaged_parquet",), "damaged"),
    "garbage.pb": Case(b"\x0a\x8f\x01\x0a\x20" + noise.randbytes(500), ("binary",), "binary data"),
    "noise.bin": Case(noise.randbytes(1 << 20), ("binary",), "binary data"),
    "page.html": Case(b"<!DOCTYPE html><html>502 Bad Gateway</html>", ("html",), "a web page"),
    "words.txt": Case(b"hello\nthis is\nno json\n" * 50, ("invalid_json",), "a record begins with { or ["),
    "number.json": Case(b"42", ("unknown_format",), "JSON, but of no format that is read here"),
    "packed.bz2": Case(bz2.compress(line(21)), ("unread_container",), "a bzip2 stream"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Done:
    """How a run of the command ended."""

    code: int
    out: dict[str, Any]
    err: str
    peak_mb: float


# The largest memory of a process, without what its parent had before: `VmHWM` starts anew with a program.
RUN = """
import atexit, re, sys
from pathlib import Path
def peak():
    sys.stderr.write("peak " + re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
atexit.register(peak)
from flywheel.__main__ import main
main()
"""


def command(*words: object) -> Done:
    """`flywheel ...` in a process of its own, which has no right to read what isn't its user's."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *map(str, words)],
        capture_output=True, text=True, timeout=400, check=False, preexec_fn=without_privileges,
    )  # fmt: skip
    err, _, peak = done.stderr.rpartition("peak ")
    return Done(done.returncode, json.loads(done.stdout) if done.stdout else {}, err, int(peak) / 1024)


def without_privileges() -> None:
    """Drop the capabilities to read whatever there is (prctl's PR_CAPBSET_DROP); fails, harmlessly, if not root."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path, Done]:
    """One batch of every case, a good file beside each, and what no file can be made of."""
    base = tmp_path_factory.mktemp("bad")
    workspace, folder = make_workspace(base / "w"), base / "in"
    folder.mkdir()
    for ix, (name, case) in enumerate(CASES.items()):
        (folder / name).write_bytes(case.data)
        (folder / f"good-{name}.jsonl").write_bytes(line(9000 + ix))
    with (folder / "sparse.bin").open("wb") as sparse:
        sparse.truncate(SPARSE)
    write(folder / "secret.jsonl", trace(8000)).chmod(0)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "dangling.jsonl").symlink_to(base / "nowhere")
    given = (folder, base / "missing.jsonl", folder / "folder.jsonl")
    done = command("ingest", "--root", workspace.root, "--json", "--stage-only", *given)
    judged = command("validate", "--root", workspace.root, "--json")
    assert (judged.code, len(judged.out["judged"])) == (0, 1), judged.err
    assert judged.peak_mb < MOST_MB + LIBRARY_MB, f"{judged.peak_mb:.0f} MB"
    return workspace, folder, done


def test_the_rest_of_the_batch_loads_in_bounded_memory(loaded: tuple[Workspace, Path, Done]) -> None:
    workspace, _, done = loaded
    assert done.peak_mb < MOST_MB, f"{done.peak_mb:.0f} MB"
    good = Lake(workspace).query(
        "SELECT count(*) AS n FROM trajectory t JOIN source_file s USING (source_id) WHERE s.uri LIKE '%-good-%'"
    )
    assert good == [{"n": len(CASES)}]
    totals = Lake(workspace).query(
        "SELECT (SELECT count(*) FROM quarantine) AS rows, sum(n_quarantined)::INT AS counted FROM source_file"
    )
    assert totals[0]["rows"] == totals[0]["counted"] == done.out["quarantined"]


@pytest.mark.parametrize("name", CASES)
def test_each_file_has_its_sentence_and_its_good_part_loads(loaded: tuple[Workspace, Path, Done], name: str) -> None:
    workspace, _, _ = loaded
    case, lake = CASES[name], Lake(workspace)
    (source,) = lake.query("SELECT * FROM source_file WHERE uri SIMILAR TO ?", [f"in/[0-9a-f]+-{re.escape(name)}"])
    refused = lake.query(
        "SELECT code, message, redacted FROM quarantine WHERE source_id = ? ORDER BY record_ix", [source["source_id"]]
    )
    assert tuple(row["code"] for row in refused) == case.codes
    if case.codes:
        assert case.says in refused[0]["message"]
    for row in refused:
        assert "Error" not in row["message"] and "Exception" not in row["message"] and "\n" not in row["message"]
    if case.loads is None:
        assert source["n_trajectories"] > 50
    else:
        assert source["n_trajectories"] == case.loads


def test_what_can_not_be_opened_is_named_with_the_remedy(loaded: tuple[Workspace, Path, Done]) -> None:
    workspace, folder, done = loaded
    sentences = {
        "missing.jsonl": "does not exist",
        "loop.jsonl": "can't be read",
        "dangling.jsonl": "does not exist, or is a link that leads nowhere",
        "pipe.jsonl": "is neither a file nor a folder",
        "secret.jsonl": "can't be read by this user; change its permissions",
        "folder.jsonl": "holds no files; give files or folders of traces",
    }
    lines = done.err.splitlines()
    for name, sentence in sentences.items():
        assert any(said.startswith("flywheel: ingest: ") and f"{name} {sentence}" in said for said in lines), done.err
    assert len([said for said in lines if said.startswith("flywheel: ")]) == len(sentences)
    assert "Traceback" not in done.err
    assert done.code == 1, "of a path that was given nothing was read"
    assert not any((folder.parent / name).exists() for name in ("up.jsonl", "root.jsonl"))
    assert not list(workspace.staging.glob("*"))


def test_gigabytes_of_zeros_are_one_record(loaded: tuple[Workspace, Path, Done]) -> None:
    workspace, _, _ = loaded
    (row,) = Lake(workspace).query(
        "SELECT q.* FROM quarantine q JOIN source_file s USING (source_id) WHERE s.uri LIKE '%-sparse.bin'"
    )
    assert (row["code"], row["byte_offset"], row["byte_len"]) == ("zeros", 0, SPARSE)


def test_a_second_run_has_nothing_to_do_and_still_names_what_is_missing(tmp_path: Path) -> None:
    workspace, good = make_workspace(tmp_path / "w"), write(tmp_path / "a.jsonl", trace(1))
    first = command("ingest", "--root", workspace.root, "--json", good)
    assert (first.code, first.out["trajectories"], first.out["refused"]) == (0, 1, []), first.err
    missing = command("ingest", "--root", workspace.root, "--json", good, tmp_path / "b.jsonl")
    assert (missing.code, missing.out["batch"]) == (1, None)
    assert missing.err.strip() == (
        f"flywheel: ingest: {tmp_path / 'b.jsonl'} does not exist, or is a link that leads nowhere; it is left out"
    )


def append(path: Path, ix: int) -> None:
    with path.open("ab") as out:
        out.write(line(ix))


def replace(path: Path, ix: int) -> None:
    draft = path.with_name(".draft.tmp")
    draft.write_bytes(b"".join(line(at) for at in range(ix + 1)))
    draft.replace(path)


@pytest.mark.parametrize("change", [append, replace])
def test_a_file_that_grows_or_is_replaced_while_it_is_read_loses_nothing(
    tmp_path: Path, change: Callable[[Path, int], None]
) -> None:
    """Between ingests, and while they run, somebody adds traces to the file; each is there once at the end."""
    workspace = make_workspace(tmp_path / "w")
    path = workspace.landing / "live.jsonl"
    write(path, trace(0))
    wanted = 150

    def keep_writing() -> None:
        for ix in range(1, wanted):
            change(path, ix)
            time.sleep(0.01)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    batches, is_last = 0, False
    while not is_last:
        is_last = not writer.is_alive()
        result = ingest(workspace, CONFIG)
        assert result.refused == ()
        if result.batch:
            assert result.quarantined == 0
            Lake(workspace).publish(result.batch)
            batches += 1
    writer.join()
    assert batches > 1
    found = Lake(workspace).query(
        "SELECT count(*) AS n, count(DISTINCT native_id) AS ids, max(revision) AS r FROM trajectory"
    )
    assert found == [{"n": wanted, "ids": wanted, "r": 0}]
