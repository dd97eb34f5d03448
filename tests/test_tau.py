"""200 real runs by another project's agent go through ingest, validate, triage and SQL; repair says why it can't."""

from __future__ import annotations

from pathlib import Path

from flywheel.stages import STAGES
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace


def test_real_runs_by_others_become_answers_in_sql(workspace: Workspace, samples: Path) -> None:
    file = samples / "tau_bench" / "gpt-4o-airline.json"
    result = STAGES["ingest"](workspace.root, paths=[file])
    assert (result["trajectories"], result["quarantined"], result["formats"]) == (200, 0, {"tau_bench": 1})
    assert [judged["success"] for judged in result["judged"]] == [True]

    repaired = STAGES["repair"](workspace.root)
    assert repaired["triage"]["failures"] >= 116
    assert repaired["repair_id"] is None
    assert sum(repaired["refused"].values()) == 116, "no environment of ours can re-run these tasks, and it says so"

    lake = Lake(workspace)
    (counts,) = lake.query(
        "select count(*) as n, count(*) filter (where not success) as failed from trajectory where format = 'tau_bench'"
    )
    assert counts == {"n": 200, "failed": 116}
    codes = {row["code"]: row["trajectories"] for row in lake.query("from failures_by_tool")}
    assert codes
    (labelled,) = lake.query("select count(distinct trajectory_id) as n from failure where is_root")
    assert labelled["n"] == 116
    (calls,) = lake.query("select count(*) as n from tool_call where result_state = 'missing'")
    assert calls["n"] == 0

    again = STAGES["ingest"](workspace.root, paths=[file])
    assert again["batch"] is None
    assert again["skipped"] >= 1
