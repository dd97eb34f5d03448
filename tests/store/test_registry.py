"""The registry on real git, DVC and GTO, in a copy of an initialised workspace."""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import dvc.repo
import pytest
from registry_steps import STEPS, release, release_and_die

from flywheel.errors import RegistryError
from flywheel.store.git import Git
from flywheel.store.registry import Registry
from flywheel.store.registry_bytes import Bytes, folder_sha256
from flywheel.store.versions import bump, semver
from flywheel.workspace import Workspace


def state(workspace: Workspace) -> dict[str, tuple[str, ...]]:
    return {v.version: v.stages for v in Registry(workspace).versions()}


def tags(repository: Path) -> set[str]:
    return set(Git(repository).run("tag").split())


def is_clean(workspace: Workspace) -> bool:
    """Nothing uncommitted for git, and for DVC every recorded out is as recorded."""
    return not Git(workspace.root).run("status", "--porcelain") and not dvc_changes(workspace)


def dvc_changes(workspace: Workspace) -> dict[str, object]:
    with dvc.repo.Repo(str(workspace.root)) as repo:
        names = [f"{workspace.root}/dvc.yaml:{name}" for name in ("curate", "train")]
        changes: dict[str, object] = repo.status(targets=names)
    return changes


def clone(workspace: Workspace, folder: Path) -> Workspace:
    """Another person's clone, with the bytes, sharing the git remote and the DVC store."""
    subprocess.run(
        ["git", "clone", "--quiet", str(workspace.root / ".flywheel" / "git"), str(folder)],
        check=True,
        capture_output=True,
    )
    git = Git(folder)
    git.init()
    (folder / ".dvc" / "config.local").write_text(
        f"['remote \"store\"']\n    url = {workspace.root / '.flywheel/dvc'}\n"
    )
    subprocess.run(
        [sys.executable, "-m", "dvc", "pull", "-q", "curate", "train", "data/tasksets/holdout.dvc"],
        cwd=folder,
        check=True,
    )
    return Workspace(folder)


def test_a_release_moves_production_and_leaves_everything_clean(workspace: Workspace) -> None:
    assert state(workspace) == {"v0.1.0": ("production",)}
    version = release(workspace, "two")
    assert (version.version, version.stages) == ("v0.2.0", ("production",))
    assert version.entry.run_id == "two"
    assert state(workspace) == {"v0.1.0": (), "v0.2.0": ("production",)}
    assert (workspace.policy / "skill.json").read_text() == "two"
    assert is_clean(workspace)
    assert tags(workspace.root) == tags(workspace.root / ".flywheel" / "git")
    head = Git(workspace.root).head()
    assert Git(workspace.root / ".flywheel" / "git").run("rev-parse", "main") == head == version.git_rev


def test_the_same_bytes_again_are_the_same_version(workspace: Workspace) -> None:
    first, before = release(workspace, "two"), tags(workspace.root)
    assert release(workspace, "two") == first
    assert tags(workspace.root) == before


def test_rollback_brings_back_version_and_champion_and_a_rerun_does_not_undo_it(workspace: Workspace) -> None:
    base = (workspace.policy / "skill.json").read_text()
    release(workspace, "two")
    back = Registry(workspace).assign("v0.1.0", "production")
    assert (back.version, back.stages) == ("v0.1.0", ("production",))
    assert (workspace.policy / "skill.json").read_text() == base
    assert not (workspace.champion / "evaluation").exists()
    assert is_clean(workspace)
    assert release(workspace, "two").stages == ()
    assert state(workspace) == {"v0.1.0": ("production",), "v0.2.0": ()}
    assert release(workspace, "two", forced_by="Ada").stages == ("production",)
    assert (workspace.policy / "skill.json").read_text() == "two"
    assert [move[1:] for move in Registry(workspace).moves()] == [
        ("production", "v0.1.0"),
        ("production", "v0.2.0"),
        ("production", "v0.1.0"),
        ("production", "v0.2.0"),
    ]
    assert release(workspace, "three").version == "v0.3.0"


def test_each_assignment_has_a_second_of_its_own(workspace: Workspace) -> None:
    """DVC takes the tag with the latest second: two in one second would be a toss-up."""
    for name in ("v0.1.0", "v0.2.0", "v0.1.0"):
        release(workspace, "two") if name == "v0.2.0" else Registry(workspace).assign(name, "production")
    moments = [moment for moment, _, _ in Registry(workspace).moves()]
    assert moments == sorted(set(moments))


def test_fetch_gives_any_version_and_checked_out_never_lies(workspace: Workspace, tmp_path: Path) -> None:
    release(workspace, "two")
    registry = Registry(workspace)
    registry.fetch("v0.2.0", tmp_path / "out")
    assert (tmp_path / "out" / "skill.json").read_text() == "two"
    assert registry.fetch("v0.1.0", tmp_path / "out").version == "v0.1.0"
    assert (tmp_path / "out" / "skill.json").read_text() != "two"
    assert registry.checked_out() == workspace.policy
    (workspace.policy / "skill.json").chmod(stat.S_IRUSR | stat.S_IWUSR)
    (workspace.policy / "skill.json").write_text("an experiment")
    folder = registry.checked_out()
    assert folder != workspace.policy
    assert (folder / "skill.json").read_text() == "two"
    with pytest.raises(RegistryError, match=r"no version or stage 'staging'.*v0\.2\.0 #production"):
        registry.find("staging")


def test_a_decision_against_another_incumbent_is_refused(workspace: Workspace) -> None:
    release(workspace, "two")
    with pytest.raises(RegistryError, match="let the gate decide again"):
        release(workspace, "three", incumbent="weights of one")
    assert state(workspace) == {"v0.1.0": (), "v0.2.0": ("production",)}
    assert is_clean(workspace)


def test_a_dead_git_remote_leaves_the_old_stage(workspace: Workspace) -> None:
    remote, aside = workspace.root / ".flywheel" / "git", workspace.root / ".flywheel" / "aside"
    base, before = (workspace.policy / "skill.json").read_text(), tags(workspace.root)
    remote.rename(aside)
    with pytest.raises(RegistryError, match="git fetch"):
        release(workspace, "two")
    aside.rename(remote)
    assert (workspace.policy / "skill.json").read_text() == base
    assert tags(workspace.root) == before
    assert release(workspace, "two").version == "v0.2.0"


def test_a_dead_dvc_remote_leaves_the_old_stage(workspace: Workspace) -> None:
    base, before, head = (workspace.policy / "skill.json").read_text(), tags(workspace.root), Git(workspace.root).head()
    store = workspace.root / ".flywheel" / "dvc"
    shutil.rmtree(store)
    store.write_text("a file where the store should be")
    with pytest.raises(RegistryError, match="DVC could not push"):
        release(workspace, "two")
    assert (tags(workspace.root), Git(workspace.root).head()) == (before, head)
    assert (workspace.policy / "skill.json").read_text() == base
    store.unlink()
    assert release(workspace, "two").version == "v0.2.0"


def test_a_push_that_is_refused_leaves_no_tag_no_commit_and_the_old_policy(workspace: Workspace) -> None:
    hook = workspace.root / ".flywheel" / "git" / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ncase "$1" in "refs/tags/policy#"*) echo "stage is frozen" >&2; exit 1;; esac\n')
    hook.chmod(0o755)
    base, before, head = (workspace.policy / "skill.json").read_text(), tags(workspace.root), Git(workspace.root).head()
    with pytest.raises(RegistryError, match=r"stage is frozen|atomic"):
        release(workspace, "two")
    assert tags(workspace.root) == before == tags(workspace.root / ".flywheel" / "git")
    assert Git(workspace.root).head() == head
    assert (workspace.policy / "skill.json").read_text() == base
    assert is_clean(workspace)
    hook.unlink()
    assert release(workspace, "two").version == "v0.2.0"


def test_bytes_that_vanished_from_the_remote_are_pushed_again(workspace: Workspace) -> None:
    """DVC remembers what it pushed; the registry looks."""
    release(workspace, "two")
    shutil.rmtree(workspace.root / ".flywheel" / "dvc")
    Bytes(workspace.root).push(["train"])
    shutil.rmtree(workspace.root / ".dvc" / "cache")
    registry = Registry(workspace)
    registry.fetch("v0.2.0", workspace.models / "fetched")
    assert (workspace.models / "fetched" / "skill.json").read_text() == "two"


def test_of_two_clones_that_race_one_is_refused_and_can_go_on(workspace: Workspace, tmp_path: Path) -> None:
    other = clone(workspace, tmp_path / "clone")
    git = Git(other.root)
    with pytest.raises(RegistryError, match="git push"):
        release(other, "theirs", meanwhile=lambda: release(workspace, "ours"))
    assert tags(other.root) == tags(workspace.root)
    assert not git.run("status", "--porcelain")
    theirs = release(other, "theirs")
    assert theirs.version == "v0.3.0"
    Registry(workspace).fetch_tags()
    assert state(workspace) == {"v0.1.0": (), "v0.2.0": (), "v0.3.0": ("production",)} == state(other)
    assert release(workspace, "more").version == "v0.4.0"
    assert is_clean(workspace)


def test_two_threads_release_one_after_the_other(workspace: Workspace) -> None:
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            release(workspace, name)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("left", "right")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(state(workspace)) == {"v0.1.0", "v0.2.0", "v0.3.0"}
    assert state(workspace)["v0.3.0"] == ("production",)


def test_a_lock_that_is_held_is_a_sentence(workspace: Workspace) -> None:
    with (
        Registry(workspace).locked(),
        pytest.raises(RegistryError, match=r"another process has held .*registry\.lock"),
        Registry(workspace, lock_timeout=0.05).locked(),
    ):
        pass


@pytest.mark.parametrize(
    ("step", "after"),
    [*((step, False) for step in STEPS), ("push", True)],
)
def test_killed_at_any_step_the_next_release_ends_the_same(
    workspace: Workspace, processes: ForkServerContext, step: str, after: bool
) -> None:
    child = processes.Process(target=release_and_die, args=(workspace.root, step, after))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert Registry(workspace).checked_out("v0.1.0").is_dir()
    version = release(workspace, "killed")
    assert (version.version, version.stages) == ("v0.2.0", ("production",))
    assert state(workspace) == {"v0.1.0": (), "v0.2.0": ("production",)}
    expected = {"policy@v0.1.0", "policy@v0.2.0", "policy#production#1", "policy#production#2"}
    assert tags(workspace.root) == expected == tags(workspace.root / ".flywheel" / "git")
    assert (workspace.policy / "skill.json").read_text() == "killed"
    assert is_clean(workspace)


def test_locks_of_a_killed_git_are_removed(workspace: Workspace) -> None:
    (workspace.root / ".git" / "index.lock").touch()
    assert release(workspace, "two").version == "v0.2.0"


def test_a_persons_own_tag_commit_and_edit_survive_a_release(workspace: Workspace) -> None:
    git = Git(workspace.root)
    git.run("tag", "my-own")
    (workspace.root / "notes.md").write_text("mine\n")
    git.commit(["notes.md"], "My notes")
    workspace.config_file.write_text(workspace.config_file.read_text() + "\n# edited, not committed\n")
    release(workspace, "two")
    assert "my-own" in tags(workspace.root)
    assert git.run("show", "HEAD:notes.md") == "mine"
    assert git.run("status", "--porcelain") == "M flywheel.toml"


def test_a_plain_user_fetches_production_with_dvc(workspace: Workspace, tmp_path: Path) -> None:
    """Another folder, another HOME, the stock command; the default remote is a relative path inside the workspace."""
    release(workspace, "two")
    Registry(workspace).assign("v0.1.0", "production")
    inside = workspace.root / ".flywheel"
    get = [sys.executable, "-m", "dvc", "artifacts", "get", "policy", "--stage", "production", "-o", "out"]
    for name, where in (
        ("workspace", [str(workspace.root)]),
        ("remote", [str(inside / "git"), "--remote-config", f"url={inside / 'dvc'}"]),
    ):
        folder = tmp_path / name
        (folder / "home").mkdir(parents=True)
        done = subprocess.run(
            [*get[:5], where[0], *get[5:], *where[1:]],
            cwd=folder,
            env={"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin", "DVC_NO_ANALYTICS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert folder_sha256(folder / "out") == Registry(workspace).find("v0.1.0").entry.content_sha256


def test_versions_sort_as_numbers() -> None:
    assert bump("v0.9.0") == "v0.10.0"
    assert max(["v0.9.0", "v0.10.0", "v0.2.0"], key=semver) == "v0.10.0"
