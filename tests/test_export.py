"""`flywheel export`: the lake's trajectories as files, and back into another lake."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from turns import flywheel

from flywheel.config import load_config
from flywheel.errors import ConfigError
from flywheel.export import export
from flywheel.ingest import ingest
from flywheel.store.lake import Lake
from flywheel.validate import validate
from flywheel.workspace import Workspace

CHATS = [
    {
        "id": f"chat-{n}-0123456789abcdef",
        "messages": [
            {"role": "user", "content": f"Where is order {n}?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"n":'}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "bad JSON"},
            {"role": "assistant", "content": "Gone.", "weight": 0},
        ],
        "metadata": {"task_id": f"t{n}"},
        "feedback": {"thumbs": "down" if n else "up"},
    }
    for n in range(3)
]


def filled(workspace: Workspace, path: Path) -> Lake:
    config = load_config(workspace.config_file)
    batch = ingest(workspace, config, [path]).batch
    assert batch is not None
    validate(workspace, config, accept=batch, reason="a test")
    return Lake(workspace)


def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in CHATS), encoding="utf-8")
    return path


def test_the_command_writes_the_file_and_the_report(workspace: Workspace, tmp_path: Path) -> None:
    filled(workspace, chats(tmp_path))
    out, report = tmp_path / "out.jsonl", tmp_path / "report.jsonl"
    result = flywheel(
        "export", "--format", "openai_chat", "-o", out, "--where", "success = false", "--report", report,
        "--root", workspace.root,
    )  # fmt: skip
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [record["metadata"]["task_id"] for record in records] in (["t1", "t2"], ["t2", "t1"])
    assert records[0]["messages"] == CHATS[int(records[0]["metadata"]["task_id"][1:])]["messages"]
    assert (result["trajectories"], result["lossless"], result["losses"]) == (2, 2, {})
    entries = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [entry["losses"] for entry in entries] == [{}, {}]
    assert sorted(path.name for path in tmp_path.glob("*.part")) == []


@pytest.mark.parametrize("format_name", ["openai_chat", "atif"])
def test_what_was_exported_comes_in_again_and_goes_out_alike(
    workspace: Workspace, tmp_path: Path, format_name: str
) -> None:
    lake = filled(workspace, chats(tmp_path))
    config = load_config(workspace.config_file)
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    ids = [row["trajectory_id"] for row in lake.query("select trajectory_id from trajectory order by 1")]
    export(workspace, config, format_name=format_name, out=first)
    filled(workspace, first)
    fresh = lake.query("select trajectory_id, content_sha256 from trajectory where native_id like 'trajectory-%'")
    old = lake.query("select content_sha256 from trajectory where native_id not like 'trajectory-%'")
    assert {row["content_sha256"] for row in fresh} == {row["content_sha256"] for row in old}
    result = export(workspace, config, format_name=format_name, out=second, ids=[row["trajectory_id"] for row in fresh])
    assert result.trajectories == len(ids) == 3
    assert sorted(second.read_bytes().splitlines()) == sorted(first.read_bytes().splitlines())


def test_refusals_name_what_is_wrong_and_leave_no_file(workspace: Workspace, tmp_path: Path) -> None:
    config = load_config(workspace.config_file)
    out = tmp_path / "out.jsonl"
    with pytest.raises(ConfigError, match="the lake has none"):
        export(workspace, config, format_name="atif", out=out)
    filled(workspace, chats(tmp_path))
    with pytest.raises(ConfigError, match="'trajectory-x' \\(1 of 1 are unknown\\)"):
        export(workspace, config, format_name="atif", out=out, ids=["trajectory-x"])
    with pytest.raises(ConfigError, match="none that 'attempt = 7' holds for"):
        export(workspace, config, format_name="atif", out=out, where="attempt = 7")
    with pytest.raises(ConfigError, match="no exporter for format 'csv'"):
        export(workspace, config, format_name="csv", out=out)
    with pytest.raises(ConfigError, match="can't write"):
        export(workspace, config, format_name="atif", out=tmp_path / "no" / "out.jsonl")
    with pytest.raises(ConfigError, match="either --where or --ids"):
        export(workspace, config, format_name="atif", out=out, where="true", ids=["x"])
    assert not out.exists()


def test_media_and_long_texts_are_in_their_place_again(workspace: Workspace, tmp_path: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8).decode()
    long = "word " * 300_000
    parts = [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": long}]
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"id": "long-0123456789abcdef", "messages": messages}) + "\n", encoding="utf-8")
    lake = filled(workspace, path)
    assert lake.query("select count(*) as n from blob")[0]["n"] == 2
    out = tmp_path / "out.jsonl"
    export(workspace, load_config(workspace.config_file), format_name="openai_chat", out=out)
    assert json.loads(out.read_text(encoding="utf-8"))["messages"] == messages
