"""Erasure on the real lake: no file of any version holds a byte of what the user said, and old snapshots still open."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lake_rows import make_workspace, rows_of

from flywheel.records import Blob, Span, canonical_json
from flywheel.store import lake_erase, lake_maintain
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

USER, SECRET = "user-0123456789abcdef", "meet me at the blue door"
AT = datetime(2026, 1, 1, tzinfo=UTC)


def tables(content: str = SECRET) -> dict[str, list[object]]:
    """Trajectories `mine` (of the user, with a subagent and a rollout that repeats it) and `other`."""
    found = rows_of("mine", "child", "again", "other", content="v1")
    mine, child, again, other = found["trajectory"]
    metadata = canonical_json({"repairs": ["mine"], "prompt": content})
    found["trajectory"] = [
        replace(mine, user_id=USER, session_id="s-1", native_id="native-1", metadata=f'{{"note":"{content}"}}'),
        replace(child, parent_trajectory_id="mine"),
        replace(again, format="rollout", metadata=metadata),
        replace(other, user_id="user-ffffffffffffffff", session_id="s-2"),
    ]
    found["step"] = [
        replace(row, content=f"{content} {row.step_ix}", parts='{"blob":"b-mine"}')
        if row.trajectory_id != "other"
        else replace(row, parts='{"blob":"b-shared"}' if row.step_ix else None)
        for row in found["step"]
    ]
    found["blob"] = [Blob(sha256="b-mine", data=content.encode()), Blob(sha256="b-shared", data=b"logo")]
    found["span"] = [Span(trace_id="t", span_id="1", name=content, trajectory_id="mine")]
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two published snapshots, a compaction between them, and a revision of `mine`."""
    lake = Lake(make_workspace(tmp_path / "w"))
    lake.publish("one", tables())
    lake.publish("two", rows_of("late"))
    revised = tables(content=f"{SECRET} again")
    revised["trajectory"] = [replace(row, content_sha256=f"{row.content_sha256} 2") for row in revised["trajectory"]]
    lake.publish("three", {name: revised[name] for name in ("trajectory", "step", "tool_call")})
    return lake


def bytes_with(workspace: Workspace, text: str) -> list[str]:
    """Files below data/ that hold the text, read as Parquet where they are."""
    import duckdb

    found = []
    for path in sorted(workspace.data.rglob("*")):
        if path.suffix == ".parquet":
            (hit,) = duckdb.execute(
                "SELECT coalesce(bool_or(contains(CAST(t AS VARCHAR), ?)), false) FROM read_parquet(?) t",
                [text, str(path)],
            ).fetchone() or (False,)
            raw = text.encode() in path.read_bytes()
            if hit or raw:
                found.append(path.name)
        elif path.is_file() and text.encode() in path.read_bytes():
            found.append(path.name)
    return found


def test_nothing_is_left_in_any_version(lake: Lake) -> None:
    old = [snapshot.snapshot_id for snapshot in lake.snapshots()]
    others = lake.query("SELECT * FROM step_all WHERE trajectory_id IN ('other', 'late') ORDER BY ALL")
    assert bytes_with(lake.workspace, SECRET)
    found = lake_erase.find(lake, USER, AT)
    assert found.trajectories == ("again", "child", "mine")
    assert found.blobs == ("b-mine",)
    lake_erase.begin(lake, found)
    snapshot, removed = lake_erase.erase(lake, found)
    lake_erase.finish(lake)
    assert bytes_with(lake.workspace, SECRET) == []
    assert removed["trajectory"] == 6
    assert lake.query("SELECT DISTINCT trajectory_id AS id FROM trajectory_all ORDER BY id") == [
        {"id": "late"}, {"id": "other"},
    ]  # fmt: skip
    assert lake.query("SELECT * FROM step_all ORDER BY ALL") == others
    assert lake.query("SELECT sha256 FROM blob") == [{"sha256": "b-shared"}]
    assert lake.query("SELECT user_hash, trajectories FROM tombstone") == [{"user_hash": USER, "trajectories": 3}]
    assert lake_maintain.verify(lake) == []
    for snapshot_id in old:
        assert lake.query("SELECT 1 FROM trajectory_all WHERE trajectory_id = 'mine'", snapshot=snapshot_id) == []
    states = {row["snapshot_id"]: row["state"] for row in lake.query("SELECT * FROM snapshot")}
    assert states[snapshot.snapshot_id] == "live"
    assert {states[snapshot_id] for snapshot_id in old} == {"not_reproducible"}
    assert lake.snapshot(old[0]).state == "not_reproducible"


def test_again_is_a_no_op_and_life_goes_on(lake: Lake) -> None:
    found = lake_erase.find(lake, USER, AT)
    first, _ = lake_erase.erase(lake, found)
    again, removed = lake_erase.erase(lake, found)
    assert again.snapshot_id == first.snapshot_id
    assert removed == {}
    lake.publish("four", rows_of("new"))
    lake_maintain.compact(lake)
    lake_maintain.vacuum(lake)
    assert lake_maintain.verify(lake) == []
    assert bytes_with(lake.workspace, SECRET) == []
    assert lake_erase.find(lake, USER, AT).trajectories == ()


def test_a_half_way_erasure_is_found_again(lake: Lake) -> None:
    found = lake_erase.find(lake, USER, AT)
    lake_erase.begin(lake, found)
    assert lake_erase.begun(lake) == found
    lake_erase.erase(lake, found)
    lake_erase.finish(lake)
    assert lake_erase.begun(lake) is None
