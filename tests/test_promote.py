"""Promote, rollback, history and `dvc repro`, on a real scripted turn that has come as far as the gate."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dvc.repo
import pytest
from scripted import SCRIPTED

from flywheel.config import Config, Gate
from flywheel.errors import ArtifactError, ConfigError, RegistryError
from flywheel.gate import gate
from flywheel.history import history
from flywheel.promote import promote
from flywheel.rollback import rollback
from flywheel.stages import STAGES
from flywheel.store import artifacts, champion
from flywheel.store.git import Git
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.store.registry_bytes import folder_sha256
from flywheel.traffic import serve_traffic
from flywheel.workspace import Workspace

CHAMPION_OUTS = ("data/champion/curriculum", "models/policy", "data/champion/evaluation")


@dataclass(frozen=True)
class Judged:
    """A workspace whose run has been judged, and the ids that a promotion takes."""

    workspace: Workspace
    run: str
    candidate: str
    incumbent: str
    decision: str

    def promote(self, **options: Any) -> Any:
        return promote(self.workspace, SCRIPTED, run_id=self.run, decision_id=self.decision, **options)

    def refused(self) -> Judged:
        """The same run under a gate that asks for more groups than there are."""
        config = SCRIPTED.model_copy(update={"gate": Gate(min_groups=500)})
        return replace(self, decision=self.decide(config))

    def decide(self, config: Config) -> str:
        result = gate(self.workspace, config, candidate_eval=self.candidate, incumbent_eval=self.incumbent)
        return result.decision_id


@pytest.fixture(scope="session")
def judged_once(initialised: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    root = tmp_path_factory.mktemp("judged") / "workspace"
    shutil.copytree(initialised.root, root, symlinks=True)
    workspace = Workspace(root)
    serve_traffic(workspace, SCRIPTED, taskset="online", at=datetime(2026, 1, 5, 9, tzinfo=UTC))
    STAGES["ingest"](root)
    STAGES["repair"](root)
    run = STAGES["train"](root, curriculum=STAGES["curate"](root)["curriculum_id"])["run_id"]
    both = STAGES["evaluate"](root, run=run)
    ids = (both["candidate"]["evaluation_id"], both["incumbent"]["evaluation_id"])
    judged = Judged(workspace, run, *ids, decision="")
    return replace(judged, decision=judged.decide(SCRIPTED))


@pytest.fixture
def judged(judged_once: Judged, tmp_path: Path) -> Judged:
    shutil.copytree(judged_once.workspace.root, tmp_path / "workspace", symlinks=True)
    return replace(judged_once, workspace=Workspace(tmp_path / "workspace"))


def rows(workspace: Workspace, sql: str) -> list[dict[str, Any]]:
    return Lake(workspace).query(sql)


def stages(workspace: Workspace) -> dict[str, tuple[str, ...]]:
    return {v.version: v.stages for v in Registry(workspace).versions()}


def changes(workspace: Workspace) -> dict[str, Any]:
    """What `dvc status` says of the whole workspace."""
    with dvc.repo.Repo(str(workspace.root)) as repo:
        found: dict[str, Any] = repo.status()
    return found


def repro(workspace: Workspace, *arguments: str) -> str:
    """`dvc repro`, typed by a person inside the activated environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "dvc", "repro", *arguments],
        cwd=workspace.root,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(output: str) -> list[str]:
    return [name for name in champion.STAGES if f"Running stage '{name}'" in output]


def test_a_run_with_evidence_becomes_production_and_the_ledger_says_so(judged: Judged) -> None:
    result = judged.promote()
    assert (result.promoted, result.version, result.verdict) == (True, "v0.2.0", "PROMOTE")
    run = artifacts.load(judged.workspace.runs / judged.run)
    current = Registry(judged.workspace).current()
    assert current is not None
    assert (current.version, current.entry.run_id) == ("v0.2.0", judged.run)
    assert current.entry.decision_id == judged.decision
    assert folder_sha256(judged.workspace.policy) == folder_sha256(judged.workspace.runs / judged.run / "policy")
    version = rows(judged.workspace, "select * from policy_version where version = 'v0.2.0'")
    assert [(r["run_id"], r["weights_sha256"], r["git_rev"]) for r in version] == [
        (judged.run, run.summary["weights_sha256"], current.git_rev)
    ]
    trained = rows(judged.workspace, "select distinct cluster_id from cluster_event where event = 'trained'")
    promoted = rows(
        judged.workspace, "select cluster_id, policy_version, ref from cluster_event where event = 'promoted'"
    )
    assert trained
    assert {r["cluster_id"] for r in promoted} == {r["cluster_id"] for r in trained}
    assert {(r["policy_version"], r["ref"]) for r in promoted} == {("v0.2.0", judged.run)}
    assert Git(judged.workspace.root).run("status", "--porcelain") == ""


def test_the_same_promotion_again_changes_nothing(judged: Judged) -> None:
    first, head, snapshot = judged.promote(), Git(judged.workspace.root).head(), Lake(judged.workspace).head()
    assert judged.promote() == first
    assert Git(judged.workspace.root).head() == head
    assert Lake(judged.workspace).head() == snapshot


def test_without_evidence_nothing_moves_and_the_reason_is_given(judged: Judged) -> None:
    head = Git(judged.workspace.root).head()
    result = judged.refused().promote()
    assert (result.promoted, result.version) == (False, "v0.1.0")
    assert result.verdict != "PROMOTE"
    assert result.sentence.startswith(f"not promoted, v0.1.0 stays in production: {result.verdict}")
    assert Git(judged.workspace.root).head() == head


def test_forcing_takes_a_name_and_a_reason_and_is_recorded_for_ever(judged: Judged) -> None:
    refused = judged.refused()
    for options in ({"forced_by": "Ada"}, {"reason": "because"}):
        with pytest.raises(ConfigError, match="a name and a reason"):
            refused.promote(**options)
    result = refused.promote(forced_by="Ada", reason="the incumbent is down")
    assert (result.promoted, result.version, result.verdict) == (True, "v0.2.0", "FORCED")
    (row,) = rows(judged.workspace, "select * from decision where verdict = 'FORCED'")
    assert row["by_whom"] == "Ada"
    assert json.loads(row["reasons"]) == {"decision": refused.decision, "sentence": "the incumbent is down"}
    shown = history(judged.workspace, SCRIPTED)
    assert [(v.version, v.forced_by, v.reason) for v in shown.versions] == [
        ("v0.1.0", None, None),
        ("v0.2.0", "Ada", "the incumbent is down"),
    ]


def test_a_decision_about_another_policy_is_refused(judged: Judged) -> None:
    other = STAGES["train"](
        judged.workspace.root,
        SCRIPTED.train.model_copy(update={"steps": 1}),
        curriculum=artifacts.load(judged.workspace.runs / judged.run).inputs["curriculum"],
    )["run_id"]
    with pytest.raises(RegistryError, match=f"but {other} made"):
        promote(judged.workspace, SCRIPTED, run_id=other, decision_id=judged.decision)
    assert stages(judged.workspace) == {"v0.1.0": ("production",)}


def test_a_decision_that_was_edited_is_no_decision(judged: Judged) -> None:
    refused = judged.refused()
    path = judged.workspace.decisions / refused.decision / "decision.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "verdict": "PROMOTE"}))
    with pytest.raises(ArtifactError, match=r"decision\.json"):
        refused.promote()
    assert stages(judged.workspace) == {"v0.1.0": ("production",)}


def test_rollback_goes_back_and_a_rerun_of_the_promotion_does_not_undo_it(judged: Judged) -> None:
    judged.promote()
    back = rollback(judged.workspace, SCRIPTED, version="v0.1.0")
    assert (back.changed, back.version, back.previous) == (True, "v0.1.0", "v0.2.0")
    assert not rollback(judged.workspace, SCRIPTED, version="v0.1.0").changed
    again = judged.promote()
    assert (again.promoted, again.version) == (False, "v0.1.0")
    assert "flywheel rollback v0.2.0" in again.sentence
    assert [move.version for move in history(judged.workspace, SCRIPTED).moves] == ["v0.1.0", "v0.2.0", "v0.1.0"]
    with pytest.raises(RegistryError, match="no version or stage 'v9'"):
        rollback(judged.workspace, SCRIPTED, version="v9")


def test_dvc_repro_rebuilds_the_champion_only_where_something_changed(judged: Judged) -> None:
    judged.promote()
    workspace = judged.workspace
    assert changes(workspace) == {}
    assert ran(repro(workspace)) == []
    before = {out: folder_sha256(workspace.root / out) for out in CHAMPION_OUTS}
    lock = (workspace.root / "dvc.lock").read_text()
    assert ran(repro(workspace, "--force")) == ["curate", "train", "evaluate"]
    assert {out: folder_sha256(workspace.root / out) for out in CHAMPION_OUTS} == before
    assert (workspace.root / "dvc.lock").read_text() == lock
    toml = workspace.config_file
    toml.write_text(toml.read_text().replace("\nsteps = 8\n", "\nsteps = 2\n"))
    assert ran(repro(workspace)) == ["train", "evaluate"]
    after = {out: folder_sha256(workspace.root / out) for out in CHAMPION_OUTS}
    assert [out for out in CHAMPION_OUTS if after[out] != before[out]] == list(CHAMPION_OUTS[1:])
    assert Registry(workspace).checked_out() != workspace.policy  # an experiment is not in production


def test_settings_that_the_file_does_not_say_are_the_champions_own(judged: Judged) -> None:
    """A run from a form with other steps: what is recorded rebuilds that run, and no other."""
    judged.workspace.config_file.write_text(
        judged.workspace.config_file.read_text().replace("\nsteps = 8\n", "\nsteps = 5\n")
    )
    config = SCRIPTED.model_copy(update={"train": SCRIPTED.train.model_copy(update={"steps": 5})})
    promote(judged.workspace, config, run_id=judged.run, decision_id=judged.decision)
    assert champion.read(judged.workspace, "train") == {"settings": {"steps": 8}}
    before = folder_sha256(judged.workspace.policy)
    assert ran(repro(judged.workspace, "--force", "--single-item", "train")) == ["train"]
    assert folder_sha256(judged.workspace.policy) == before


def test_the_untrained_base_is_a_champion_too(workspace: Workspace) -> None:
    """Rebuilt from nothing, by zero steps on an empty curriculum, it is the same policy."""
    before = folder_sha256(workspace.policy)
    assert ran(repro(workspace, "--force", "train")) == ["curate", "train"]
    assert folder_sha256(workspace.policy) == before


def test_killed_at_any_moment_a_second_promotion_ends_the_same(judged: Judged, tmp_path: Path) -> None:
    """The command itself, killed by SIGKILL after a random while, again and again until it gets through."""
    command = [sys.executable, "-m", "flywheel", "promote", "--root", str(judged.workspace.root)]
    command += ["--run", judged.run, "--decision", judged.decision, "--json"]
    chance = random.Random(7)
    killed, limit = 0, 1.0
    for _ in range(12):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as child:
            try:
                child.wait(timeout=chance.uniform(0.5, 1.0) * limit)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                killed += 1
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        limit *= 1.4
    assert killed
    result = judged.promote()
    assert (result.promoted, result.version) == (True, "v0.2.0")
    assert stages(judged.workspace) == {"v0.1.0": (), "v0.2.0": ("production",)}
    git = Git(judged.workspace.root)
    expected = ["policy#production#1", "policy#production#2", "policy@v0.1.0", "policy@v0.2.0"]
    assert git.run("tag").split() == expected
    assert Git(judged.workspace.root / ".flywheel" / "git").run("tag").split() == expected
    assert git.run("status", "--porcelain") == ""
    assert changes(judged.workspace) == {}
    (row,) = rows(judged.workspace, "select version, git_rev from policy_version where version = 'v0.2.0'")
    assert row["git_rev"] == git.run("rev-parse", "policy@v0.2.0^{commit}")
