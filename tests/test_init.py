"""`flywheel init` on real git, DVC and GTO: what it makes, that it completes, that it touches nothing twice."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import dvc.repo
import pytest
from registry_steps import die_at, release
from scripted import SCRIPTED

from flywheel.config import load_config
from flywheel.environment.policy import ScriptedPolicy
from flywheel.errors import ConfigError, RegistryError, WorkspaceError
from flywheel.init import init
from flywheel.store import artifacts
from flywheel.store.git import Git, make_bare
from flywheel.store.keys import VARIABLE, redaction_key
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.store.tasks import load_tasks
from flywheel.workspace import Workspace


def status(workspace: Workspace, *stages: str) -> dict[str, Any]:
    with dvc.repo.Repo(str(workspace.root)) as repo:
        changes: dict[str, Any] = repo.status(targets=[f"{workspace.root}/dvc.yaml:{name}" for name in stages])
    return changes


def test_the_base_is_in_production_and_everything_is_committed_and_pushed(initialised: Workspace) -> None:
    git, registry = Git(initialised.root), Registry(initialised)
    (version,) = registry.versions()
    assert (version.version, version.stages, version.entry.run_id) == ("v0.1.0", ("production",), None)
    assert version.entry.weights_sha256 == ScriptedPolicy.load(initialised.base, {}).identity
    assert registry.checked_out() == initialised.policy
    assert git.run("status", "--porcelain") == ""
    assert git.run("rev-parse", "HEAD") == git.run("rev-parse", "origin/main")
    assert status(initialised, "curate", "train") == {}
    assert git.run("config", "--local", "user.name")
    rows = Lake(initialised).query("select version, weights_sha256, run_id from policy_version")
    assert rows == [{"version": "v0.1.0", "weights_sha256": version.entry.weights_sha256, "run_id": None}]


def test_the_task_sets_are_versioned_and_in_the_lake(initialised: Workspace) -> None:
    assert {t.split for t in load_tasks(initialised, "online").values()} == {"train"}
    assert {t.split for t in load_tasks(initialised, "holdout").values()} == {"eval"}
    rows = Lake(initialised).query("select taskset, count(*) as n from task group by 1 order by 1")
    assert rows == [{"taskset": "holdout", "n": 32}, {"taskset": "online", "n": 48}]
    with dvc.repo.Repo(str(initialised.root)) as repo:
        assert repo.status(targets=[str(initialised.tasksets / f"{n}.dvc") for n in ("online", "holdout")]) == {}


def test_git_holds_no_bytes_and_no_secret(initialised: Workspace) -> None:
    tracked = set(Git(initialised.root).run("ls-files").split())
    assert tracked == {
        ".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore", "flywheel.toml", "dvc.yaml", "dvc.lock",
        "data/tasksets/online.dvc", "data/tasksets/holdout.dvc", "data/champion/curate.json",
        "data/champion/train.json", "data/champion/evaluate.json", "data/champion/champion.json",
    }  # fmt: skip
    key = initialised.root / ".flywheel" / "redaction.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(redaction_key(initialised)) == 64
    history = subprocess.run(["git", "log", "--all", "-p"], cwd=initialised.root, capture_output=True, check=True)
    assert key.read_bytes() not in history.stdout


def test_nothing_is_reported_to_anyone_and_remotes_are_relative(initialised: Workspace) -> None:
    config = (initialised.root / ".dvc" / "config").read_text()
    assert "analytics = false" in config
    assert "check_update = false" in config
    assert str(initialised.root) not in config
    assert Git(initialised.root).run("config", "remote.origin.url") == ".flywheel/git"


def test_a_second_init_says_so_and_changes_nothing(workspace: Workspace) -> None:
    head = Git(workspace.root).head()
    snapshot = Lake(workspace).head()
    result = init(workspace.root)
    assert (result.made, result.version, result.tasksets) == (False, "v0.1.0", {"online": 48, "holdout": 32})
    assert Git(workspace.root).head() == head
    assert Lake(workspace).head() == snapshot
    assert load_config(workspace.config_file) == SCRIPTED


def test_a_second_init_after_promotions_leaves_them(workspace: Workspace) -> None:
    release(workspace, "two")
    assert init(workspace.root).version == "v0.2.0"
    assert (workspace.policy / "skill.json").read_text() == "two"


def init_and_die(root: Path, step: str, after: bool) -> None:
    die_at(step, after)
    init(root, config=SCRIPTED)


@pytest.mark.parametrize(
    ("step", "after"), [("add", True), ("commit", False), ("commit", True), ("record", True), ("assign", False)]
)
def test_killed_at_any_step_a_second_init_completes(
    tmp_path: Path, initialised: Workspace, step: str, after: bool
) -> None:
    root = tmp_path / "workspace"
    child = multiprocessing.get_context("forkserver").Process(target=init_and_die, args=(root, step, after))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    result = init(root, config=SCRIPTED)
    workspace = Workspace(root)
    assert (result.made, result.version) == (True, "v0.1.0")
    git = Git(root)
    assert git.run("tag").split() == ["policy#production#1", "policy@v0.1.0"]
    assert git.run("status", "--porcelain") == ""
    assert status(workspace, "curate", "train") == {}
    assert Lake(workspace).head() == Lake(initialised).head()
    for name in ("dvc.lock", "data/tasksets/online.dvc", "data/tasksets/holdout.dvc"):
        assert (root / name).read_text() == (initialised.root / name).read_text()


def test_another_base_in_the_same_folder_is_refused(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="says base 'scripted', not 'smollm2'"):
        init(workspace.root, base="smollm2")


def test_remotes_of_ones_own(tmp_path: Path) -> None:
    shared, store, root = tmp_path / "shared.git", tmp_path / "store", tmp_path / "workspace"
    make_bare(shared)
    result = init(root, config=SCRIPTED, git_remote=str(shared), dvc_remote=str(store))
    assert (result.git_remote, result.dvc_remote) == (str(shared), str(store))
    assert "policy@v0.1.0" in Git(shared).run("tag").split()
    assert not (root / ".flywheel" / "git").exists()
    with pytest.raises(RegistryError, match="holds a workspace already"):
        init(tmp_path / "second", config=SCRIPTED, git_remote=str(shared), dvc_remote=str(store))
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(shared), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "dvc", "pull", "-q", "curate", "train", "data/tasksets/online.dvc",
                    "data/tasksets/holdout.dvc"], cwd=clone, check=True)  # fmt: skip
    completed = init(clone)
    assert (completed.made, completed.git_remote) == (False, str(shared))
    assert release(Workspace(clone), "two").version == "v0.2.0"
    Registry(Workspace(root)).fetch_tags()
    current = Registry(Workspace(root)).current()
    assert current is not None
    assert current.version == "v0.2.0"


def test_the_key_comes_from_the_environment_if_it_is_there(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = redaction_key(workspace)
    monkeypatch.setenv(VARIABLE, "shared by the team")
    assert redaction_key(workspace) == b"shared by the team" != own
    monkeypatch.delenv(VARIABLE)
    (workspace.root / ".flywheel" / "redaction.key").unlink()
    with pytest.raises(WorkspaceError, match=VARIABLE):
        redaction_key(workspace)


def test_the_command_ends_with_one_json_line(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    ScriptedPolicy({}, default=0.3).save(tmp_path / "base")
    done = subprocess.run(
        [sys.executable, "-m", "flywheel", "init", "w", "--base", str(tmp_path / "base"), "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    assert (result["version"], result["made"]) == ("v0.1.0", True)
    assert artifacts.file_sha256(tmp_path / "w/models/policy/skill.json") == result["weights_sha256"]


def test_a_workspace_that_is_moved_goes_on_working(workspace: Workspace, tmp_path: Path) -> None:
    shutil.move(workspace.root, tmp_path / "elsewhere")
    moved = Workspace(tmp_path / "elsewhere")
    shutil.rmtree(moved.root / ".dvc" / "cache")
    shutil.rmtree(moved.policy)
    assert (Registry(moved).checked_out() / "skill.json").is_file()
    assert release(moved, "two").version == "v0.2.0"
