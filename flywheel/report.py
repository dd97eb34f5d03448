"""Report: what the last turn did, on one self-contained page.

    flywheel report

Reads the turn in progress (or the last finished one), its artefacts and the lake, and writes
data/reports/<turn>.html: funnel, pass rates with intervals, what was fixed and what still fails, rows per source, the
decision with its reasons, and wall times. Everything that came from a trace is escaped.

Not covered: trends over many turns, rotation speed (issue F).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.errors import ArtifactError
from flywheel.progress import Progress, silent
from flywheel.records import Report, TaskResult
from flywheel.statistics.intervals import Interval, rate_interval
from flywheel.statistics.reports import report_from_json
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.workspace import Workspace

FUNNEL = """
with online as (select * from trajectory where format <> 'rollout'),
     failed as (select * from online where success = false),
     tried as (select distinct json_extract_string(metadata, '$.repairs') as trajectory_id, task_id
               from trajectory where format = 'rollout'),
     verified as (select t.task_id from trajectory t join verdict v using (trajectory_id)
                  where t.format = 'rollout' group by t.trajectory_id, t.task_id having min(coalesce(v.score, 0)) = 1)
select (select count(*) from online) as online,
       (select count(*) from failed) as failed,
       (select count(distinct f.trajectory_id) from failure f join failed using (trajectory_id)) as labelled,
       (select count(*) from failed where task_id is not null) as with_task,
       (select count(distinct task_id) from tried) as tried,
       (select count(distinct task_id) from verified) as repaired
"""

SOURCES = """
select source, count(*) filter (where kept) as kept, count(*) filter (where not kept) as dropped
from curriculum_row where curriculum_id = ? group by source order by source
"""

DROPPED = """
select coalesce(reason, '?') as reason, count(*) as rows from curriculum_row
where curriculum_id = ? and not kept group by 1 order by 2 desc, 1
"""

# A cluster is one failure of one task family; the page adds up the families that fail in the same way.
CLUSTERS = """
select any_value(regexp_replace(c.title, ' \\[[^\\]]*\\]$', '')) as title, count(distinct c.cluster_id) as clusters,
       count(distinct f.trajectory_id) as failures,
       count(distinct r.task_id) filter (where r.kept) as taught
from failure f join cluster c using (cluster_id)
join trajectory t on t.trajectory_id = f.trajectory_id
left join curriculum_row r on r.curriculum_id = ? and r.task_id = t.task_id and r.source <> 'real'
where f.is_root group by c.code, c.tool, c.signature order by failures desc, title limit 12
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """Where the page lies."""

    page: str
    turn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Pass rates of incumbent and candidate over the same tasks (all of them, or one level or phrasing)."""

    name: str
    tasks: int
    before: Interval
    after: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything the page and the terminal's last table say about one turn."""

    turn: str
    funnel: dict[str, int]
    overall: Compared
    levels: tuple[Compared, ...]
    fixed: int  # held-out tasks the incumbent never passed and the candidate always does
    failing: int  # held-out tasks the candidate never passes
    broken: int  # held-out tasks the incumbent always passed and the candidate never does
    sources: list[dict[str, Any]]
    dropped: list[dict[str, Any]]
    clusters: list[dict[str, Any]]
    verdict: str
    checks: list[dict[str, Any]]
    version: str | None
    promoted: bool
    sentence: str
    losses: tuple[tuple[int, float], ...]
    seconds: dict[str, float]


def report(workspace: Workspace, config: Config, *, progress: Progress = silent) -> ReportResult:
    """Write the page of the turn in progress or of the last one. Errors: ArtifactError if there was no turn."""
    from flywheel.page import render

    facts = collect(workspace)
    path = workspace.reports / f"{facts.turn}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    artifacts.write_atomic(path, render(facts).encode())
    progress(1, 1, "page written")
    return ReportResult(page=str(path), turn=facts.turn)


def collect(workspace: Workspace) -> Facts:
    """The facts of the turn in progress, else of the turn that finished last."""
    state = _state(workspace)
    results = state["results"]
    before = _report(workspace, results["evaluate"]["incumbent"]["evaluation_id"])
    after = _report(workspace, results["evaluate"]["candidate"]["evaluation_id"])
    curriculum = results["curate"]["curriculum_id"]
    promoted = results["promote"]
    lake = Lake(workspace)
    pairs = list(zip(before.results, after.results, strict=True))
    return Facts(
        turn=state["turn_id"],
        funnel={k: int(v) for k, v in lake.query(FUNNEL)[0].items()} | {"learnt_from": results["curate"]["rows"]},
        overall=compare("all held-out tasks", before.results, after.results),
        levels=by_level(before, after),
        fixed=sum(b.passed == 0 and a.runs > 0 and a.passed == a.runs for b, a in pairs),
        failing=sum(a.passed == 0 for _, a in pairs),
        broken=sum(b.runs > 0 and b.passed == b.runs and a.passed == 0 for b, a in pairs),
        sources=lake.query(SOURCES, [curriculum]),
        dropped=lake.query(DROPPED, [curriculum]),
        clusters=lake.query(CLUSTERS, [curriculum]),
        verdict=promoted["gate"]["verdict"],
        checks=list(promoted["gate"]["checks"]),
        version=promoted["version"],
        promoted=bool(promoted["promoted"]),
        sentence=promoted["sentence"],
        losses=_losses(workspace.runs / results["train"]["run_id"] / "metrics.jsonl"),
        seconds=dict(state["seconds"]),
    )


def compare(name: str, before: tuple[TaskResult, ...], after: tuple[TaskResult, ...]) -> Compared:
    """Both pass rates over the same tasks; the interval's unit is the group."""
    return Compared(name=name, tasks=len(after), before=_rate(before), after=_rate(after))


def by_level(before: Report, after: Report) -> tuple[Compared, ...]:
    """`compare` for each level, in the order of its name."""
    names = sorted({r.level for r in after.results})
    return tuple(
        compare(
            level,
            tuple(r for r in before.results if r.level == level),
            tuple(r for r in after.results if r.level == level),
        )
        for level in names
    )


def _rate(results: tuple[TaskResult, ...]) -> Interval:
    judged = [r for r in results if r.runs]
    return rate_interval([r.passed for r in judged], [r.runs for r in judged], [r.group_id for r in judged])


def _state(workspace: Workspace) -> dict[str, Any]:
    if workspace.current_turn.is_file():
        state: dict[str, Any] = json.loads(workspace.current_turn.read_text(encoding="utf-8"))
        return state
    finished = sorted(workspace.turns.glob("turn-*/timings.json"), key=lambda p: p.stat().st_mtime)
    if not finished:
        raise ArtifactError("no turn has finished in this workspace: run `flywheel turn` first")
    last: dict[str, Any] = json.loads(finished[-1].read_text(encoding="utf-8"))
    return last


def _report(workspace: Workspace, evaluation_id: str) -> Report:
    artifacts.load(workspace.evals / evaluation_id)
    return report_from_json((workspace.evals / evaluation_id / "report.json").read_text(encoding="utf-8"))


def _losses(path: Path) -> tuple[tuple[int, float], ...]:
    if not path.is_file():
        return ()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple((int(m["step"]), float(m["loss"])) for m in lines if m.get("loss") is not None)
