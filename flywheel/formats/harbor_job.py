"""Harbor (terminal-bench 2) job folders: `<job>/result.json` and, a trial, `<job>/<trial>/result.json`.

    {trial_name, task_name, agent_info, agent_result, verifier_result: {rewards}, exception_info, ...}    a trial
    {id, n_total_trials, stats, trial_results?}                                                           the job

The messages of a trial are in `<trial>/agent/trajectory.json` (ATIF), which names the trial nowhere: the two are joined
by the trial's name, which is the folder's (`trial_key`, used by `atif.py` too). The result gives the trajectory its
task, outcome, numbers and end; without its messages the trajectory says that they are missing (`whole`). A reward of 1
is success, one of 0 failure; a trial that broke off has neither.

Not covered: logs and artifacts of a trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.feedback import headline
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Item,
    Match,
    Record,
    Source,
    as_dict,
    as_list,
    as_text,
    fingerprint,
    first_text,
)
from flywheel.formats.scores import reward_polarity, scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import count, money
from flywheel.records import Attachment, Fragment, Outcome, Trajectory, content_id

_TRIAL = {"trial_name", "task_name"}
_TRIAL_BESIDE = {"agent_info", "verifier_result", "exception_info", "agent_result"}
_JOB = {"n_total_trials", "stats"}
_ENDS = {
    "AgentTimeoutError": "timeout", "AgentSetupTimeoutError": "env_error", "VerifierTimeoutError": "env_error",
    "EnvironmentStartTimeoutError": "env_error", "RewardFileNotFoundError": "env_error",
    "ContextLengthExceededError": "context_overflow", "OutputLengthExceededError": "max_tokens",
    "CancelledError": "cancelled", "KeyboardInterrupt": "user_abort", "NonZeroAgentExitCodeError": "agent_error",
}  # fmt: skip
_READ = {"trial_name", "task_name", "agent_info", "verifier_result", "exception_info", "started_at", "finished_at"}
_RESULT = {"n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd"}
_ERROR = ("exception_type", "exception_message")
_STEPS_FILE = ("agent", "trajectory.json")


class HarborJob:
    """The reader."""

    name = "harbor_job"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        known = sum(_is_trial(value) or _is_job(value) for value in head.values)
        return Match(confidence=round(0.95 * known / len(head.values), 3)) if known else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        for record in records:
            value = as_dict(record.value)
            if _is_trial(value):
                yield _fragment(value, None, record, source)
            elif _is_job(value):
                session = first_text(value, "id") or fingerprint(value)
                for trial in as_list(value.get("trial_results")):
                    if _is_trial(trial):
                        yield _fragment(trial, session, record, source)
                yield Attachment(record_ix=record.ix, outcomes=(_job(value, session),))
            else:
                yield record.reject("not_harbor_job", "the record is no result of a trial or a job")


def trial_key(trial_name: str) -> str:
    """The id of a trial's trajectory. Harbor ends the name in random letters, so it's unique anywhere."""
    return content_id("trajectory", "harbor_job", trial_name)


def trial_of(path: str) -> str | None:
    """The trial that a trajectory belongs to, by the folder it lies in; None for a file that lies elsewhere."""
    parts = path.split("/")
    return parts[-3] if len(parts) >= 3 and tuple(parts[-2:]) == _STEPS_FILE and "__" in parts[-3] else None


def whole(fragment: Fragment) -> tuple[Fragment, ...]:
    """A trial of which nothing more will come: without messages it is marked (for `finish.py`)."""
    head = fragment.trajectory
    if fragment.steps:
        return (fragment,)
    marked = replace(head, content_complete=False, quality_flags=(*(head.quality_flags or ()), "no_messages"))
    return (replace(fragment, trajectory=marked),)


def _is_trial(value: Any) -> bool:
    held = as_dict(value)
    return held.keys() >= _TRIAL and bool(_TRIAL_BESIDE & held.keys()) and as_text(held["trial_name"]) is not None


def _is_job(value: Any) -> bool:
    return as_dict(value).keys() >= _JOB


def _job(value: Mapping[str, Any], session: str) -> Outcome:
    rest = {key: item for key, item in value.items() if key != "trial_results"}
    rest |= {"trial_results": [trial for trial in as_list(value.get("trial_results")) if not _is_trial(trial)]}
    return scored(
        None, "job", None, polarity=None, target_kind="session", session_id=session, source_kind="system",
        source_id="harbor", metadata=rest,
    )  # fmt: skip


def _fragment(trial: Mapping[str, Any], session: str | None, record: Record, source: Source) -> Fragment:
    name = str(as_text(trial["trial_name"]))
    this = trial_key(name)
    agent, used = as_dict(trial.get("agent_info")), as_dict(trial.get("agent_result"))
    model, config = as_dict(agent.get("model_info")), as_dict(trial.get("config"))
    error = as_dict(trial.get("exception_info"))
    outcomes = tuple(_outcomes(trial, this))
    summary = headline(outcomes)
    started, ended = read_time(trial.get("started_at")), read_time(trial.get("finished_at"))
    cost = money(used.get("cost_usd"))
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=name,
        trace_id=first_text(trial, "id"),
        session_id=session or first_text(config, "job_id"),
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="harbor_job",
        agent_name=first_text(agent, "name"),
        agent_version=first_text(agent, "version"),
        model=first_text(model, "name"),
        provider=first_text(model, "provider"),
        task_id=as_text(trial["task_name"]),
        task=dumps({key: trial[key] for key in ("task_id", "source", "task_checksum") if trial.get(key) is not None}),
        started_at=started.at,
        ended_at=ended.at,
        time_quality=started.quality,
        n_steps=0,
        input_tokens=count(used.get("n_input_tokens")),
        cache_read_tokens=count(used.get("n_cache_tokens")),
        output_tokens=count(used.get("n_output_tokens")),
        cost_usd=cost,
        cost_source=None if cost is None else "recorded",
        success=None if error else summary.success,
        reward=summary.reward,
        success_source=None if error else summary.source,
        content_complete=True,
        quality_flags=record.repairs or None,
        metadata=_metadata(trial, used),
        **_ending(error),
    )
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, partial=True, outcomes=outcomes)


def _outcomes(trial: Mapping[str, Any], this: str) -> Iterator[Outcome]:
    result = as_dict(trial.get("verifier_result"))
    rewards = as_dict(result.get("rewards")) or {key: result[key] for key in ("reward",) if key in result}
    known = not trial.get("exception_info")
    for name, value in rewards.items():
        yield scored(this, name, value, polarity=reward_polarity(value) if known else None, source_id="harbor")


def _ending(error: Mapping[str, Any]) -> dict[str, Any]:
    kind = first_text(error, "exception_type")
    if not error:
        return {"end_reason": "completed"}
    return {
        "end_reason": _ENDS.get(kind or "", "env_error"),
        "end_reason_raw": kind,
        "error_type": kind,
        "error_message": first_text(error, "exception_message"),
    }


def _metadata(trial: Mapping[str, Any], used: Mapping[str, Any]) -> str | None:
    rest = {key: item for key, item in trial.items() if key not in _READ and item not in (None, {}, [])}
    more = {key: item for key, item in used.items() if key not in _RESULT and item is not None}
    rest.pop("agent_result", None)
    rest |= {"agent_result": more} if more else {}
    error, result = as_dict(trial.get("exception_info")), as_dict(trial.get("verifier_result"))
    left = {
        "exception_info": {
            key: item for key, item in error.items() if key not in ("exception_type", "exception_message")
        },
        "verifier_result": {key: item for key, item in result.items() if key not in ("rewards", "reward")},
        "agent_info": {k: v for k, v in as_dict(trial.get("agent_info")).items() if k not in ("name", "version")},
    }
    rest |= {key: item for key, item in left.items() if item}
    odd = ("agent_info", "agent_result", "exception_info", "verifier_result")
    rest |= {key: trial[key] for key in odd if trial.get(key) and not isinstance(trial[key], dict)}
    return dumps(rest) if rest else None
