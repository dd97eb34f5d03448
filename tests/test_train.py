"""`train` over a real small lake and curriculum, with the scripted double and with a tiny real model through TRL."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from evidence import DOMAIN, TRAIN, make_workspace, online, publish_evidence

from flywheel.config import Config, Curate, Train
from flywheel.curate import curate
from flywheel.errors import ArtifactError, TrainingError
from flywheel.progress import silent
from flywheel.store import artifacts
from flywheel.store.curricula import read_rows
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks
from flywheel.train import train
from flywheel.trainers import open_policy
from flywheel.workspace import Workspace

KILLED = """
import os, signal, sys
from pathlib import Path
from flywheel.config import Config
from flywheel.train import train
from flywheel.workspace import Workspace

def progress(done, total, what):
    if done == 5:
        os.kill(os.getpid(), signal.SIGKILL)

train(Workspace(Path(sys.argv[1])), Config.model_validate_json(sys.argv[3]), sys.argv[2], progress=progress)
"""
SCRIPTED = Config(train=Train(recipe="scripted", steps=4, batch=8))
REAL = Config(curate=Curate(max_length=2048), train=Train(steps=6, batch=2, lora_r=4))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A scripted workspace with its curriculum, to be copied."""
    made = make_workspace(tmp_path_factory.mktemp("trained") / "w")
    publish_evidence(made)
    return made.root, curate(made, SCRIPTED).curriculum_id


@pytest.fixture
def ready(template: tuple[Path, str], tmp_path: Path) -> tuple[Workspace, str]:
    root, curriculum_id = template
    return Workspace(shutil.copytree(root, tmp_path / "w").resolve()), curriculum_id


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "timings.json")
    return {path.relative_to(folder).as_posix(): artifacts.file_sha256(path) for path in files}


def test_a_curriculum_makes_a_better_policy(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    told: list[int] = []
    result = train(workspace, SCRIPTED, curriculum_id, progress=lambda done, total, what: told.append(done))
    tasks = load_all_tasks(workspace)
    before, after = (open_policy(folder, tasks) for folder in (workspace.base, Path(result.folder) / "policy"))
    assert after.identity == result.weights_sha256 != before.identity
    assert after.default > before.default  # type: ignore[attr-defined]  # held-out phrasings have no skill of their own
    assert told == [1, 2, 3, 4] and result.steps == 4
    assert result.loss_first is not None and result.loss_last is not None and result.loss_last < result.loss_first
    lines = [json.loads(line) for line in (Path(result.folder) / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines][:: len(lines) - 1] == [result.loss_first, result.loss_last]
    assert set(lines[0]) == {"step", "loss", "tokens", "lr"}
    assert "seconds" not in (Path(result.folder) / artifacts.MANIFEST).read_text()
    assert not (Path(result.folder) / "work").exists()
    json.dumps(asdict(result))


def test_the_ledger_knows_the_run_and_its_clusters(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    result = train(workspace, SCRIPTED, curriculum_id)
    (run,) = Lake(workspace).query("select * from run")
    assert (run["run_id"], run["curriculum_id"]) == (result.run_id, curriculum_id)
    assert run["weights_sha256"] == result.weights_sha256
    assert json.loads(run["recipe"])["recipe"] == "scripted" and run["seed"] == 0
    assert json.loads(run["metrics"])["loss_last"] == result.loss_last
    trained = Lake(workspace).query("select sum(n) as n from cluster_event where event = 'trained' and ref = ?",
                                    [result.run_id])  # fmt: skip
    clustered = [r for r in read_rows(workspace.curricula / curriculum_id) if r.cluster_id]
    assert trained == [{"n": len(clustered)}] and clustered


def test_a_second_time_is_a_no_op(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    first = train(workspace, SCRIPTED, curriculum_id)
    times = {path: path.stat().st_mtime_ns for path in Path(first.folder).rglob("*")}
    told: list[int] = []
    assert train(workspace, SCRIPTED, curriculum_id, progress=lambda done, *_: told.append(done)) == first
    assert told == []
    assert {path: path.stat().st_mtime_ns for path in Path(first.folder).rglob("*")} == times


def test_the_id_is_of_base_curriculum_recipe_and_seed(ready: tuple[Workspace, str], tmp_path: Path) -> None:
    workspace, curriculum_id = ready
    other = tmp_path / "other"
    shutil.copytree(workspace.root, other)
    first = train(workspace, SCRIPTED, curriculum_id)
    elsewhere = train(Workspace(other.resolve()), SCRIPTED, curriculum_id)
    assert replace(elsewhere, folder="", seconds=0) == replace(first, folder="", seconds=0)
    assert contents(Path(elsewhere.folder)) == contents(Path(first.folder))
    changed = [
        train(workspace, Config(train=SCRIPTED.train.model_copy(update=update)), curriculum_id).run_id
        for update in ({"seed": 1}, {"steps": 3}, {"learning_rate": 0.1})
    ]
    second = train(workspace, SCRIPTED, curriculum_id, base=Path(first.folder) / "policy")
    assert len({first.run_id, second.run_id, *changed}) == 5


def test_zero_steps_are_the_base_itself(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    result = train(workspace, Config(train=Train(steps=0)), curriculum_id)
    assert contents(Path(result.folder) / "policy") == contents(workspace.base)
    assert result.weights_sha256 == open_policy(workspace.base, {}).identity
    assert (result.steps, result.loss_first, result.loss_last) == (0, None, None)


def test_an_empty_curriculum_is_refused_with_the_way_to_the_reason(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path / "w")
    Lake(workspace).publish("online", online([(TRAIN[0], False)]))
    empty = curate(workspace, SCRIPTED)
    with pytest.raises(TrainingError, match=rf"{empty.curriculum_id} has no rows.*datasheet\.md says why"):
        train(workspace, SCRIPTED, empty.curriculum_id)
    assert train(workspace, Config(train=Train(steps=0)), empty.curriculum_id).steps == 0


def test_what_can_not_be_trained_is_named(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    with pytest.raises(TrainingError, match=r"recipe 'sft' can't train .*base"):
        train(workspace, Config(train=Train(recipe="sft")), curriculum_id)
    with pytest.raises(ArtifactError, match="curriculum-none is not a finished artefact"):
        train(workspace, SCRIPTED, "curriculum-none")
    rows = workspace.curricula / curriculum_id / "sft.parquet"
    rows.write_bytes(rows.read_bytes() + b" ")
    with pytest.raises(ArtifactError, match=r"sft\.parquet differs from its manifest"):
        train(workspace, SCRIPTED, curriculum_id)


def test_tasks_that_are_not_here_are_named(ready: tuple[Workspace, str]) -> None:
    workspace, curriculum_id = ready
    shutil.rmtree(workspace.tasksets / "train")
    with pytest.raises(TrainingError, match=r"names tasks of no task set here, task-\w+ for one: `dvc pull`"):
        train(workspace, SCRIPTED, curriculum_id)


@pytest.mark.model
def test_a_real_run_killed_and_resumed_is_the_run_undisturbed(tmp_path: Path) -> None:
    """kill -9 in the fifth of six steps, in a workspace at another path: same id, same bytes of every file."""
    from tiny_model import make_tiny_policy

    one, two = (make_workspace(tmp_path / name) for name in ("one", "two/deeper"))
    shutil.rmtree(one.base)
    make_tiny_policy(one.base)
    publish_evidence(one)
    curriculum_id = curate(one, REAL).curriculum_id
    for part in ("data", "models"):
        shutil.rmtree(two.root / part)
        shutil.copytree(one.root / part, two.root / part)
    undisturbed = train(one, REAL, curriculum_id)

    arguments = [str(two.root), curriculum_id, REAL.model_dump_json()]
    child = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert child.returncode == -signal.SIGKILL
    unfinished = two.runs / undisturbed.run_id
    assert not artifacts.is_finished(unfinished) and list((unfinished / "work").glob("checkpoint-*"))
    told: list[int] = []
    resumed = train(two, REAL, curriculum_id, progress=lambda done, *_: told.append(done))
    assert told == [5, 6]
    assert replace(resumed, folder="", seconds=0) == replace(undisturbed, folder="", seconds=0)
    assert contents(unfinished) == contents(Path(undisturbed.folder))
    assert not (unfinished / "work").exists()

    policy = open_policy(unfinished / "policy", {})
    assert policy.identity == resumed.weights_sha256
    from flywheel.records import Sampling

    (reply,) = policy.act([DOMAIN.prompt(TRAIN[0])], Sampling(temperature=0.0, max_tokens=4))
    assert reply.output_tokens > 0
    assert train(two, REAL, curriculum_id, progress=silent) == resumed
