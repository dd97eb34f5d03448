"""Several processes give the rows that one gives: large files cut at lines, parts of a trajectory in several hands."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_ingest import make_workspace, write

from flywheel import ingest_pool
from flywheel.config import Config, Ingest
from flywheel.errors import LakeError
from flywheel.ingest import IngestResult, ingest
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace


def line(ix: int, n: int = 3, **more: Any) -> dict[str, Any]:
    steps = [{"role": "user", "content": f"question {ix}"}]
    steps += [{"role": "assistant", "content": f"answer {ix} {step}"} for step in range(n)]
    return {"trajectory_id": f"r{ix}", "steps": steps, **more}


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    """Short ids (they count per file), blank and broken lines, two documents on one line, repeats far apart."""
    noise = random.Random(1)
    lines: list[Any] = [line(ix, noise.randrange(1, 9)) for ix in range(400)]
    lines[50] = b"{broken"
    lines[51] = b"   "
    lines[120] = json.dumps(line(120)).encode() + json.dumps(line(1200)).encode()
    lines[200:200] = [b'{"trajectory_id": "x", "steps": 1}', b"\xff\xfe{", line(3, 12, note="longer"), line(399, 1)]
    write(tmp_path / "in" / "agent.jsonl", *lines)
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    calls = [
        {"id": f"chatcmpl-{ix:020d}", "session_id": "one-session-of-all-files", "messages": messages[: 1 + ix % 2]}
        for ix in range(4)
    ]
    for ix, call in enumerate(calls):
        write(tmp_path / "in" / f"call-{ix}.jsonl", call)
    (tmp_path / "in" / "page.html").write_bytes(b"<html>")
    return tmp_path / "in"


def staged(workspace: Workspace, result: IngestResult) -> dict[str, list[str]]:
    tables = Lake(workspace).staged_rows(result.batch or "")
    rows = {name: [row | {"ingested_at": None} for row in table.to_pylist()] for name, table in tables.items()}
    return {name: sorted(map(repr, found)) for name, found in rows.items()}


def test_the_rows_do_not_depend_on_how_the_work_was_shared_out(
    tmp_path: Path, landed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_pool, "SHARED_FROM", 10_000)
    one, two = make_workspace(tmp_path / "one"), make_workspace(tmp_path / "two")
    (two.root / ".flywheel" / "redaction.key").write_bytes((one.root / ".flywheel" / "redaction.key").read_bytes())
    alone = ingest(one, Config(), [landed])
    shared = ingest(two, Config(ingest=Ingest(processes=2)), [landed])
    parts = {path.name for path in (two.staging / (shared.batch or "")).glob("trajectory.*")}
    assert len([name for name in parts if ".range-" in name]) > 4, parts
    assert (shared.batch, shared.records, shared.trajectories, shared.quarantined, shared.formats) == (
        alone.batch, alone.records, alone.trajectories, alone.quarantined, alone.formats,
    )  # fmt: skip
    assert alone.quarantined == 4
    assert staged(two, shared) == staged(one, alone)
    by_native = {row["native_id"]: row for row in Lake(two).staged_rows(shared.batch or "")["trajectory"].to_pylist()}
    assert by_native["r3"]["n_steps"] == 13  # the later record of the source
    assert by_native["r399"]["source_record_ix"] == 403  # counted through all ranges, refused lines too, not blank ones


def test_what_a_process_meets_is_raised_here(tmp_path: Path, landed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_pool, "SHARED_FROM", 10_000)
    workspace = make_workspace(tmp_path / "w")
    job_draft = Lake.draft

    def gone(lake: Lake, batch_id: str) -> Path:
        draft = job_draft(lake, batch_id)
        draft.rmdir()  # so that no process can write there
        return draft

    monkeypatch.setattr(Lake, "draft", gone)
    with pytest.raises(LakeError, match="ended with exit code 1"):
        ingest(workspace, Config(ingest=Ingest(processes=2)), [landed])
    assert not list(workspace.staging.glob("[!.]*"))
