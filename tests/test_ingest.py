"""Ingest: what lands is staged once, redacted, every record accounted for; bad data never stops the good."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config, Ingest
from flywheel.errors import FormatError, WorkspaceError
from flywheel.ingest import KEPT_BYTES, IngestResult, ingest, land
from flywheel.store import landing_unpack
from flywheel.store.keys import make_redaction_key
from flywheel.store.lake import Lake
from flywheel.store.landing import LandingBytes, excerpts
from flywheel.store.objects import FolderStore
from flywheel.workspace import Workspace

CONFIG = Config()
MAIL = "jane.doe@example.com"


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    """A folder with a flywheel.toml and a redaction key; ingest needs no more."""
    return make_workspace(tmp_path / "bare")


def make_workspace(root: Path) -> Workspace:
    root.mkdir(parents=True)
    (root / "flywheel.toml").write_text("")
    workspace = Workspace(root)
    make_redaction_key(workspace)
    return workspace


def trace(ix: int, *more: dict[str, Any], **keys: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": f"Order A-{ix}, mail {MAIL}"},
        {"role": "assistant", "content": "ok"},
        *more,
    ]
    return {"id": f"trace-{ix:012d}-{'x' * 4}", "messages": messages, **keys}


def write(path: Path, *records: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records))
    return path


def staged(workspace: Workspace, result: IngestResult) -> dict[str, list[dict[str, Any]]]:
    assert result.batch is not None
    return {name: table.to_pylist() for name, table in Lake(workspace).staged_rows(result.batch).items()}


def test_what_lands_is_staged_and_the_second_time_there_is_nothing_new(bare: Workspace, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    path = write(tmp_path / "day1.jsonl", trace(1, feedback=False), b"{broken", trace(2))
    result = ingest(bare, CONFIG, [path], progress=lambda *args: seen.append(args))
    size = path.stat().st_size
    assert (result.files, result.records, result.trajectories, result.quarantined) == (1, 3, 2, 1)
    assert (result.repaired, result.skipped, result.bytes) == (0, 0, size)
    assert result.formats == {"openai_chat": 1}
    assert seen[-1] == (size, size, "bytes read")
    rows = staged(bare, result)
    assert {name: len(r) for name, r in rows.items() if r} == {
        "source_file": 1, "quarantine": 1, "trajectory": 2, "step": 4, "outcome": 1,
    }  # fmt: skip
    (source,) = rows["source_file"]
    assert source["source_id"] == source["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (source["n_records"], source["n_trajectories"], source["n_quarantined"]) == (3, 2, 1)
    assert (source["format"], source["encoding"], source["compression"]) == ("openai_chat", "utf-8", None)
    assert json.loads(source["loss_report"]) == {"redacted EMAIL": 2}
    assert {row["source_id"] for row in rows["trajectory"]} == {source["source_id"]}
    again = ingest(bare, CONFIG, [path])
    assert (again.batch, again.files, again.skipped) == (None, 0, 1)
    Lake(bare).publish(result.batch or "")
    assert ingest(bare, CONFIG).batch is None
    assert Lake(bare).query("SELECT count(*) AS n FROM trajectory WHERE success = false") == [{"n": 1}]


def test_ids_depend_on_content_alone(tmp_path: Path) -> None:
    results = []
    for place, name in (("here", "a.jsonl"), ("there", "another-name.json")):
        workspace = make_workspace(tmp_path / place)
        result = ingest(
            workspace, CONFIG, [write(tmp_path / f"{place}-in" / name, trace(1), {"messages": []}, trace(2))]
        )
        rows = staged(workspace, result)
        results.append((result.batch, [(t["trajectory_id"], t["content_sha256"]) for t in rows["trajectory"]]))
    assert results[0] == results[1]


def test_nothing_personal_is_stored_and_users_are_the_same_person_in_every_trace(
    bare: Workspace, tmp_path: Path
) -> None:
    records = [
        trace(1, metadata={"user_id": "user_4711", "session_id": "s-1"}),
        trace(2, metadata={"user_id": "user_4711", "note": f"cc {MAIL}"}, feedback={"score": 1, "comment": MAIL}),
        f'{{"messages": "{MAIL} user'.encode(),
    ]
    path = write(tmp_path / f"{MAIL}.jsonl", *records)
    result = ingest(bare, CONFIG, [path])
    everything = repr(staged(bare, result))
    assert "jane" not in everything
    assert "user_4711" not in everything
    first, second = sorted(staged(bare, result)["trajectory"], key=lambda row: row["source_record_ix"])
    assert first["user_id"] == second["user_id"]
    assert first["user_id"].startswith("user-")
    assert first["session_id"] == "s-1"


def test_quarantine_says_where_the_bytes_stand_and_keeps_their_hash(bare: Workspace, tmp_path: Path) -> None:
    long = b'{"messages": ["' + b"order A-1 " * 5000 + MAIL.encode() + b"cut"
    path = write(tmp_path / "x.jsonl", trace(1), f'{{"a": "{MAIL}'.encode(), {"rows": 1}, long)
    result = ingest(bare, CONFIG, [path])
    rows = staged(bare, result)["quarantine"]
    assert [row["code"] for row in rows] == ["truncated_json", "not_openai_chat", "truncated_json"]
    (stored,) = FolderStore(bare.landing).list()
    data = (bare.landing / stored.key).read_bytes()
    for row in rows:
        raw = data[row["byte_offset"] : row["byte_offset"] + row["byte_len"]]
        assert hashlib.sha256(raw).hexdigest() == row["original_sha256"]
        assert len(row["redacted"]) <= KEPT_BYTES
        assert MAIL not in row["message"]
    assert re.fullmatch(rb'\{"a": "\[EMAIL_[0-9a-f]{8}\]', rows[0]["redacted"])
    assert rows[1]["redacted"] == b'{"rows": 1}'
    assert data[rows[2]["byte_offset"] :].startswith(long)


def test_an_object_that_nobody_reads_is_quarantined_whole_and_stops_nothing(bare: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "in" / "good.jsonl", trace(1))
    write(tmp_path / "in" / "sub" / "page.html", b"<html>413</html>")
    (tmp_path / "in" / "empty.jsonl").write_bytes(b"")
    (tmp_path / "in" / "image.parquet").write_bytes(b"PAR1" + os.urandom(3000))
    result = ingest(bare, CONFIG, [tmp_path / "in"])
    assert (result.files, result.records, result.trajectories, result.quarantined) == (4, 4, 1, 3)
    assert result.formats == {"openai_chat": 1, "unknown": 3}
    rows = staged(bare, result)
    assert {row["code"] for row in rows["quarantine"]} == {"html", "empty", "damaged_parquet"}
    whole = {row["source_id"]: row["bytes"] for row in rows["source_file"]}
    for row in rows["quarantine"]:
        assert (row["byte_offset"], row["byte_len"]) == (0, whole[row["source_id"]])
        assert row["original_sha256"] == row["source_id"]


def test_one_trajectory_in_two_objects_is_one_row_and_the_longer_record_counts(bare: Workspace, tmp_path: Path) -> None:
    longer = trace(1, {"role": "user", "content": "thanks"})
    paths = [
        write(tmp_path / "a.jsonl", trace(1)),
        write(tmp_path / "b.jsonl", longer),
        write(tmp_path / "c.jsonl", trace(1), trace(2)),
    ]
    result = ingest(bare, CONFIG, paths)
    rows = staged(bare, result)
    assert (result.records, result.trajectories) == (4, 2)
    assert sorted(row["n_steps"] for row in rows["trajectory"]) == [2, 3]
    assert len(rows["step"]) == 5


def test_a_longer_version_of_a_file_adds_what_is_new_and_revises_what_changed(bare: Workspace, tmp_path: Path) -> None:
    first = ingest(bare, CONFIG, [write(tmp_path / "log.jsonl", trace(1), trace(2))])
    Lake(bare).publish(first.batch or "")
    longer = trace(2, {"role": "user", "content": "thanks"})
    second = ingest(bare, CONFIG, [write(tmp_path / "log.jsonl", trace(1), longer, trace(3))])
    Lake(bare).publish(second.batch or "")
    rows = Lake(bare).query("SELECT n_steps, revision FROM trajectory ORDER BY native_id")
    assert [(row["n_steps"], row["revision"]) for row in rows] == [(2, 0), (3, 1), (2, 0)]
    assert Lake(bare).query("SELECT count(*) AS n FROM step") == [{"n": 7}]


def test_a_batch_that_failed_is_not_read_again(bare: Workspace, tmp_path: Path) -> None:
    bad = ingest(bare, CONFIG, [write(tmp_path / "bad.jsonl", trace(1))])
    Lake(bare).reject(bad.batch or "", "for this test")
    good = ingest(bare, CONFIG, [write(tmp_path / "good.jsonl", trace(2))])
    assert (good.files, good.skipped, good.trajectories) == (1, 1, 1)


def test_gzip_is_opened_and_a_damaged_one_gives_its_good_half(bare: Workspace, tmp_path: Path) -> None:
    lines = [json.dumps(trace(ix, note=os.urandom(200).hex())).encode() + b"\n" for ix in range(200)]
    packed = gzip.compress(b"".join(lines[:120])) + gzip.compress(b"".join(lines[120:])) + b"\0" * 512
    (tmp_path / "whole.jsonl.gz").write_bytes(packed)
    result = ingest(bare, CONFIG, [tmp_path / "whole.jsonl.gz"])
    assert (result.trajectories, result.quarantined) == (200, 0)
    assert staged(bare, result)["source_file"][0]["compression"] == "gzip"
    (tmp_path / "half.gz").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "flipped.gz").write_bytes(packed[:-520] + bytes([packed[-520] ^ 0xFF]) + packed[-519:])
    for name in ("half.gz", "flipped.gz"):
        workspace = make_workspace(tmp_path / f"for-{name}")
        result = ingest(workspace, CONFIG, [tmp_path / name])
        rows = staged(workspace, result)
        codes = [row["code"] for row in rows["quarantine"]]
        assert codes[-1] == "damaged_gzip"
        assert set(codes[:-1]) <= {"truncated_json"}
        assert result.trajectories > (80 if name == "half.gz" else 150)
        assert result.records == result.trajectories + result.quarantined


def test_a_gzip_bomb_is_not_unpacked(bare: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_unpack, "FREE_EXPANSION", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(json.dumps(trace(1)).encode() + b"\n" + b"[" * (30 << 20)))
    result = ingest(bare, CONFIG, [tmp_path / "bomb.gz"])
    assert [row["code"] for row in staged(bare, result)["quarantine"]][-1] == "gzip_bomb"
    assert result.trajectories == 1
    (stored,) = FolderStore(bare.landing).list()
    assert sum(map(len, LandingBytes(FolderStore(bare.landing), stored)())) < 12 << 20


def test_the_format_can_be_forced(bare: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "x.jsonl", trace(1))
    forced = Config(ingest=Ingest(format="atif"))
    result = ingest(bare, forced, [tmp_path / "x.jsonl"])
    assert (result.formats, result.trajectories, result.quarantined) == ({"atif": 1}, 0, 1)
    unknown = Config(ingest=Ingest(format="csv"))
    with pytest.raises(FormatError, match="csv"):
        ingest(bare, unknown, [write(tmp_path / "y.jsonl", trace(2))])
    assert len(FolderStore(bare.landing).list()) == 1


def test_paths_that_can_not_be_read_are_named_and_the_others_land(bare: Workspace, tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", trace(1))
    os.mkfifo(tmp_path / "pipe")
    result = ingest(bare, CONFIG, [tmp_path / "missing.jsonl", good, tmp_path / "pipe"])
    assert (result.files, result.trajectories) == (1, 1)
    assert result.unread == (str(tmp_path / "missing.jsonl"), str(tmp_path / "pipe"))
    missing, pipe = result.refused
    assert missing.startswith(f"{tmp_path / 'missing.jsonl'} does not exist")
    assert pipe.startswith(f"{tmp_path / 'pipe'} is neither a file nor a folder")


def test_without_a_redaction_key_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "flywheel.toml").write_text("")
    with pytest.raises(WorkspaceError, match="redaction key"):
        ingest(Workspace(tmp_path), CONFIG, [write(tmp_path / "x.jsonl", trace(1))])


def test_landing_names_are_of_content_and_copies_are_made_once(bare: Workspace, tmp_path: Path) -> None:
    first = write(tmp_path / "a b$.jsonl", trace(1))
    (key,) = land(bare, CONFIG, [first]).keys
    assert key == f"{hashlib.sha256(first.read_bytes()).hexdigest()[:16]}-a_b_.jsonl"
    assert land(bare, CONFIG, [write(tmp_path / "copy.tmp", trace(1))]).keys == (key,)
    (hidden,) = land(bare, CONFIG, [write(tmp_path / ".x.part", trace(2))]).keys
    assert {stored.key for stored in FolderStore(bare.landing).list()} == {key, hidden}
    assert land(bare, CONFIG, [bare.landing / key]).keys == (key,)


def test_excerpts_are_exact_in_chunks_of_any_size() -> None:
    data = bytes(range(256)) * 4
    spans = [(0, 1024), (5, 0), (10, 300), (300, 5), (1000, 24), (1020, 100), (5000, 3)]
    for size in (1, 7, 4096):
        found = excerpts((data[at : at + size] for at in range(0, len(data), size)), spans, longest=16)
        for offset, length in spans:
            raw = data[offset : offset + length]
            assert found[offset, length].sha256 == hashlib.sha256(raw).hexdigest()
            assert found[offset, length].head == raw[:16]


def test_every_malformed_sample_is_accounted_for_and_does_not_hold_back_its_batch(
    bare: Workspace, samples: Path
) -> None:
    from flywheel.validate import validate

    result = ingest(bare, CONFIG, [samples / "malformed", samples / "tau_bench" / "gpt-4o-airline.json"])
    files = [path for path in (samples / "malformed").iterdir() if path.is_file()]
    assert result.files == len({hashlib.sha256(path.read_bytes()).hexdigest() for path in files}) + 1
    rows = staged(bare, result)
    for source in rows["source_file"]:
        refused = sum(row["source_id"] == source["source_id"] for row in rows["quarantine"])
        assert refused == source["n_quarantined"]
        assert source["n_trajectories"] or source["n_quarantined"]
    # One record is one trajectory, except in formats that spread them; and one retry is logged twice in one file.
    plain = [source for source in rows["source_file"] if source["format"] not in ("otlp", "claude_code")]
    read = sum(source["n_trajectories"] + source["n_quarantined"] for source in plain)
    assert sum(source["n_records"] for source in plain) == read + 1
    (judged,) = validate(bare, CONFIG).judged
    assert judged.success, judged.failed
    rows_by_success = Lake(bare).query(
        "SELECT success, count(*) AS n FROM trajectory WHERE format = 'tau_bench' GROUP BY 1"
    )
    assert {row["success"]: row["n"] for row in rows_by_success} == {False: 116, True: 84}
