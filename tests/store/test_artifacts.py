"""Write-once folders: the manifest is last, complete and true."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from flywheel.errors import ArtifactError
from flywheel.store import artifacts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, a timing and a checkpoint."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "weights.bin").write_bytes(b"w" * 100)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    (tmp_path / "timings.json").write_text("{}")
    (tmp_path / "checkpoints" / "8").mkdir(parents=True)
    (tmp_path / "checkpoints" / "8" / "state.bin").write_bytes(b"s")
    return tmp_path


def finish(folder: Path) -> artifacts.Manifest:
    return artifacts.finish(folder, "run", "run-1", {"seed": 1}, {"steps": 8}, ("timings.json", "checkpoints"))


def test_an_artefact_exists_when_its_manifest_does(folder: Path) -> None:
    assert not artifacts.is_finished(folder)
    with pytest.raises(ArtifactError, match="no manifest"):
        artifacts.load(folder)
    manifest = finish(folder)
    assert artifacts.is_finished(folder)
    assert artifacts.load(folder, verify=True) == manifest
    assert manifest.files == {
        "metrics.jsonl": hashlib.sha256(b"{}\n").hexdigest(),
        "policy/weights.bin": hashlib.sha256(b"w" * 100).hexdigest(),
    }


def test_a_leftover_of_a_killed_write_is_no_part_of_the_artefact(folder: Path) -> None:
    (folder / "policy" / ".weights.bin.77ab.tmp").write_bytes(b"half")
    assert not [name for name in finish(folder).files if "tmp" in name]


def test_finishing_again_is_a_no_op_unless_the_bytes_changed(folder: Path) -> None:
    first = finish(folder)
    (folder / "timings.json").write_text('{"wall_s": 2}')
    assert finish(folder) == first
    (folder / "metrics.jsonl").write_text("other")
    with pytest.raises(ArtifactError, match="written once"):
        finish(folder)


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_verify_names_the_file_that_differs(folder: Path, damage: str) -> None:
    finish(folder)
    path = folder / "policy" / "weights.bin"
    if damage == "change":
        path.write_bytes(b"x" * 100)
    else:
        path.unlink()
    artifacts.load(folder)
    with pytest.raises(ArtifactError, match=r"weights\.bin"):
        artifacts.load(folder, verify=True)


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "run"}'])
def test_a_broken_manifest_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError, match="is not a manifest"):
        artifacts.load(tmp_path)


def test_write_atomic_replaces_whole_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    artifacts.write_atomic(path, b"old")
    artifacts.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["file"]
