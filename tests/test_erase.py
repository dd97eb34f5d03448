"""`flywheel lake erase --user` through a whole loop: nothing the user said is left anywhere, and the loop goes on."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from scripted import SCRIPTED
from turns import Turned

from flywheel.erase import erase
from flywheel.errors import LakeError
from flywheel.ingest import ingest
from flywheel.store import artifacts, lake_erase
from flywheel.store.curricula import erase_rows
from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import verify
from flywheel.validate import validate
from flywheel.workspace import Workspace

USER, WORDS = "customer-4711", "the parcel for the blue door"


def chat(n: int, user: str, words: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{user}-{n:016d}",
        "messages": [{"role": "user", "content": f"{words} {n}"}, {"role": "assistant", "content": f"sorry: {words}"}],
        "metadata": {"user_id": user, "session_id": f"session-{user}-{n}"},
        "feedback": {"score": 0, "comment": f"bad: {words}"},
    }


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def found_in(workspace: Workspace, text: str) -> list[str]:
    """Files of the workspace that hold the text, unpacked where they are packed."""
    hits = []
    for path in sorted(p for p in workspace.root.rglob("*") if p.is_file() and ".git" not in p.parts):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += str(pq.read_table(path).to_pylist()).encode()
        elif data[:2] == b"\x1f\x8b":
            data += gzip.decompress(data)
        if text.encode() in data:
            hits.append(path.relative_to(workspace.root).as_posix())
    return hits


@pytest.fixture
def fed(workspace: Workspace, tmp_path: Path) -> Workspace:
    """Three landing objects with the user in all of them, published; a fourth is staged only."""
    mine, other = chat(1, USER, WORDS), chat(2, "somebody-else", "where is my order")
    broken = b'{"messages": [{"role": "user", "content": "' + USER.encode() + b" " + WORDS.encode() + b"\n"
    source = tmp_path / "in"
    source.mkdir()
    (source / "lines.jsonl").write_bytes(lines(mine, other) + broken + lines(chat(3, "somebody-else", "hello")))
    (source / "array.json").write_text(json.dumps([chat(4, "somebody-else", "hi"), chat(5, USER, WORDS)]))
    (source / "packed.jsonl.gz").write_bytes(gzip.compress(lines(chat(6, USER, WORDS), chat(7, "x-else", "bye"))))
    ingest(workspace, SCRIPTED, [source])
    validate(workspace, SCRIPTED)
    (tmp_path / "late.jsonl").write_bytes(lines(chat(8, USER, WORDS), chat(9, "somebody-else", "again")))
    ingest(workspace, SCRIPTED, [tmp_path / "late.jsonl"])
    return workspace


def test_nothing_the_user_said_is_left(fed: Workspace) -> None:
    assert len(found_in(fed, WORDS)) > 6
    before = Lake(fed).query("SELECT trajectory_id FROM trajectory WHERE user_id IS NOT NULL ORDER BY ALL")
    dry = erase(fed, SCRIPTED, user=USER, dry_run=True)
    assert (dry.trajectories, dry.dry_run) == (4, True)
    assert len(found_in(fed, WORDS)) > 6, "a dry run changes nothing"
    done = erase(fed, SCRIPTED, user=USER)
    assert found_in(fed, WORDS) == []
    assert found_in(fed, USER) == []
    assert (done.trajectories, len(done.objects_cut), done.objects_removed) == (4, 4, ())
    assert len(done.staged_dropped) == 1
    after = Lake(fed).query("SELECT trajectory_id FROM trajectory WHERE user_id IS NOT NULL ORDER BY ALL")
    assert len(after) == len(before) - 3
    assert verify(Lake(fed)) == []


def test_the_rest_is_read_again_and_once(fed: Workspace) -> None:
    erase(fed, SCRIPTED, user=USER)
    again = ingest(fed, SCRIPTED)
    validate(fed, SCRIPTED)
    contents = Lake(fed).query("SELECT content FROM step WHERE role = 'user' ORDER BY content")
    texts = [row["content"] for row in contents if "parcel" not in row["content"]]
    assert [text for text in texts if text.startswith(("again", "bye", "hello", "hi ", "where"))] == [
        "again 9", "bye 7", "hello 3", "hi 4", "where is my order 2",
    ]  # fmt: skip
    assert again.files >= 1
    assert ingest(fed, SCRIPTED).batch is None


def test_a_killed_erasure_is_finished_by_the_next(fed: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(lake_erase, "_mark", dies)
        with pytest.raises(Killed):
            erase(fed, SCRIPTED, user=USER)
    done = erase(fed, SCRIPTED, user=USER)
    assert done.trajectories == 4
    assert found_in(fed, WORDS) == []
    assert verify(Lake(fed)) == []


def test_a_user_nobody_knows_is_a_sentence(fed: Workspace) -> None:
    with pytest.raises(LakeError, match="nothing of user"):
        erase(fed, SCRIPTED, user="nobody-at-all")


def test_what_was_learnt_from_the_user_is_marked(turned_once: Turned, tmp_path: Path) -> None:
    """After a real turn: the curriculum loses rows and says so, the tombstone names run and version."""
    shutil.copytree(turned_once.workspace.root, tmp_path / "w", symlinks=True)
    workspace = Workspace(tmp_path / "w")
    ids = Lake(workspace).query("SELECT trajectory_id, version FROM lineage WHERE version IS NOT NULL LIMIT 1")
    (one,) = ids
    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = lake_erase.with_consequences(Lake(workspace), "user-x", at, [one["trajectory_id"]])
    assert found.policy_versions == (one["version"],)
    assert len(found.runs) == len(found.curricula) == 1
    folder = workspace.curricula / found.curricula[0]
    rows = pq.read_table(folder / "sft.parquet")["row_id"].to_pylist()
    erase_rows(folder, found.curriculum_rows, "erased")
    left = pq.read_table(folder / "sft.parquet")["row_id"].to_pylist()
    assert set(rows) - set(left) == set(rows) & set(found.curriculum_rows) != set()
    assert artifacts.load(folder, verify=True).summary["not_reproducible"] == "erased"
