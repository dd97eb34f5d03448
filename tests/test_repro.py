"""`dvc repro` after a turn: it knows that nothing changed, rebuilds what a parameter changes, and gives equal bytes.

Kills, forms and forced promotions are in test_promote.py; here it is the workspace as a turn leaves it.
"""

from __future__ import annotations

from pathlib import Path

from turns import Turned, run

from flywheel.store import champion
from flywheel.store.registry import Registry
from flywheel.store.registry_bytes import folder_sha256
from flywheel.workspace import Workspace

OUTS = ("data/champion/curriculum", "models/policy", "data/champion/evaluation")


def dvc(workspace: Workspace, *arguments: str) -> str:
    """DVC's command line, as a person types it in the workspace."""
    done = run("dvc", *arguments, cwd=workspace.root)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(output: str) -> list[str]:
    return [stage for stage in champion.STAGES if f"Running stage '{stage}'" in output]


def outs(workspace: Workspace) -> dict[str, str]:
    return {out: folder_sha256(workspace.root / out) for out in OUTS}


def curriculum(workspace: Workspace) -> dict[str, bytes]:
    folder = champion.curriculum_folder(workspace)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def with_steps(workspace: Workspace, old: int, new: int) -> None:
    toml = workspace.config_file.read_text(encoding="utf-8")
    assert f"\nsteps = {old}\n" in toml
    workspace.config_file.write_text(toml.replace(f"\nsteps = {old}\n", f"\nsteps = {new}\n"), encoding="utf-8")


def test_after_a_turn_nothing_changed(turned_copy: Turned) -> None:
    """Also in a copy at another path; and the curriculum can be rebuilt there, byte for byte."""
    workspace, first = turned_copy.workspace, curriculum(turned_copy.workspace)
    assert dvc(workspace, "status") == "Data and pipelines are up to date.\n"
    assert ran(dvc(workspace, "repro")) == []
    lock = (workspace.root / "dvc.lock").read_bytes()
    assert ran(dvc(workspace, "repro", "--force", "--single-item", "curate")) == ["curate"]
    assert curriculum(workspace) == first
    assert (workspace.root / "dvc.lock").read_bytes() == lock


def test_a_parameter_rebuilds_what_depends_on_it_and_undone_gives_the_old_bytes(turned_copy: Turned) -> None:
    workspace = turned_copy.workspace
    before = outs(workspace)
    with_steps(workspace, 8, 3)
    status = dvc(workspace, "status")
    assert "train:" in status
    assert "curate:" not in status
    assert ran(dvc(workspace, "repro")) == ["train", "evaluate"]
    after = outs(workspace)
    assert [out for out in OUTS if after[out] != before[out]] == list(OUTS[1:])
    assert Registry(workspace).checked_out() != workspace.policy  # an experiment, nobody promoted it
    with_steps(workspace, 3, 8)
    dvc(workspace, "repro")
    assert outs(workspace) == before


def test_an_experiment_is_not_the_incumbent_of_the_next_turn(turned_copy: Turned) -> None:
    """The gate compares with what is in production, whatever `dvc repro` left in models/policy."""
    from flywheel.stages import evaluate

    workspace, turn = turned_copy.workspace, turned_copy.result
    with_steps(workspace, 8, 3)
    assert ran(dvc(workspace, "repro", "--single-item", "train")) == ["train"]
    judged = evaluate(workspace.root, run=turn["run"])
    assert judged["incumbent"]["policy"] == judged["candidate"]["policy"]  # v0.2.0 is that run


def test_another_workspace_at_another_path_has_the_same_curriculum(turned_once: Turned, tmp_path: Path) -> None:
    from turns import made, turned

    other = made(tmp_path / "some" / "where else")
    assert turned(other)["curriculum"] == turned_once.result["curriculum"]
    assert curriculum(other) == curriculum(turned_once.workspace)
    assert outs(other) == outs(turned_once.workspace)
