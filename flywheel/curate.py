"""Curate: verified evidence of one lake snapshot becomes a curriculum; what is left out is kept with its reason.

    flywheel curate

Writes data/curricula/<id>/{sft.parquet, dropped.parquet, datasheet.md, manifest.json}. The id is of the rows (kept and
left out, with their tokens) and of `[curate]`: the same evidence gives the same id and bytes, whatever the snapshot is
called that held it. The snapshot it was first built from is pinned in the manifest, and a curriculum that exists is
never written again, so later snapshots with the same evidence change nothing. No rows is an honest result.

Not covered: what may become a row (`curriculum/sft.py`), running or judging anything (`repair`).
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flywheel.config import Config, Curate
from flywheel.curriculum.blend import lot
from flywheel.curriculum.datasheet import datasheet
from flywheel.curriculum.sft import Candidate, Dropped, HeldOut, SftRow, choose, refusal
from flywheel.environment.domain import open_domain
from flywheel.errors import ArtifactError, LakeError
from flywheel.ledger import ClusterEvent, CurriculumRow
from flywheel.progress import Progress, silent
from flywheel.records import Task, content_id
from flywheel.store import artifacts
from flywheel.store.curricula import write_rows
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks
from flywheel.trainers import open_tokenizer
from flywheel.workspace import Workspace

RUNS = """
select t.trajectory_id, t.task_id, t.format = 'rollout' as rollout, t.success, t.content_complete as complete,
       json_extract_string(t.metadata, '$.repairs') as repairs,
       json_extract_string(t.metadata, '$.policy') || ' ' || json_extract_string(t.metadata, '$.variant') as attempt,
       (select min(o.source_id) from outcome o
        where o.trajectory_id = t.trajectory_id and o.source_kind = 'verifier') as selecting,
       (select arg_min(f.cluster_id, (f.is_root is not true, coalesce(f.step_ix, -1), f.failure_id)) from failure f
        where f.trajectory_id = t.trajectory_id and f.cluster_id is not null) as cluster_id
from trajectory t where t.success or t.task_id is not null order by t.trajectory_id
"""

STEPS = """
select s.trajectory_id, s.role, s.content, s.content_state, s.n_tool_calls
from step s join trajectory t using (trajectory_id) where t.success or t.task_id is not null
order by s.trajectory_id, s.step_ix
"""

VERDICTS = "select trajectory_id, verifier_id, score from verdict order by trajectory_id, verifier_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurateResult:
    """The curriculum, and how many rows of which source it has and for which reasons others were left out."""

    curriculum_id: str
    rows: int
    by_source: dict[str, int]
    dropped: int
    by_reason: dict[str, int]
    folder: str
    snapshot: str  # the one pinned in the manifest


def curate(
    workspace: Workspace,
    config: Config,
    *,
    snapshot: str | None = None,
    out: Path | None = None,
    progress: Progress = silent,
) -> CurateResult:
    """Build the curriculum of a snapshot (default: the newest) in data/curricula/<id>, or rebuild it in `out`.

    Errors: LakeError if nothing is published or there is no such snapshot, ValidationError if the tokenizer's masks
    are wrong on every row, ArtifactError if `out` holds another finished curriculum.
    """
    lake = Lake(workspace)
    head = lake.head()
    pinned = snapshot or (head.snapshot_id if head else None)
    if pinned is None:
        sentence = f"nothing is published in {workspace.lake}: run `flywheel ingest` first"
        raise LakeError(sentence)
    progress(0, 3, "reading the snapshot")
    tasks = load_all_tasks(workspace)
    candidates = gather(lake, pinned, tasks, config.curate)
    progress(1, 3, f"choosing among {len(candidates)} candidates")
    tokenizer = open_tokenizer(workspace.base)
    held_out = HeldOut.of(tasks.values())
    rows, dropped = choose(candidates, held_out, config.curate, tokenizer.encode_chat, tokenizer.decode)
    curriculum_id = identity(rows, dropped, config.curate)
    folder = out or workspace.curricula / curriculum_id
    if not artifacts.is_finished(folder):
        _write(folder, curriculum_id, rows, dropped, tasks, config.curate, pinned)
    manifest = artifacts.load(folder)
    if manifest.id != curriculum_id:
        sentence = f"{folder} holds {manifest.id}, not {curriculum_id}: delete it to rebuild it"
        raise ArtifactError(sentence)
    progress(2, 3, "publishing")
    lake.publish(curriculum_id, _ledger(curriculum_id, rows, dropped))
    progress(3, 3, f"{len(rows)} rows")
    return CurateResult(
        curriculum_id=curriculum_id, folder=str(folder), snapshot=manifest.inputs["snapshot"], **manifest.summary
    )


def identity(rows: Sequence[SftRow], dropped: Sequence[Dropped], config: Curate) -> str:
    """The curriculum's id: of every row with its tokens and labels, of what was left out and why, of the settings."""
    return content_id(
        "curriculum",
        [[row.row_id, row.weight, row.cluster_id, row.stage, row.input_ids, row.labels] for row in rows],
        [[item.row_id, item.reason] for item in dropped],
        config.model_dump(),
    )


def gather(lake: Lake, snapshot: str, tasks: Mapping[str, Task], config: Curate) -> list[Candidate]:
    """Everything in the snapshot that might be trained on, with the evidence for and against it."""
    runs = {row["trajectory_id"]: row for row in lake.query(RUNS, snapshot=snapshot)}
    steps: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for step in lake.query(STEPS, snapshot=snapshot):
        steps[step["trajectory_id"]].append(step)
    verdicts: dict[str, dict[str, float | None]] = defaultdict(dict)
    for verdict in lake.query(VERDICTS, snapshot=snapshot):
        verdicts[verdict["trajectory_id"]][verdict["verifier_id"]] = verdict["score"]
    real = [
        _candidate("real", run, run, steps, tasks) for run in runs.values() if run["success"] and not run["rollout"]
    ]
    repaired = _repairs(runs, steps, verdicts, tasks)
    return real + repaired + _experts(repaired, tasks, config)


def _repairs(
    runs: Mapping[str, Mapping[str, Any]],
    steps: Mapping[str, Sequence[Mapping[str, Any]]],
    verdicts: Mapping[str, Mapping[str, float | None]],
    tasks: Mapping[str, Task],
) -> list[Candidate]:
    """A candidate for each rollout that repairs a known trace, with how often its task's re-runs passed."""
    rollouts = [run for run in runs.values() if run["rollout"] and run["repairs"] in runs]
    judged: Counter[tuple[str, str]] = Counter()
    passed: Counter[tuple[str, str]] = Counter()
    for run in rollouts:
        key = (run["task_id"], run["attempt"])
        judged[key] += run["success"] is not None
        passed[key] += bool(run["success"])
    return [
        _candidate(
            "model",
            runs[run["repairs"]],
            run,
            steps,
            tasks,
            selecting=run["selecting"],
            verdicts=verdicts[run["trajectory_id"]],
            runs=judged[run["task_id"], run["attempt"]],
            passed=passed[run["task_id"], run["attempt"]],
        )
        for run in rollouts
    ]


def _candidate(
    source: str,
    asked: Mapping[str, Any],
    answered: Mapping[str, Any],
    steps: Mapping[str, Sequence[Mapping[str, Any]]],
    tasks: Mapping[str, Task],
    **evidence: Any,
) -> Candidate:
    """A repair joins the failing trace's own prompt to the rollout's answer; a real run is taken as it was."""
    own = steps.get(answered["trajectory_id"], [])
    taken = own if asked is answered else [*_prompt(steps.get(asked["trajectory_id"], [])), *own[-1:]]
    ids = (asked["trajectory_id"], answered["trajectory_id"])
    return Candidate(
        source=source,
        task=tasks.get(answered["task_id"] or ""),
        task_id=answered["task_id"],
        parents=ids[:1] if asked is answered else ids,
        messages=tuple(_message(step) for step in taken),
        complete=asked["complete"] and answered["complete"] and all(s["content_state"] == "present" for s in taken),
        cluster_id=asked["cluster_id"],
        **evidence,
    )


def _prompt(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What the agent was asked: everything before its first own message."""
    first = next((ix for ix, step in enumerate(steps) if step["role"] == "assistant"), len(steps))
    return list(steps[:first])


def _message(step: Mapping[str, Any]) -> dict[str, Any]:
    message = {"role": step["role"], "content": step["content"]}
    return {**message, "tool_calls": step["n_tool_calls"]} if step["n_tool_calls"] else message


def _experts(repaired: Sequence[Candidate], tasks: Mapping[str, Task], config: Curate) -> list[Candidate]:
    """The oracle's answer to tasks that repair tried and no verified answer came of: `[curate] expert`, by lot."""
    nothing_held = HeldOut(frozenset(), frozenset())
    solved = {c.task_id for c in repaired if refusal(c, nothing_held, config.min_posterior) is None}
    unsolved = {c.task_id: c for c in repaired if c.task and c.complete and c.task_id not in solved}
    chosen = sorted(unsolved.items(), key=lambda item: lot(config.seed, "expert", item[0]))[: config.expert]
    return [
        Candidate(
            source="expert",
            task=candidate.task,
            task_id=task_id,
            parents=candidate.parents[:1],
            messages=(*candidate.messages[:-1], open_domain(tasks[str(task_id)].domain).oracle(tasks[str(task_id)])),
            cluster_id=candidate.cluster_id,
        )
        for task_id, candidate in chosen
    ]


def _write(
    folder: Path,
    curriculum_id: str,
    rows: Sequence[SftRow],
    dropped: Sequence[Dropped],
    tasks: Mapping[str, Task],
    config: Curate,
    snapshot: str,
) -> None:
    if folder.exists():  # unfinished work of a killed attempt
        shutil.rmtree(folder)
    write_rows(folder, rows, dropped)
    text = datasheet(curriculum_id, rows, dropped, tasks, config)
    artifacts.write_atomic(folder / "datasheet.md", text.encode())
    summary = {
        "rows": len(rows),
        "by_source": dict(sorted(Counter(row.source for row in rows).items())),
        "dropped": len(dropped),
        "by_reason": dict(sorted(Counter(item.reason for item in dropped).items())),
    }
    inputs = {"snapshot": snapshot, "curate": config.model_dump()}
    artifacts.finish(folder, "curriculum", curriculum_id, inputs, summary)


def _ledger(curriculum_id: str, rows: Sequence[SftRow], dropped: Sequence[Dropped]) -> dict[str, list[Any]]:
    """A ledger row for every candidate, and an event for every cluster that is trained on."""
    clusters = Counter(row.cluster_id for row in rows if row.cluster_id)
    items: list[SftRow | Dropped] = [*rows, *dropped]
    now = datetime.now(UTC)
    return {
        "curriculum_row": [_ledger_row(curriculum_id, item) for item in items],
        "cluster_event": [
            ClusterEvent(cluster_id=cluster_id, event="in_curriculum", happened_at=now, ref=curriculum_id, n=n)
            for cluster_id, n in sorted(clusters.items())
        ],
    }


def _ledger_row(curriculum_id: str, item: SftRow | Dropped) -> CurriculumRow:
    return CurriculumRow(
        curriculum_id=curriculum_id,
        row_id=item.row_id,
        kind="sft",
        source=item.source,
        parents=item.parents,
        task_id=item.task_id,
        cluster_id=item.cluster_id,
        verifier_ids=item.verifier_ids or None,
        posterior=item.posterior,
        kept=isinstance(item, SftRow),
        reason=item.reason if isinstance(item, Dropped) else None,
    )
