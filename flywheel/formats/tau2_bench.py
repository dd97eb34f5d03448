"""tau2-bench results: simulations of an agent, a user who may act too, and their environment.

    {timestamp, info, tasks, simulations: [...]}             results.json; simulations may be in files of their own
    {id, task_id, termination_reason, reward_info, messages} one simulation (simulations/<id>.json, or a line)
    {..., mode: "full_duplex", ticks: [{agent_chunk, user_chunk, ...}]}    a spoken one, in ticks
    {benchmark_name: "tau2-...", messages, eval_result, meta}              rows of judged runs (`tau_samples.py`)
    {model_name, submission_date, results, ...}              submission.json: numbers of a leaderboard, no runs

The reward is the product of the checks: at 1 the run succeeded. What results.json says of the whole (and the tasks that
have no simulation) is yielded as a loose outcome. Of a spoken simulation, ticks in a row in which the same party speaks
are one step; the ticks themselves stay in `extra`.

Not covered: audio files, the reviews beside the simulations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats import tau2_ticks, tau_samples
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Item,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import scored, share_polarity
from flywheel.formats.times import read_time
from flywheel.formats.usage import money
from flywheel.records import Attachment, Fragment, Outcome, Trajectory

_RESULTS = {"info", "tasks", "simulations"}
_RUN = {"id", "task_id", "termination_reason"}
_SUBMISSION = {"model_name", "submission_date", "results"}
_READ = {
    "id", "task_id", "trial", "start_time", "end_time", "termination_reason", "agent_cost", "messages",
    "reward_info",
}  # fmt: skip


class Tau2Bench:
    """The reader."""

    name = "tau2_bench"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        known = sum(map(_is_known, head.values))
        return Match(confidence=round(0.95 * known / len(head.values), 3)) if known else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: str | None = None
        seen: dict[str, int] = {}
        for record in records:
            first = first or fingerprint(record.value)
            value = as_dict(record.value)
            if value.keys() >= _RESULTS:
                yield from _results(value, record, source, first)
            elif value.keys() >= _RUN:
                yield _fragment(value, {}, None, record, source, first)
            elif tau_samples.is_row(value):
                yield tau_samples.fragment(value, seen, record, source, first, self.name)
            elif value.keys() >= _SUBMISSION:
                yield Attachment(record_ix=record.ix, outcomes=tuple(_submission(value)))
            else:
                yield record.reject("not_tau2_bench", "the record is no simulation and holds none")


def _is_known(value: Any) -> bool:
    held = as_dict(value)
    run = held.keys() >= _RUN and bool({"messages", "ticks", "reward_info"} & held.keys())
    submission = held.keys() >= _SUBMISSION and bool({"methodology", "trajectories_available"} & held.keys())
    results = held.keys() >= _RESULTS and isinstance(held["simulations"], list)
    return run or results or submission or (tau_samples.is_row(held) and tau_samples.is_tau2(held))


def _results(value: Mapping[str, Any], record: Record, source: Source, first: str) -> Iterator[Item]:
    """Every simulation with what the whole says of it; then what is left of the whole."""
    tasks = {as_text(as_dict(task).get("id")): task for task in as_list(value.get("tasks"))}
    session, done = fingerprint(value.get("info")), set()
    for simulation in as_list(value["simulations"]):
        run = as_dict(simulation)
        if run.keys() >= {"id", "task_id"}:
            done.add(as_text(run["task_id"]))
            task = tasks.get(as_text(run["task_id"]))
            made = _fragment(run, as_dict(value.get("info")), task, record, source, first)
            yield replace(made, trajectory=replace(made.trajectory, session_id=session))
    rest = {key: item for key, item in value.items() if key not in ("tasks", "simulations")}
    rest |= {"tasks": [task for key, task in tasks.items() if key not in done]}
    odd = [run for run in as_list(value["simulations"]) if not as_dict(run).keys() >= {"id", "task_id"}]
    rest |= {"simulations": odd} if odd else {}
    summary = scored(
        None, "results", None, polarity=None, target_kind="session", session_id=session, source_kind="system",
        source_id="tau2_bench", metadata=rest,
    )  # fmt: skip
    yield Attachment(record_ix=record.ix, outcomes=(summary,))


def _fragment(
    run: Mapping[str, Any], info: Mapping[str, Any], task: Any, record: Record, source: Source, first: str
) -> Fragment:
    native_id = as_text(run["id"]) or fingerprint(run)
    this = trajectory_id("tau2_bench", native_id, first)
    conversation = Conversation(this)
    for message in as_list(run.get("messages")) or tau2_ticks.messages(as_list(run.get("ticks"))):
        tau_samples.add(conversation, message)
    steps, tool_calls = conversation.finish()
    agent, environment = as_dict(info.get("agent_info")), as_dict(info.get("environment_info"))
    end, tools, settings = as_text(run.get("termination_reason")), environment.get("tool_defs"), agent.get("llm_args")
    outcomes = tuple(_outcomes(as_dict(run.get("reward_info")), this))
    reward = as_float(as_dict(run.get("reward_info")).get("reward"))
    success = None if reward is None else share_polarity(reward) == 1
    started, ended, seconds = read_time(run.get("start_time")), read_time(run.get("end_time")), run.get("duration")
    cost, lasted = money(run.get("agent_cost")), as_float(seconds)
    domain = first_text(environment, "domain_name")
    own = as_text(run["task_id"])
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        attempt=as_int32(run.get("trial")),
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="tau2_bench",
        agent_name=first_text(agent, "implementation"),
        model=first_text(agent, "llm"),
        sampling=dumps(settings) if settings else None,
        tools=dumps(tools) if tools else None,
        task_id=f"{domain}/{own}" if domain and own else own,
        task=None if task is None else dumps(task),
        started_at=started.at,
        ended_at=ended.at,
        duration_ms=None if lasted is None else lasted * 1000,
        time_quality=started.quality,
        n_steps=len(steps),
        cost_usd=cost,
        cost_source=None if cost is None else "recorded",
        end_reason=tau_samples.ENDS.get(end or "", "unknown" if end else None),
        end_reason_raw=end,
        success=success,
        reward=reward,
        success_source=None if success is None else "environment:reward",
        content_complete=bool(run.get("messages")) or not run.get("ticks"),
        quality_flags=_flags(run, record, bool(steps)) or None,
        extra=_extra(run),
    )
    return Fragment(
        key=this,
        record_ix=record.ix,
        trajectory=trajectory,
        partial="messages" not in run and "ticks" not in run,
        steps=steps,
        tool_calls=tool_calls,
        outcomes=outcomes,
    )


def _flags(run: Mapping[str, Any], record: Record, has_steps: bool) -> tuple[str, ...]:
    flags = {"no_steps": not has_steps, "spoken": bool(run.get("ticks")) and not run.get("messages")}
    return (*record.repairs, *(name for name, raised in flags.items() if raised))


def _outcomes(info: Mapping[str, Any], this: str) -> Iterator[Outcome]:
    """The reward with all its checks, and each part that went into it."""
    if not info:
        return
    rest = {key: item for key, item in info.items() if key not in ("reward", "reward_breakdown") and item is not None}
    reward = info.get("reward")
    yield scored(
        this, "reward", reward, polarity=share_polarity(reward), source_kind="environment", source_id="tau2_bench",
        metadata=rest,
    )  # fmt: skip
    for part, value in as_dict(info.get("reward_breakdown")).items():
        polarity = share_polarity(value)
        yield scored(this, f"reward/{part}", value, polarity=polarity, source_kind="environment", source_id=part)


def _extra(run: Mapping[str, Any]) -> str | None:
    rest = {key: item for key, item in run.items() if key not in _READ and item is not None}
    rest |= {key: run[key] for key in ("messages",) if run.get(key) and not isinstance(run[key], list)}
    reward = run.get("reward_info")
    rest |= {"reward_info": reward} if reward and not isinstance(reward, dict) else {}
    return dumps(rest) if rest else None


def _submission(value: Mapping[str, Any]) -> Iterator[Outcome]:
    session = f"{as_text(value['model_name'])}/{as_text(value['submission_date'])}"
    about: dict[str, Any] = {"target_kind": "session", "session_id": session, "source_kind": "system"}
    rest = {key: item for key, item in value.items() if key != "results"}
    yield scored(None, "submission", None, polarity=None, metadata=rest, **about)
    for domain, numbers in as_dict(value["results"]).items():
        for name, number in as_dict(numbers).items():
            yield scored(None, f"{domain}/{name}", number, polarity=None, **about)
