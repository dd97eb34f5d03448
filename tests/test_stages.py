"""What a flow's form gives replaces those fields of flywheel.toml, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from flywheel.config import Config, Curate, Train
from flywheel.stages import opened

TOML = "[train]\nrecipe = 'scripted'\nsteps = 3\n\n[curate]\nexpert = 2\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "flywheel.toml").write_text(TOML, encoding="utf-8")
    return tmp_path


def test_a_field_that_is_given_replaces_that_field(root: Path) -> None:
    _, config = opened(root, Train(batch=2), Curate(expert=0))
    assert config.train == Train(recipe="scripted", steps=3, batch=2)
    assert config.curate == Curate(expert=0)
    assert config.evaluate == Config().evaluate


def test_a_field_given_as_the_default_counts(root: Path) -> None:
    assert opened(root, Train(steps=16))[1].train.steps == 16


def test_nothing_given_changes_nothing(root: Path) -> None:
    _, config = opened(root, None)
    assert opened(root, Train())[1] == config
    assert config.train == Train(recipe="scripted", steps=3)
