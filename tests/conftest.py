"""A home of its own for every test, and one initialised workspace that tests copy: making one takes seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_ui import RunningUi
from s3_server import aws, own_s3_server, s3, s3_server
from scripted import SCRIPTED
from turns import AT, Turned, flywheel

from flywheel.traffic import serve_traffic
from flywheel.workspace import Workspace

__all__ = ["aws", "own_s3_server", "s3", "s3_server"]

# Read at import: `home` takes all FLYWHEEL_ variables away.
SAMPLES = Path(os.environ.get("FLYWHEEL_SAMPLES") or Path(__file__).parents[2] / "shared" / "samples")


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh HOME without a git identity, and none of the variables that would reach out of the test."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
        for name in [n for n in os.environ if n.startswith(("GIT_", "FLYWHEEL_", "DVC_"))]:
            patch.delenv(name)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("DVC_SITE_CACHE_DIR", str(folder / "dvc"))
        yield folder


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Workspace:
    """An initialised scripted workspace. Copy it (`workspace`), never write into it."""
    from flywheel.init import init

    folder = tmp_path_factory.mktemp("initialised") / "workspace"
    init(folder, config=SCRIPTED)
    return Workspace(folder)


@pytest.fixture
def workspace(initialised: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the initialised workspace, at another path."""
    shutil.copytree(initialised.root, tmp_path / "workspace", symlinks=True)
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="session")
def served_once(initialised: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace whose policy has answered `online`: everything before a first turn. Copy it, never write into it."""
    folder = tmp_path_factory.mktemp("served") / "w"
    shutil.copytree(initialised.root, folder, symlinks=True)
    serve_traffic(Workspace(folder), SCRIPTED, taskset="online", at=AT)
    return Workspace(folder)


@pytest.fixture
def served(served_once: Workspace, tmp_path: Path) -> Workspace:
    """The same, at another path, to turn."""
    shutil.copytree(served_once.root, tmp_path / "w", symlinks=True)
    return Workspace(tmp_path / "w")


@pytest.fixture(scope="session")
def turned_once(served_once: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Turned:
    """A workspace after one whole turn, by the command as a person runs it. Read it; copy it to change it."""
    folder = tmp_path_factory.mktemp("turned") / "w"
    shutil.copytree(served_once.root, folder, symlinks=True)
    return Turned(Workspace(folder), flywheel("turn", "--plain", "--root", folder))


@pytest.fixture
def turned_copy(turned_once: Turned, tmp_path: Path) -> Turned:
    """The same, at another path, to change."""
    shutil.copytree(turned_once.workspace.root, tmp_path / "w", symlinks=True)
    return Turned(Workspace(tmp_path / "w"), turned_once.result)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real trace files by others. Without it a test says so and is skipped; in CI it fails."""
    if SAMPLES.is_dir():
        return SAMPLES
    message = f"NOT RUN: the sample files are not at {SAMPLES}; set FLYWHEEL_SAMPLES to their folder"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def ui(served_once: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUi]:
    """`make ui`: a real Prefect server, worker and deployments. Flows called in the tests report to it, too."""
    from running_ui import running

    home = tmp_path_factory.mktemp("ui")
    shutil.copytree(served_once.root, home / "w", symlinks=True)
    with running(Workspace(home / "w"), home) as started:
        yield started
