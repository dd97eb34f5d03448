"""tau-bench results: an array of runs with OpenAI messages in `traj`, rows of judged runs, and few-shot examples.

    {task_id, trial, reward, info, traj}                               runs as the benchmark writes them
    {benchmark_name: "taubench", messages, eval_result, meta}          rows of judged runs (`tau_samples.py`)
    {messages_display: "user: ...\\nassistant: ..."}                    an example for the agent, as it is shown to it

A run is named by (task, trial). The reward comes from the environment's database check: 1 is success. A run that broke
off (`info.error`) has no verdict, whatever reward the harness wrote. Tools answer `Error: ...` when they fail.
The simulated user is part of the task, so its id stays in the messages and is nobody's `user_id`.

Not covered: tau2 (`tau2_bench.py`), the per-model layouts of the Hugging Face mirrors (they read as chat).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats import tau_samples
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    fingerprint,
    trajectory_id,
)
from flywheel.records import Fragment, Outcome, Reject, Trajectory, content_id

_RUN = {"task_id", "reward", "info", "traj"}
_READ = {"task_id", "trial", "reward", "traj", "info"}
_TURN = re.compile(r"^(user|assistant|tool|system):[ \t]?", re.MULTILINE)


class TauBench:
    """The reader."""

    name = "tau_bench"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        runs = sum(map(_is_known, head.values))
        return Match(confidence=round(0.95 * runs / len(head.values), 3)) if runs else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first: str | None = None
        seen: dict[str, int] = {}
        for record in records:
            first = first or fingerprint(record.value)
            run = as_dict(record.value)
            if isinstance(run.get("traj"), list) and as_text(run.get("task_id")) is not None:
                yield _fragment(run, record, source, first)
            elif tau_samples.is_row(run):
                yield tau_samples.fragment(run, seen, record, source, first, self.name)
            elif isinstance(run.get("messages_display"), str):
                yield _example(run, record, source)
            else:
                yield record.reject("not_tau_bench", "the record has no task_id with a list `traj`, and no messages")


def _is_known(value: Any) -> bool:
    held = as_dict(value)
    example = isinstance(held.get("messages_display"), str) and len(held) <= 2
    return held.keys() >= _RUN or example or (tau_samples.is_row(held) and not tau_samples.is_tau2(held))


def _example(value: Mapping[str, Any], record: Record, source: Source) -> Fragment:
    """An example that is shown to the agent: a turn begins with a line that names who speaks."""
    text = value["messages_display"]
    this = trajectory_id("tau_bench", fingerprint(value), "")
    conversation = Conversation(this)
    turns = list(_TURN.finditer(text))
    for ix, turn in enumerate(turns):
        end = turns[ix + 1].start() if ix + 1 < len(turns) else len(text)
        tau_samples.add(conversation, {"role": turn[1], "content": text[turn.end() : end].rstrip("\n")})
    steps, tool_calls = conversation.finish()
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="tau_bench",
        n_steps=len(steps),
        content_complete=True,
        quality_flags=(record.repairs if steps else (*record.repairs, "no_steps")) or None,
        tags=("few_shot",),
        extra=dumps(value),
    )
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls)


def _fragment(run: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    info, trial = as_dict(run.get("info")), as_int32(run.get("trial"))
    native_id = f"{run['task_id']}/{0 if trial is None else trial}"
    this = trajectory_id("tau_bench", native_id, first)
    conversation = Conversation(this)
    for message in as_list(run["traj"]):
        tau_samples.add(conversation, message)
    steps, tool_calls = conversation.finish()
    reward, error = as_float(run.get("reward")), as_text(info.get("error"))
    success = None if reward is None or error is not None else reward > 1 - 1e-6
    rest = {key: value for key, value in run.items() if key not in _READ}
    rest |= {key: value for key, value in info.items() if key != "task"}
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        attempt=trial,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="tau_bench",
        task_id=as_text(run["task_id"]),
        task=dumps(info["task"]) if info.get("task") is not None else None,
        time_quality="missing",
        n_steps=len(steps),
        end_reason=None if error is None else "env_error",
        error_message=error,
        success=success,
        reward=reward,
        success_source=None if success is None else "environment:reward",
        content_complete=True,
        quality_flags=record.repairs or None,
        extra=dumps(rest) if rest else None,
    )
    outcomes = () if "reward" not in run else (_outcome(this, run["reward"], success, info),)
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _outcome(this: str, reward: Any, success: bool | None, info: Mapping[str, Any]) -> Outcome:
    number = as_float(reward)
    return Outcome(
        outcome_id=content_id("outcome", this, "reward", dumps(reward)),
        trajectory_id=this,
        name="reward",
        value_num=number,
        value_type="null" if reward is None else "json" if number is None else "number",
        value_raw=None if reward is None else dumps(reward),
        polarity=None if success is None else 1 if success else -1,
        source_kind="environment",
        source_id="tau_bench",
        metadata=dumps(info["reward_info"]) if info.get("reward_info") is not None else None,
    )
