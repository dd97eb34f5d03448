"""Show: where an id comes from and what came of it.

    flywheel show ID      a version, run, curriculum, row, rollout, trace, failure, cluster, task, evaluation, decision,
                          batch, snapshot, turn, or landing object (by hash or name)

Answers from the lake alone: the id's own row, the ids that this row names or is named by, and the rows of the view
`lineage` that the id is on (version, run, curriculum, row, rollout, failing trace, landing object), from which the
evaluations and decisions about those runs follow. Not covered: artefact folders, single messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flywheel.config import Config
from flywheel.errors import LakeError
from flywheel.progress import Progress, silent
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

# Where an id may be a key, in the order they are asked. A batch is often named by what it published: that comes first.
HOMES: tuple[tuple[str, str], ...] = (
    ("trajectory", "from trajectory where trajectory_id = $1"),
    ("policy_version", "from policy_version where version = $1"),
    ("run", "from run where run_id = $1"),
    ("curriculum_row", "from curriculum_row where row_id = $1 order by kept desc, created_at desc"),
    (
        "curriculum",
        "select curriculum_id, count(*) filter (kept) as rows, count(*) filter (not kept) as left_out, max(turn_id) "
        "as turn_id, min(created_at) as created_at from curriculum_row where curriculum_id = $1 group by 1",
    ),
    ("evaluation", "from evaluation where evaluation_id = $1"),
    ("decision", "from decision where decision_id = $1"),
    ("failure", "from failure where failure_id = $1"),
    ("cluster", "from cluster where cluster_id = $1"),
    ("task", "from task where task_id = $1"),
    ("source_file", "from source_file where source_id = $1 or uri = $1"),
    ("validation", "from validation where validation_id = $1"),
    ("outcome", "from outcome where outcome_id = $1"),
    ("batch", "from batch where batch_id = $1"),
    ("snapshot", "from snapshot where snapshot_id = $1"),
    (
        "turn",
        "select turn_id, count(*) as batches, min(created_at) as first_publish, max(created_at) as last_publish "
        "from batch where turn_id = $1 group by 1",
    ),
)

# Ids that stand for this one in `lineage`, where it is no column of it.
STANDS_FOR: dict[str, str] = {
    "evaluation": "select run_id from run join evaluation on policy = weights_sha256 where evaluation_id = $1",
    "decision": "select run_id from run join decision on candidate = weights_sha256 where decision_id = $1",
    "failure": "select trajectory_id from failure where failure_id = $1",
    "outcome": "select trajectory_id from outcome where outcome_id = $1",
    "source_file": "select source_id from source_file where uri = $1",
    "batch": "select trajectory_id from trajectory_all where batch_id = $1",
    "snapshot": "select trajectory_id from trajectory_all where batch_id in "
    "(select unnest(batches) from snapshot where snapshot_id = $1)",
    "turn": "select run_id from run where turn_id = $1",
}

# (kind of id, SQL that gives such ids) for what the id's own row names, or what names it.
LINKS: dict[str, tuple[tuple[str, str], ...]] = {
    "trajectory": (
        ("failure_id", "select failure_id from failure where trajectory_id = $1"),
        ("cluster_id", "select cluster_id from failure where trajectory_id = $1"),
        ("outcome_id", "select outcome_id from outcome where trajectory_id = $1"),
        ("task_id", "select task_id from trajectory where trajectory_id = $1"),
        ("source_id", "select source_id from trajectory where trajectory_id = $1 and format <> 'rollout'"),
        ("uri", "select uri from source_file join trajectory using (source_id) where trajectory_id = $1"),
        ("row_id", "select row_id from curriculum_row where list_contains(parents, $1)"),
        ("rollout_id", "select trajectory_id from trajectory where list_contains(repairs(format, metadata), $1)"),
        ("trajectory_id", "select unnest(repairs(format, metadata)) from trajectory where trajectory_id = $1"),
    ),
    "policy_version": (
        ("run_id", "select run_id from policy_version where version = $1"),
        (
            "evaluation_id",
            "select evaluation_id from evaluation join policy_version on policy = weights_sha256 where version = $1",
        ),
    ),
    "run": (
        ("curriculum_id", "select curriculum_id from run where run_id = $1"),
        ("version", "select version from policy_version where run_id = $1"),
    ),
    "curriculum_row": (
        ("curriculum_id", "select curriculum_id from curriculum_row where row_id = $1"),
        ("task_id", "select task_id from curriculum_row where row_id = $1"),
        ("cluster_id", "select cluster_id from curriculum_row where row_id = $1"),
        (
            "trajectory_id",
            "select trajectory_id from trajectory where format <> 'rollout' and trajectory_id in "
            "(select unnest(parents) from curriculum_row where row_id = $1)",
        ),
        (
            "rollout_id",
            "select trajectory_id from trajectory where format = 'rollout' and trajectory_id in "
            "(select unnest(parents) from curriculum_row where row_id = $1)",
        ),
    ),
    "curriculum": (("run_id", "select run_id from run where curriculum_id = $1"),),
    "evaluation": (
        ("run_id", STANDS_FOR["evaluation"]),
        (
            "version",
            "select version from policy_version join evaluation on policy = weights_sha256 where evaluation_id = $1",
        ),
        (
            "decision_id",
            "select decision_id from decision where json_extract_string(reasons, '$.candidate_evaluation') = $1 "
            "or json_extract_string(reasons, '$.incumbent_evaluation') = $1",
        ),
    ),
    "decision": (
        ("run_id", STANDS_FOR["decision"]),
        (
            "evaluation_id",
            "select unnest([json_extract_string(reasons, '$.candidate_evaluation'), "
            "json_extract_string(reasons, '$.incumbent_evaluation')]) from decision where decision_id = $1",
        ),
        ("decision_id", "select json_extract_string(reasons, '$.decision') from decision where decision_id = $1"),
    ),
    "failure": (
        ("trajectory_id", STANDS_FOR["failure"]),
        ("cluster_id", "select cluster_id from failure where failure_id = $1"),
    ),
    "cluster": (
        ("trajectory_id", "select trajectory_id from failure where cluster_id = $1"),
        ("failure_id", "select failure_id from failure where cluster_id = $1"),
    ),
    "task": (
        ("trajectory_id", "select trajectory_id from trajectory where task_id = $1 and format <> 'rollout'"),
        ("rollout_id", "select trajectory_id from trajectory where task_id = $1 and format = 'rollout'"),
    ),
    "source_file": (
        ("source_id", STANDS_FOR["source_file"]),
        ("uri", "select uri from source_file where source_id = $1"),
        (
            "trajectory_id",
            "select trajectory_id from trajectory join source_file using (source_id) where $1 in (source_id, uri)",
        ),
        ("batch_id", "select batch_id from source_file where $1 in (source_id, uri)"),
    ),
    "validation": (("batch_id", "select target_id from validation where validation_id = $1"),),
    "outcome": (("trajectory_id", STANDS_FOR["outcome"]),),
    "batch": (
        ("source_id", "select unnest(objects) from batch where batch_id = $1"),
        ("uri", "select uri from source_file where batch_id = $1"),
        ("trajectory_id", "select trajectory_id from trajectory_all where batch_id = $1 and format <> 'rollout'"),
        ("rollout_id", "select trajectory_id from trajectory_all where batch_id = $1 and format = 'rollout'"),
        ("failure_id", "select failure_id from failure where batch_id = $1"),
        ("task_id", "select task_id from task where batch_id = $1"),
        ("validation_id", "select validation_id from validation where target_id = $1"),
        ("snapshot_id", "select snapshot_id from snapshot where list_contains(batches, $1)"),
    ),
    "snapshot": (
        ("batch_id", "select unnest(batches) from snapshot where snapshot_id = $1"),
        ("snapshot_id", "select parent_id from snapshot where snapshot_id = $1"),
    ),
    "turn": (
        ("batch_id", "select batch_id from batch where turn_id = $1"),
        ("run_id", STANDS_FOR["turn"]),
        ("evaluation_id", "select evaluation_id from evaluation where turn_id = $1"),
        ("decision_id", "select decision_id from decision where turn_id = $1"),
        ("version", "select version from policy_version where turn_id = $1"),
    ),
}

LINEAGE = (
    "version", "run_id", "curriculum_id", "row_id", "task_id", "cluster_id", "rollout_id", "trajectory_id",
    "source_id", "uri",
)  # fmt: skip
ORDER = (
    "turn_id", "version", "decision_id", "evaluation_id", *LINEAGE[1:], "failure_id", "outcome_id", "batch_id",
    "validation_id", "snapshot_id",
)  # fmt: skip
SHOWN = 8  # ids listed for each kind; the count says how many there are

# The failing traces that a rollout was made for.
REPAIRS = """
create macro repairs(format, metadata) as case when format = 'rollout' then list_prepend(
    json_extract_string(metadata, '$.repairs'), json_extract_string(metadata, '$.also[*]')) end
"""

RELATED = """
with start as materialized (select $1 as id union ({stands_for})),
found as materialized (select * from lineage where {on_lineage}),
linked as materialized ({links}),
runs as (select weights_sha256 as weights from run where run_id in (select id from linked where kind = 'run_id')),
related as (
    from linked
    union select 'evaluation_id', evaluation_id from evaluation where policy in (from runs)
    union select 'decision_id', decision_id from decision where candidate in (from runs))
select kind, count(*) as n, list(id order by id)[:{shown}] as ids, (select count(*) from found) as lineage_rows
from related where id is not null and id <> $1 group by kind
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult:
    """`facts`: the id's own row, without empty columns. `related`: ids that belong to it, by kind, a few of each."""

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
    table, facts = _home(lake, wanted, id_)
    links = [f"select '{kind}' as kind, id from ({sql}) as t(id)" for kind, sql in LINKS[table]]
    links += [f"select '{column}', {column} from found" for column in LINEAGE]
    sql = RELATED.format(
        stands_for=STANDS_FOR.get(table, "select $1"),
        on_lineage=" or ".join(f"{column} in (from start)" for column in LINEAGE),
        links=" union ".join(links),
        shown=SHOWN,
    )
    with_macro = f"{REPAIRS};\n{sql}" if "repairs(" in sql else sql
    rows = {row["kind"]: row for row in lake.query(with_macro, [wanted])}
    kinds = [kind for kind in ORDER if kind in rows]
    return ShowResult(
        id=wanted,
        kind="rollout" if facts.get("format") == "rollout" else table,
        facts=facts,
        lineage_rows=max((row["lineage_rows"] for row in rows.values()), default=0),
        related={kind: rows[kind]["ids"] for kind in kinds},
        counts={kind: rows[kind]["n"] for kind in kinds},
    )


def _home(lake: Lake, wanted: str, said: str) -> tuple[str, dict[str, Any]]:
    """The first table that has the id, and its row there without empty columns."""
    places = " union all ".join(f"select {place} as place where exists ({sql})" for place, (_, sql) in enumerate(HOMES))
    found = lake.query(f"{places} order by place limit 1", [wanted])
    if not found:
        raise LakeError(f"nothing in the lake is called {said!r}; `flywheel sql` shows what is there")
    table, sql = HOMES[found[0]["place"]]
    row = lake.query(f"{sql} limit 1", [wanted])[0]
    return table, {name: value for name, value in row.items() if value is not None}
