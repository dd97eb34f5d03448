"""Triage: failed online trajectories get labels (code, step, evidence, owner) and clusters.

    flywheel triage

Reads the newest snapshot: trajectories that are no rollouts and failed, or whose outcome is unknown but which show a
decisive sign (severity 3: infrastructure, a loop, an exhausted budget). Publishes `failure`, `cluster` and
`cluster_event` rows. An unknown outcome stays unknown: such labels name no root cause. Rows already published are never
published again, so a second run does nothing; a trajectory whose outcome arrives later is looked at again then.

Memory holds one chunk of trajectories (at most 500, or 10,000 messages, each message cut at 100,000 characters).
Not covered: judgement by a model, replay attribution (issue C).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from flywheel.config import Config
from flywheel.ledger import Cluster, ClusterEvent, Failure
from flywheel.progress import Progress, silent
from flywheel.records import Outcome, Step, Task, ToolCall, Trajectory, content_id
from flywheel.store.lake import Lake
from flywheel.store.tasks import load_all_tasks
from flywheel.trajectory.clusters import cluster_of
from flywheel.trajectory.detectors import detect, root_cause
from flywheel.trajectory.trace import Label, Trace, parse, view
from flywheel.workspace import Workspace

CHUNK_TRAJECTORIES = 500
CHUNK_STEPS = 10_000
DECISIVE = 3  # severity
TOP = 10

# Every failed trajectory ends with one of these two codes, so whoever has one has been seen with its outcome known.
# Labels of the turn in progress ($1) do not count: killed after publishing them, it finds and says the same again.
CANDIDATES = """
select t.trajectory_id, t.n_steps, t.success,
       t.success is not null and exists (select 1 from failure f where f.trajectory_id = t.trajectory_id
                                         and f.code in ('answer.wrong', 'infra')
                                         and not coalesce(f.turn_id = $1, false)) as already
from trajectory t
where t.format <> 'rollout' and t.success is distinct from true
order by t.trajectory_id
"""
KNOWN = """
select failure_id from failure where trajectory_id in (select unnest($1)) and not coalesce(turn_id = $2, false)
"""
HEADS = """
select trajectory_id, content_sha256, source_id, source_record_ix, format, n_steps, content_complete, success, task_id,
       task, metadata, tools, sampling, agent_name, end_reason, end_reason_raw, error_type, error_message, started_at
from trajectory where trajectory_id in (select unnest($1)) order by trajectory_id
"""
STEPS = """
select trajectory_id, step_ix, role, left(content, 100000) as content, content_state, left(parts, 1) as parts, refusal,
       n_tool_calls, is_copied_context, finish_reason, error_type, error_message
from step where trajectory_id in (select unnest($1))
"""
CALLS = """
select trajectory_id, step_ix, call_ix, name, kind, args_raw, args, args_state, result_step_ix,
       left(result_text, 100000) as result_text, result_state, is_error, error_type
from tool_call where trajectory_id in (select unnest($1))
"""
OUTCOMES = """
select outcome_id, trajectory_id, step_ix, name, value_num, value_bool, value_type, value_raw, polarity, explanation,
       correction, source_kind
from outcome where trajectory_id in (select unnest($1)) and target_kind in ('trajectory', 'step')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageResult:
    """What was labelled now. `failures` counts labels, `trajectories` whose they are; `already` had theirs before."""

    batch: str | None  # None: nothing new
    snapshot: str | None
    trajectories: int
    failures: int
    clusters: int
    by_code: dict[str, int]
    by_owner: dict[str, int]  # of root causes
    unknown: int  # trajectories without an outcome
    already: int
    top: tuple[dict[str, Any], ...]  # the largest clusters of this batch: cluster_id, title, n


@dataclass(slots=True)
class _Found:
    """What the chunks add up to."""

    failures: list[Failure] = field(default_factory=list)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    members: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    last_seen: dict[str, datetime] = field(default_factory=dict)


def triage(workspace: Workspace, config: Config, *, progress: Progress = silent) -> TriageResult:
    """Label what failed and is not labelled yet. Nothing new publishes nothing."""
    lake = Lake(workspace)
    head = lake.head()
    if head is None:
        return _result(None, None, _Found(), [])
    candidates = lake.query(CANDIDATES, [lake.turn_id], head.snapshot_id)
    todo = [row for row in candidates if not row["already"]]
    tasks = load_all_tasks(workspace)
    found = _Found()
    now = datetime.now(UTC)
    done = 0
    for chunk in _chunks(todo):
        known = {row["failure_id"] for row in lake.query(KNOWN, [chunk, lake.turn_id], head.snapshot_id)}
        for trace in _traces(lake, chunk, head.snapshot_id):
            _label(trace, tasks, known, found, now)
        done += len(chunk)
        progress(done, len(todo), "trajectories triaged")
    if not found.failures:
        return _result(None, head.snapshot_id, found, candidates)
    batch = content_id("triage", sorted(f.failure_id for f in found.failures))
    published = lake.publish(batch, _rows(lake, batch, found, now, head.snapshot_id))
    return _result(batch, published.snapshot_id, found, candidates)


def _chunks(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Trajectory ids in chunks that bound both their number and the number of their messages."""
    chunk: list[str] = []
    steps = 0
    for row in rows:
        if chunk and (len(chunk) >= CHUNK_TRAJECTORIES or steps + row["n_steps"] > CHUNK_STEPS):
            yield chunk
            chunk, steps = [], 0
        chunk.append(row["trajectory_id"])
        steps += row["n_steps"]
    if chunk:
        yield chunk


def _traces(lake: Lake, ids: list[str], snapshot: str) -> Iterator[Trace]:
    def by_trajectory(sql: str) -> defaultdict[str, list[dict[str, Any]]]:
        grouped: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in lake.query(sql, [ids], snapshot):
            grouped[row["trajectory_id"]].append(row)
        return grouped

    steps, calls, outcomes = by_trajectory(STEPS), by_trajectory(CALLS), by_trajectory(OUTCOMES)
    for row in lake.query(HEADS, [ids], snapshot):
        key = row["trajectory_id"]
        yield view(
            Trajectory(**row),
            [Step(**step) for step in steps[key]],
            [ToolCall(**call) for call in calls[key]],
            [Outcome(**outcome) for outcome in outcomes[key]],
        )


def _label(trace: Trace, tasks: Mapping[str, Task], known: set[str], found: _Found, now: datetime) -> None:
    """Add the labels of one trajectory that are not in the lake yet."""
    head = trace.trajectory
    labels = detect(trace)
    failed = head.success is False
    if not failed and not any(label.severity >= DECISIVE for label in labels):
        return
    root = root_cause(labels)
    domain, family = _whereabouts(head, tasks)
    for label in labels:
        failure_id = content_id("failure", head.trajectory_id, label.code, label.step_ix, label.detector)
        if failure_id in known:
            continue
        seen = head.started_at or now
        cluster = cluster_of(label, domain, family, seen)
        earlier = found.clusters.get(cluster.cluster_id)
        if earlier is None or (earlier.first_seen or now) > seen:
            found.clusters[cluster.cluster_id] = cluster
        found.members[cluster.cluster_id].add(head.trajectory_id)
        found.last_seen[cluster.cluster_id] = max(seen, found.last_seen.get(cluster.cluster_id, seen))
        is_root = label is root if failed else None
        found.failures.append(_failure(failure_id, head.trajectory_id, label, is_root, cluster.cluster_id))


def _failure(failure_id: str, trajectory_id: str, label: Label, is_root: bool | None, cluster_id: str) -> Failure:
    return Failure(
        failure_id=failure_id,
        trajectory_id=trajectory_id,
        step_ix=label.step_ix,
        code=label.code,
        evidence=label.evidence,
        owner=label.owner,
        severity=label.severity,
        confidence=label.confidence,
        is_root=is_root,
        detector=label.detector,
        detector_version=label.detector_version,
        cluster_id=cluster_id,
    )


def _whereabouts(head: Trajectory, tasks: Mapping[str, Task]) -> tuple[str, str]:
    """Domain and task family: of the task that the trace names, else as the application recorded them, else ''."""
    task = tasks.get(head.task_id or "")
    if task is not None:
        return task.domain, task.family
    said: dict[str, str] = {}
    for recorded in (parse(head.task), parse(head.metadata)):
        if isinstance(recorded, dict):
            said |= {k: v for k, v in recorded.items() if k in ("domain", "family") and isinstance(v, str)}
    return said.get("domain") or head.agent_name or "", said.get("family", "")


def _rows(lake: Lake, batch: str, found: _Found, now: datetime, snapshot: str) -> dict[str, list[Any]]:
    """The rows to publish: a cluster is `seen` at each triage that adds to it, and `triaged` when it is new."""
    known = {row["cluster_id"] for row in lake.query("select cluster_id from cluster", snapshot=snapshot)}
    events = []
    for cluster_id, members in sorted(found.members.items()):
        n = len(members)
        seen = found.last_seen[cluster_id]
        events.append(ClusterEvent(cluster_id=cluster_id, event="seen", happened_at=seen, ref=batch, n=n))
        if cluster_id not in known:
            events.append(ClusterEvent(cluster_id=cluster_id, event="triaged", happened_at=now, ref=batch, n=n))
    clusters = [found.clusters[key] for key in sorted(found.clusters)]
    failures = sorted(found.failures, key=lambda f: f.failure_id)
    return {"failure": failures, "cluster": clusters, "cluster_event": events}


def _result(
    batch: str | None, snapshot: str | None, found: _Found, candidates: Sequence[Mapping[str, Any]]
) -> TriageResult:
    largest = sorted(found.members.items(), key=lambda item: (-len(item[1]), item[0]))[:TOP]
    return TriageResult(
        batch=batch,
        snapshot=snapshot,
        trajectories=len({f.trajectory_id for f in found.failures}),
        failures=len(found.failures),
        clusters=len(found.clusters),
        by_code=dict(Counter(f.code for f in found.failures).most_common()),
        by_owner=dict(Counter(f.owner for f in found.failures if f.is_root).most_common()),
        unknown=sum(row["success"] is None for row in candidates),
        already=sum(bool(row["already"]) for row in candidates),
        top=tuple({"cluster_id": c, "title": found.clusters[c].title, "n": len(m)} for c, m in largest),
    )
