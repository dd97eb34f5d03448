"""Ingest from a landing zone on S3 by the command itself; a server that fails leaves nothing half."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from faults import Fault, proxied
from s3_server import BUCKET, S3Folder, S3Server
from turns import flywheel, run

from flywheel.config import Config, Ingest, load_config
from flywheel.errors import ObjectError
from flywheel.ingest import ingest
from flywheel.store import objects_download, objects_s3
from flywheel.store.keys import make_redaction_key
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace


@pytest.fixture
def bare(tmp_path: Path) -> Workspace:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "flywheel.toml").write_text("")
    workspace = Workspace(tmp_path / "w")
    make_redaction_key(workspace)
    return workspace


def chat(ix: int) -> bytes:
    messages = [{"role": "user", "content": f"Where is order {ix}?"}, {"role": "assistant", "content": "On its way."}]
    return json.dumps({"id": f"chat-{ix:012d}", "messages": messages}).encode() + b"\n"


def test_a_landing_zone_on_s3_and_addresses_as_paths(bare: Workspace, tmp_path: Path, s3: S3Folder) -> None:
    bare.config_file.write_text(f'[ingest]\nlanding = "{s3.url}landing"\n')
    (tmp_path / "mine.jsonl").write_bytes(chat(1))
    s3.put_all({"landing/2026/12/01/served.jsonl": chat(2) + chat(3), "elsewhere/a.jsonl": chat(4)})
    first = flywheel("ingest", tmp_path / "mine.jsonl", f"{s3.url}elsewhere", "--root", bare.root)
    assert (first["files"], first["records"], first["trajectories"], first["refused"]) == (3, 4, 4, [])
    assert Lake(bare).query("SELECT count(*) AS n FROM trajectory") == [{"n": 4}]
    uris = {row["uri"] for row in Lake(bare).query("SELECT uri FROM source_file")}
    assert {uri.rpartition("/")[0] for uri in uris} == {"", "2026/12/01", "elsewhere"}
    config = load_config(bare.config_file)
    again = ingest(bare, config, [f"{s3.url}elsewhere/"], full=True)
    assert (again.batch, again.files, again.skipped) == (None, 0, 3)
    shutil.rmtree(bare.object_index.parent)
    s3.put("landing/2026/12/02/served.jsonl", chat(5))
    assert ingest(bare, config).files == 1


def test_what_can_not_be_read_is_said_and_the_rest_is_ingested(bare: Workspace, tmp_path: Path, s3: S3Folder) -> None:
    (tmp_path / "good.jsonl").write_bytes(chat(1))
    missing = tmp_path / "missing.jsonl"
    ended = run(
        "flywheel", "ingest", str(missing), str(tmp_path / "good.jsonl"), f"{s3.url}none", "--root", str(bare.root),
        "--json",
    )  # fmt: skip
    assert ended.returncode == 1
    result = json.loads(ended.stdout.splitlines()[-1])
    assert (result["files"], result["trajectories"], len(result["refused"])) == (1, 1, 2)
    assert f"flywheel: ingest: {missing} does not exist" in ended.stderr
    assert f"flywheel: ingest: {s3.url}none holds no files" in ended.stderr


def test_a_server_that_dies_in_mid_read_leaves_nothing_half(
    bare: Workspace, own_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr(objects_download, "PAUSE", 0.02)
    monkeypatch.setattr(objects_s3, "SMALL", 100_000)
    client = own_s3_server.client()
    client.put_object(Bucket=BUCKET, Key="x/a.jsonl", Body=b"".join(map(chat, range(200))))
    client.put_object(Bucket=BUCKET, Key="x/large.jsonl", Body=b"".join(map(chat, range(200, 10_000))))
    with proxied(own_s3_server.ports[0]) as proxy:
        config = Config(ingest=Ingest(landing=f"s3://{BUCKET}/x", endpoint=proxy.endpoint))
        proxy.faults += [
            Fault("large.jsonl", times=1, cut_after=300_000),  # while it's hashed
            Fault("large.jsonl", times=1),  # the rest of it
            Fault("large.jsonl", cut_after=800_000, then=own_s3_server.kill),  # while it's fetched to be read
        ]
        with pytest.raises(ObjectError, match=r"large\.jsonl: the server broke off after \d+ of \d+ bytes"):
            ingest(bare, config)
        assert (Lake(bare).staged(), Lake(bare).failed()) == ([], {})
        assert [path for path in bare.staging.glob("*") if path.is_dir()] == []
        own_s3_server.start()
        result = ingest(bare, config)
    assert (result.files, result.trajectories, result.quarantined, result.refused) == (2, 10_000, 0, ())


def test_an_endpoint_that_is_not_there_is_infrastructure(
    bare: Workspace, aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    bare.config_file.write_text('[ingest]\nlanding = "s3://bucket/x"\nendpoint = "http://127.0.0.1:9"\n')
    ended = run("flywheel", "ingest", "--root", str(bare.root))
    assert ended.returncode == 1
    assert "s3://bucket/x/: http://127.0.0.1:9 can't be reached" in ended.stderr
    assert Lake(bare).staged() == []
