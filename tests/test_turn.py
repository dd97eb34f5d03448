"""A whole turn with the scripted policy: the real pipeline, git, DVC and lake, without a model and without Prefect."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scripted import SCRIPTED
from turns import AT, IDS, Turned, artefacts, comparable, made, turned

from flywheel.config import Evaluate, Train, load_config
from flywheel.init import config_text
from flywheel.stages import STAGES
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.traffic import serve_traffic
from flywheel.turn import finished_turns
from flywheel.workspace import Workspace


def test_a_turn_promotes_with_evidence(turned_once: Turned) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    assert result["verdict"] == "PROMOTE", result["results"]["promote"]["gate"]["reasons"]
    assert result["version"] == "v0.2.0"
    judged = result["results"]["evaluate"]
    assert judged["candidate"]["low"] > judged["incumbent"]["high"]
    production = Registry(workspace).current()
    assert production is not None
    assert production.version == "v0.2.0"
    assert Path(result["page"]).stat().st_size > 10_000


def test_rows_are_repairs_and_successes_never_the_oracle(turned_once: Turned) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    sources = Lake(workspace).query(
        "select source, count(*) as n from curriculum_row where kept and curriculum_id = $1 group by 1",
        [result["curriculum"]],
    )
    by_source = {row["source"]: row["n"] for row in sources}
    assert by_source.get("model", 0) >= 16
    assert "expert" not in by_source


def test_every_learnt_row_leads_back_to_a_landing_object(turned_once: Turned) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    rows = Lake(workspace).query("select * from lineage where version = $1", [result["version"]])
    kept = result["results"]["curate"]["rows"]
    assert len({row["row_id"] for row in rows}) == kept
    assert {Path(row["uri"]).name.split("-")[0] for row in rows} == {"online"}
    assert all(row["rollout_id"] for row in rows if row["source"] == "model")


def test_a_second_turn_finds_nothing_new(turned_once: Turned) -> None:
    workspace = turned_once.workspace
    before = Lake(workspace).head()
    again = turned(workspace)
    assert again["new"] is False
    assert "nothing new" in again["why"]
    assert Lake(workspace).head() == before
    assert not workspace.current_turn.exists()


def test_the_same_inputs_give_the_same_ids_elsewhere(turned_once: Turned, tmp_path: Path) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    other = made(tmp_path / "somewhere" / "else")
    again = turned(other)
    assert {i: again[i] for i in IDS} == {i: result[i] for i in IDS}
    assert Lake(other).head() == Lake(workspace).head()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_turn_resumes_after_any_stage(served: Workspace, turned_once: Turned, moment: str) -> None:
    """A stage that dies, also with all its work done and only not noted, is run again and says the same again."""
    fuse = {stage for stage in STAGES if stage != "maintain"}

    def dying(stage: str, **arguments: Any) -> Any:
        result = STAGES[stage](**arguments) if moment == "after" or stage not in fuse else None
        if stage in fuse:
            fuse.remove(stage)
            raise KeyboardInterrupt
        return result

    stages = {stage: partial(dying, stage) for stage in STAGES}
    for _ in list(fuse):
        with pytest.raises(KeyboardInterrupt):
            turned(served, stages)
    assert comparable(turned(served, stages)) == comparable(turned_once.result)
    assert artefacts(served) == artefacts(turned_once.workspace)


def test_scratch_left_by_a_kill_just_before_its_removal_is_removed(turned_copy: Turned) -> None:
    workspace, result = turned_copy.workspace, turned_copy.result
    work = workspace.evals / result["candidate"] / "work"
    work.mkdir()
    assert STAGES["evaluate"](workspace.root, run=result["run"])["candidate"]["made"] is False
    assert not work.exists()


def test_too_little_evidence_is_not_promoted(served: Workspace) -> None:
    """A few rows teach a little: the gate says how much more evidence it would take, and nothing moves."""
    weak = SCRIPTED.model_copy(update={"train": Train(recipe="scripted", steps=1, batch=1), "evaluate": Evaluate(k=2)})
    served.config_file.write_text(config_text(weak), encoding="utf-8")
    result = turned(served)
    assert result["verdict"] == "INCONCLUSIVE"
    assert result["version"] == "v0.1.0"
    gate = result["results"]["promote"]["gate"]
    assert (gate["more_runs"] or 0) + (gate["more_tasks"] or 0) > 0
    assert not result["results"]["promote"]["promoted"]


def test_new_traffic_turns_again(turned_once: Turned, tmp_path: Path) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    copy = tmp_path / "w"
    shutil.copytree(workspace.root, copy, symlinks=True)
    moved = Workspace.find(copy)
    from flywheel.tasksets import build

    config = load_config(moved.config_file)
    build(moved, config, name="online-2", split="train", n=48, seed=77)
    served = serve_traffic(moved, config, taskset="online-2", at=AT)
    assert served.policy != result["results"]["evaluate"]["incumbent"]["policy"]
    again = turned(moved)
    assert again["new"] is True
    assert again["curriculum"] != result["curriculum"]


def test_the_record_holds_ids_and_no_times(turned_once: Turned) -> None:
    workspace, result = turned_once.workspace, turned_once.result
    folder = workspace.turns / result["turn"]
    record = json.loads((folder / "turn.json").read_text(encoding="utf-8"))
    assert "seconds" not in record
    assert finished_turns(workspace) == [record]


def test_what_a_turn_publishes_carries_its_id(turned_once: Turned) -> None:
    """In SQL: which turn labelled, decided, promoted; what came before it (the task sets, the base) belongs to none."""
    lake = Lake(turned_once.workspace)
    own = ("failure", "cluster", "cluster_event", "curriculum_row", "run", "evaluation", "decision", "validation")
    for table in own:
        (row,) = lake.query(f"select count(*) as n, list(distinct turn_id) as turns from {table}")
        assert (row["n"] > 0, row["turns"]) == (True, [turned_once.result["turn"]]), table
    versions = lake.query("select version, turn_id from policy_version order by version")
    assert [(v["version"], v["turn_id"]) for v in versions] == [
        ("v0.1.0", None),
        ("v0.2.0", turned_once.result["turn"]),
    ]
    (traces,) = lake.query(
        "select list(distinct b.turn_id) as turns from trajectory t join batch b using (batch_id) group by all"
    )
    assert traces["turns"] == [turned_once.result["turn"]]
