"""Show: where an id comes from and what came of it.

    flywheel show ID        a trace, failure, cluster, task, rollout, curriculum, run, evaluation, decision, version...

Answers from two things in the lake: the table the id is a key of, and the view `lineage` (one row for each kept
curriculum row: version, run, curriculum, row, rollout, failing trace, landing object). Not covered: artefact folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flywheel.config import Config
from flywheel.errors import LakeError
from flywheel.progress import Progress, silent
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

# Where an id may be a key, in the order they are asked. A rollout is a trajectory.
HOMES: tuple[tuple[str, str], ...] = (
    ("trajectory", "trajectory_id"),
    ("policy_version", "version"),
    ("run", "run_id"),
    ("curriculum_row", "row_id"),
    ("evaluation", "evaluation_id"),
    ("decision", "decision_id"),
    ("failure", "failure_id"),
    ("cluster", "cluster_id"),
    ("task", "task_id"),
    ("source_file", "source_id"),
    ("validation", "validation_id"),
    ("outcome", "outcome_id"),
    ("batch", "batch_id"),
    ("snapshot", "snapshot_id"),
)
LINEAGE = (
    "version", "run_id", "curriculum_id", "row_id", "source", "task_id", "cluster_id",
    "rollout_id", "trajectory_id", "source_id", "uri",
)  # fmt: skip
SHOWN = 8  # ids listed for each kind; the count says how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult:
    """`facts`: the id's own row, without empty columns. `related`: ids on the same lineage rows, by kind."""

    id: str
    kind: str
    facts: dict[str, Any]
    lineage_rows: int
    related: dict[str, list[str]]
    counts: dict[str, int]


def show(workspace: Workspace, config: Config, *, id_: str, progress: Progress = silent) -> ShowResult:
    """What the lake knows of an id. `policy@v0.2.0` and `v0.2.0` are the same. Errors: LakeError if nothing does."""
    wanted = id_.removeprefix("policy@")
    lake = Lake(workspace)
    kind, facts = _home(lake, wanted)
    columns = ", ".join(f"list(distinct {c}) filter ({c} is not null) as {c}" for c in LINEAGE)
    matches = " or ".join(f"{c} = $1" for c in LINEAGE)
    row = lake.query(f"select count(*) as n, {columns} from lineage where {matches}", [wanted])[0]
    if kind is None and not row["n"]:
        raise LakeError(f"nothing in the lake is called {id_!r}; `flywheel sql` shows what is there")
    found = {c: sorted(row[c] or []) for c in LINEAGE}
    return ShowResult(
        id=wanted,
        kind=kind or next(c for c in LINEAGE if wanted in found[c]),
        facts=facts,
        lineage_rows=row["n"],
        related={c: ids[:SHOWN] for c, ids in found.items() if ids and ids != [wanted]},
        counts={c: len(ids) for c, ids in found.items() if ids},
    )


def _home(lake: Lake, wanted: str) -> tuple[str | None, dict[str, Any]]:
    for table, key in HOMES:
        rows = lake.query(f"select * from {table} where {key} = $1 limit 1", [wanted])
        if rows:
            return table, {name: value for name, value in rows[0].items() if value is not None}
    return None, {}
