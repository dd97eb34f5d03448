"""NeMo-Gym rollouts: `{responses_create_params, response, reward, ...}` with the items of OpenAI responses.

A rollout is named by (agent, task index, rollout index) where the row has them: the response's id often is the task's,
so ten rollouts of one task share it. Rows that were not collected by index are named by their own id, or by the
response's id together with what was asked.
The reward comes from the environment's verifier. Success is `resolved` where the row says it, else a whole reward; a
part of one is neither. A row with `mask_sample` is not to be trained on. What the environment adds stays in `extra`.

Not covered: what an environment's own columns mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.calls import extra_of
from flywheel.formats.exchange import Exchange, exchanges_of
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_responses_call import OpenAIResponsesCall
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import reward_polarity, scored
from flywheel.records import Fragment, Outcome, Reject, Trajectory

_PARAMS = "responses_create_params"
_READ = frozenset({"reward", "resolved"})
_SUCCESS: Mapping[int | None, bool] = {1: True, -1: False}
_END_REASONS = (("agent_timed_out", "timeout"), ("container_timed_out", "timeout"), ("eval_timed_out", "env_error"))


class NemoGym:
    """The reader."""

    name = "nemo_gym"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        rows = sum(1 for value in head.values if isinstance(as_dict(value).get(_PARAMS), dict))
        return Match(confidence=round(0.95 * rows / len(head.values), 3)) if rows else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            row = as_dict(record.value)
            if not isinstance(row.get(_PARAMS), dict):
                yield record.reject("not_nemo_gym", f"the record has no object `{_PARAMS}`")
                continue
            found = exchanges_of(row)
            exchange = found[0] if found else Exchange(record=row, request={}, response={}, metadata={})
            yield _fragment(row, exchange, record, source, first)


def _fragment(row: Mapping[str, Any], exchange: Exchange, record: Record, source: Source, first: str) -> Fragment:
    native_id = _native_id(row, exchange)
    this = trajectory_id("nemo_gym", native_id, first)
    conversation = Conversation(this)
    built = OpenAIResponsesCall().build(exchange, conversation)
    steps, tool_calls = conversation.finish()
    if row.get("mask_sample") is True:
        steps = tuple(replace(step, trainable=False) if step.sampled else step for step in steps)
    outcomes = _outcomes(this, row)
    resolved, reward = row.get("resolved"), as_float(row.get("reward"))
    success = resolved if isinstance(resolved, bool) else _SUCCESS.get(reward_polarity(row.get("reward")))
    by = "resolved" if isinstance(resolved, bool) else "reward"
    ended = next((reason for key, reason in _END_REASONS if row.get(key) is True), built.columns.get("end_reason"))
    metadata = as_dict(exchange.request.get("metadata"))
    trajectory = Trajectory(
        **{
            **built.columns,
            "trajectory_id": this,
            "content_sha256": "",
            "native_id": native_id,
            "attempt": as_int32(row.get("_ng_rollout_index")),
            "source_id": source.source_id,
            "source_record_ix": record.ix,
            "format": "nemo_gym",
            "agent_name": first_text(as_dict(row.get("agent_ref")), "name") or first_text(row, "harness"),
            "task_id": _task_id(row, metadata),
            "task": dumps(row["task"]) if isinstance(row.get("task"), dict) else None,
            "started_at": None,
            "ended_at": built.time.at,
            "time_quality": built.time.quality,
            "n_steps": len(steps),
            "end_reason": ended,
            "success": success,
            "reward": reward,
            "success_source": None if success is None else f"verifier:{by}",
            "quality_flags": (*record.repairs, *built.flags, *(() if steps else ("no_steps",))) or None,
            "metadata": dumps(metadata) if metadata else None,
            "extra": extra_of(replace(exchange, metadata=metadata), replace(built, in_record=_READ | {"task"})),
        }
    )
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _native_id(row: Mapping[str, Any], exchange: Exchange) -> str:
    agent, task = first_text(as_dict(row.get("agent_ref")), "name"), as_text(row.get("_ng_task_index"))
    if task is not None:
        return "/".join(part for part in (agent, task, as_text(row.get("_ng_rollout_index")) or "0") if part)
    own = first_text(row, "uuid", "rollout_id", "id")
    return own or f"{first_text(exchange.response, 'id') or 'row'}/{fingerprint(exchange.request)[:16]}"


def _task_id(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
    """What the environment calls the task; else its place in the data that was rolled out."""
    named = first_text(row, "task_id", "instance_id") or first_text(metadata, "instance_id", "task_id")
    return named or first_text(as_dict(row.get("task")), "id", "task_id") or as_text(row.get("_ng_task_index"))


def _outcomes(this: str, row: Mapping[str, Any]) -> tuple[Outcome, ...]:
    agent = first_text(as_dict(row.get("agent_ref")), "name") or "nemo_gym"
    return tuple(
        scored(this, name, row[name], polarity=reward_polarity(row[name]), source_id=agent)
        for name in ("reward", "resolved")
        if name in row
    )
