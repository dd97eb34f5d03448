"""`flywheel show`: from the promoted version to failing traces and their landing objects and back, for every id."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import SCRIPTED
from turns import Turned

from flywheel.errors import LakeError
from flywheel.show import SHOWN, ShowResult, show
from flywheel.store.lake import Lake

# How to find one id of each kind; the traces are failing ones that were repaired and learnt from.
FIND = {
    "policy_version": "select max(version) as id from policy_version",
    "run": "select run_id as id from run",
    "curriculum": "select curriculum_id as id from run",
    "curriculum_row": "select min(row_id) as id from lineage where rollout_id is not null",
    "rollout": "select min(rollout_id) as id from lineage",
    "trajectory": "select min(trajectory_id) as id from lineage where rollout_id is not null",
    "failure": "select min(failure_id) as id from failure join lineage using (trajectory_id) where is_root",
    "cluster": "select min(cluster_id) as id from lineage",
    "task": "select min(task_id) as id from lineage",
    "evaluation": "select evaluation_id as id from evaluation join run on policy = weights_sha256",
    "decision": "select decision_id as id from decision",
    "outcome": "select min(outcome_id) as id from outcome join lineage using (trajectory_id)",
    "source_file": "select source_id as id from source_file",
    "batch": "select batch_id as id from source_file",
    "snapshot": "select snapshot_id as id from snapshot, source_file f where list_contains(batches, f.batch_id)",
    "turn": "select turn_id as id from run",
}


def of(turned: Turned, id_: str) -> ShowResult:
    return show(turned.workspace, SCRIPTED, id_=id_)


def found(turned: Turned, sql: str) -> list[dict[str, Any]]:
    return Lake(turned.workspace).query(sql)


@pytest.mark.parametrize("kind", FIND)
def test_every_kind_of_id_leads_to_the_version_and_to_the_landing_object(turned_once: Turned, kind: str) -> None:
    id_ = found(turned_once, FIND[kind])[0]["id"]
    said = of(turned_once, id_)
    assert (said.id, said.kind) == (id_, kind)
    assert said.facts
    assert said.lineage_rows
    reached = {name: set(ids) for name, ids in said.related.items()} | {f"{kind}_id": {id_}}
    result = turned_once.result
    assert "v0.2.0" in reached.get("version", {id_})
    assert result["run"] in reached["run_id"]
    assert result["curriculum"] in reached["curriculum_id"]
    assert result["candidate"] in reached["evaluation_id"]
    assert result["decision"] in reached["decision_id"]
    assert reached.get("trajectory_id")
    (source,) = found(turned_once, "select source_id, uri from source_file")
    assert reached.get("source_id", reached.get("source_file_id")) == {source["source_id"]}
    assert reached["uri"] == {source["uri"]}


def test_one_row_leads_to_exactly_its_own_trace_rollout_and_task(turned_once: Turned) -> None:
    for line in found(turned_once, "from lineage order by row_id limit 5"):
        said = of(turned_once, line["row_id"])
        for column in ("version", "run_id", "curriculum_id", "task_id", "cluster_id", "rollout_id", "trajectory_id"):
            assert said.related.get(column, [None]) == [line[column]], column
        back = of(turned_once, line["trajectory_id"])
        assert line["row_id"] in back.related["row_id"]


def test_a_failing_trace_shows_every_try_to_repair_it(turned_once: Turned) -> None:
    """Also the tries that failed and are in no lineage row, and the rows that were left out."""
    (never,) = found(
        turned_once,
        "select f.trajectory_id, f.task_id from trajectory f anti join lineage using (trajectory_id) "
        "where f.success = false and f.format <> 'rollout' order by 1 limit 1",
    )
    said = of(turned_once, never["trajectory_id"])
    assert said.lineage_rows == 0
    assert said.counts["rollout_id"] == SCRIPTED.repair.k
    assert of(turned_once, said.related["rollout_id"][0]).related["trajectory_id"] == [never["trajectory_id"]]
    left_out = of(turned_once, said.related["row_id"][0])
    assert left_out.facts["kept"] is False
    assert left_out.facts["reason"]
    assert left_out.related["trajectory_id"] == [never["trajectory_id"]]


def test_many_ids_are_counted_and_a_few_named(turned_once: Turned) -> None:
    said = of(turned_once, "policy@v0.2.0")
    kept = turned_once.result["results"]["curate"]["rows"]
    assert said.id == "v0.2.0"
    assert said.counts["row_id"] == kept > SHOWN == len(said.related["row_id"])


def test_the_base_has_its_evaluation_and_the_decision_against_it(turned_once: Turned) -> None:
    base = of(turned_once, "v0.1.0")
    assert base.related == {"evaluation_id": [turned_once.result["incumbent"]]}
    incumbent = of(turned_once, turned_once.result["incumbent"])
    assert incumbent.related == {"version": ["v0.1.0"], "decision_id": [turned_once.result["decision"]]}


def test_a_landing_object_is_found_by_its_name_too(turned_once: Turned) -> None:
    (source,) = found(turned_once, "select source_id, uri from source_file")
    by_name, by_hash = of(turned_once, source["uri"]), of(turned_once, source["source_id"])
    assert by_name.facts == by_hash.facts
    assert by_name.counts["trajectory_id"] == by_hash.counts["trajectory_id"] == SCRIPTED.tasks.train


def test_an_unknown_id_is_a_sentence(turned_once: Turned) -> None:
    with pytest.raises(LakeError, match="nothing in the lake is called 'run-x'"):
        of(turned_once, "run-x")
