"""terminal-bench 1 results: a run's `results.json`, or the `results.json` of one trial.

    {results: [{task_id, trial_name, instruction, is_resolved, failure_mode, parser_results, ...}], accuracy, ...}

A trial's messages are not in it (the agent's own logs and the recording are), so a trajectory has the task, the outcome
and how it ended, and says that its content is missing. Every test of the trial is an outcome. The numbers of the run as
a whole are loose outcomes.

Not covered: recordings (asciinema), the panes and commands logged beside the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    trajectory_id,
)
from flywheel.formats.scores import scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import count
from flywheel.records import Attachment, Fragment, Outcome, Trajectory

_TRIAL = {"trial_name", "task_id", "is_resolved"}
_ENDS = {
    "none": "completed", "unset": None, "agent_timeout": "timeout", "test_timeout": "env_error",
    "context_length_exceeded": "context_overflow", "output_length_exceeded": "max_tokens",
    "parse_error": "agent_error", "fatal_llm_parse_error": "agent_error", "unknown_agent_error": "agent_error",
    "agent_installation_failed": "env_error",
}  # fmt: skip
_READ = {
    "id", "task_id", "instruction", "is_resolved", "failure_mode", "parser_results",
    "total_input_tokens", "total_output_tokens",
}  # fmt: skip


class TerminalBench:
    """The reader."""

    name = "terminal_bench"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        known = sum(bool(_trials(value)) for value in head.values)
        return Match(confidence=round(0.95 * known / len(head.values), 3)) if known else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Item]:
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            trials = _trials(record.value)
            if not trials:
                yield record.reject("not_terminal_bench", "the record is no trial and holds no list of trials")
                continue
            session = as_text(as_dict(record.value).get("id")) if trials[0] is not record.value else None
            for trial in trials:
                yield _fragment(trial, session, record, source, first)
            if session is not None or trials[0] is not record.value:
                yield Attachment(record_ix=record.ix, outcomes=tuple(_whole(record.value, session or first)))


def _trials(value: Any) -> list[dict[str, Any]]:
    """The trials of a run; a trial that stands alone is its own list."""
    held = as_dict(value)
    if held.keys() >= _TRIAL:
        return [held]
    trials = as_list(held.get("results"))
    return trials if trials and all(as_dict(trial).keys() >= _TRIAL for trial in trials) else []


def _fragment(trial: Mapping[str, Any], session: str | None, record: Record, source: Source, first: str) -> Fragment:
    native_id = first_text(trial, "id", "trial_name") or fingerprint(trial)
    this = trajectory_id("terminal_bench", native_id, first)
    resolved, raw = trial["is_resolved"], as_text(trial.get("failure_mode"))
    success = resolved if isinstance(resolved, bool) else None
    ended = _ENDS.get((raw or "").lower(), "unknown" if raw else None)
    started, over = read_time(trial.get("trial_started_at")), read_time(trial.get("trial_ended_at"))
    agent_start, agent_end = read_time(trial.get("agent_started_at")), read_time(trial.get("agent_ended_at"))
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        session_id=session,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="terminal_bench",
        task_id=as_text(trial["task_id"]),
        task=dumps({"instruction": trial.get("instruction")}),
        started_at=agent_start.at or started.at,
        ended_at=agent_end.at or over.at,
        time_quality=started.quality,
        n_steps=0,
        input_tokens=count(trial.get("total_input_tokens")),
        output_tokens=count(trial.get("total_output_tokens")),
        end_reason=ended,
        end_reason_raw=raw,
        error_type=raw if ended not in (None, "completed") else None,
        success=success,
        success_source=None if success is None else "verifier:is_resolved",
        content_complete=False,
        quality_flags=(*record.repairs, "no_messages"),
        metadata=dumps({key: item for key, item in trial.items() if key not in _READ and item is not None}),
    )
    outcomes = tuple(_outcomes(trial, this))
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, outcomes=outcomes)


def _outcomes(trial: Mapping[str, Any], this: str) -> Iterator[Outcome]:
    resolved = trial["is_resolved"]
    polarity = None if not isinstance(resolved, bool) else 1 if resolved else -1
    yield scored(this, "is_resolved", resolved, polarity=polarity, source_id="terminal_bench")
    for test, verdict in as_dict(trial.get("parser_results")).items():
        polarity = {"passed": 1, "failed": -1}.get(verdict) if isinstance(verdict, str) else None
        yield scored(this, f"test/{test}", verdict, polarity=polarity, source_id="terminal_bench")


def _whole(run: Mapping[str, Any], session: str) -> Iterator[Outcome]:
    """The numbers of the run; lists and tables go along as they are."""
    about: dict[str, Any] = {"target_kind": "session", "session_id": session, "source_id": "terminal_bench"}
    for name, value in run.items():
        if name not in ("results", "id"):
            yield scored(None, name, value, polarity=None, **about)
