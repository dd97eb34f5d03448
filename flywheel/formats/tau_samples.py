"""What tau-bench and tau2-bench files have in common: messages of three parties, and rows of runs that were judged.

    {benchmark_name, task_name, model_path, messages, eval_result: {score, db_match}, meta: {is_correct, ...}}

The simulated user may call tools of its own (`requestor: user`), and its tokens and money are not the agent's: they
stay in the message's `extra`. A row succeeded if nothing in it says otherwise: neither its score nor `is_correct`.

Not covered: the formats' own files (`tau_bench.py`, `tau2_bench.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.feedback import headline
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Record,
    Source,
    as_dict,
    as_float,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import reward_polarity, scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import money, openai_usage
from flywheel.records import Fragment, Outcome, Trajectory

GREETING = "Hi! How can I help you today?"  # what tau2 lets every agent begin with
ENDS = {
    "user_stop": "completed", "agent_stop": "completed", "max_steps": "max_turns", "too_many_errors": "tool_error",
    "timeout": "timeout", "context_window_exceeded": "context_overflow", "agent_error": "agent_error",
    "user_error": "env_error", "infrastructure_error": "env_error", "unexpected_error": "env_error",
}  # fmt: skip
_MESSAGE = {"usage", "cost", "raw_data"}
_READ = {"model_path", "messages", "eval_result", "sampling_params"}
_META = {"is_correct", "id", "task_id", "finish_reason"}


def is_row(value: Any) -> bool:
    """Whether a value is such a row."""
    row = as_dict(value)
    known = isinstance(row.get("eval_result"), dict) and isinstance(row.get("messages"), list)
    return known and (as_text(row.get("benchmark_name")) or "").startswith("tau")


def is_tau2(row: Mapping[str, Any]) -> bool:
    """Whether the row is of tau2-bench."""
    return (as_text(row.get("benchmark_name")) or "").startswith("tau2")


def add(conversation: Conversation, message: Any) -> None:
    """Append a message of either benchmark. A tool of tau-bench says `Error` when it failed, one of tau2 has a flag."""
    given = as_dict(message)
    if not given:
        add_message(conversation, message)
        return
    role, raw = given.get("role"), as_dict(given.get("raw_data"))
    columns: dict[str, Any] = {}
    said = {key: item for key, item in given.items() if (key not in _MESSAGE and item is not None) or key == "content"}
    if role == "tool":
        said = _result(said)
    elif role == "assistant":
        columns = _columns(given, raw)
        greeted = any(step.role != "system" for step in conversation.steps)
        if given.get("content") == GREETING and not greeted and not given.get("usage"):
            columns |= {"sampled": False, "is_synthetic": True}
    else:
        said |= {key: given[key] for key in ("usage", "cost") if given.get(key)}
    if raw:
        columns["raw"] = dumps(raw)
    add_message(conversation, said, **columns)


def _result(message: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's message: in tau2 its id is that of the call, and failures are flagged."""
    said, content = dict(message), message.get("content")
    if "tool_call_id" not in said and "id" in said:
        said["tool_call_id"] = said.pop("id")
    if isinstance(said.get("error"), bool):
        said["is_error"] = said.pop("error")
    elif isinstance(content, str):
        said["is_error"] = content.startswith("Error")
    return said


def _columns(message: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    choice = as_dict(next(iter(as_list(raw.get("choices"))), None))
    usage, finish = openai_usage(raw.get("usage") or message.get("usage")), as_text(choice.get("finish_reason"))
    reasoning = as_dict(choice.get("message")).get("reasoning_content")
    columns: dict[str, Any] = {
        "llm_call_id": first_text(raw, "id"),
        "model": first_text(raw, "model"),
        "finish_reason": finish,
        "finish_reason_raw": finish,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost_usd": money(message.get("cost")),
    }
    return columns | ({"reasoning": reasoning} if isinstance(reasoning, str) else {})


def fragment(
    row: Mapping[str, Any], seen: dict[str, int], record: Record, source: Source, first: str, format_name: str
) -> Fragment:
    """The trajectory of a row; `seen` counts how often each task came, since the rows don't name their trials."""
    meta, task = as_dict(row.get("meta")), as_text(row.get("task_name"))
    own = first_text(meta, "id", "task_id")
    name = f"{task}/{own}" if own is not None else fingerprint(row)
    attempt = seen[name] = seen.get(name, -1) + 1
    this = trajectory_id(format_name, f"{name}/{attempt}", first)
    conversation = Conversation(this)
    for message in as_list(row["messages"]):
        add(conversation, message)
    steps, tool_calls = conversation.finish()
    finish, seconds = as_text(meta.get("finish_reason")), as_float(meta.get("duration_seconds"))
    verdicts, checks = _outcomes(row, meta, this)
    summary = headline(verdicts)
    sampling = {key: item for key, item in as_dict(row.get("sampling_params")).items() if item is not None}
    started, ended = (read_time(meta.get(f"simulation_{end}_time")) for end in ("start", "end"))
    task_id = first_text(meta, "task_id", "id")
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=own,
        attempt=attempt,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format=format_name,
        model=as_text(row.get("model_path")),
        sampling=dumps(sampling) if sampling else None,
        task_id=task if task_id is None else f"{task}/{task_id}",
        started_at=started.at,
        ended_at=ended.at,
        duration_ms=None if seconds is None else seconds * 1000,
        time_quality=started.quality,
        n_steps=len(steps),
        cost_usd=money(meta.get("agent_cost")),
        cost_source=None if money(meta.get("agent_cost")) is None else "recorded",
        end_reason=ENDS.get(finish or "", "unknown" if finish else None),
        end_reason_raw=finish,
        success=summary.success,
        reward=as_float(as_dict(row["eval_result"]).get("score")),
        success_source=summary.source,
        content_complete=True,
        quality_flags=(record.repairs if steps else (*record.repairs, "no_steps")) or None,
        metadata=dumps({key: item for key, item in meta.items() if key not in _META and item is not None}),
        extra=dumps({key: item for key, item in row.items() if key not in (*_READ, "meta")}),
    )
    return Fragment(
        key=this,
        record_ix=record.ix,
        trajectory=trajectory,
        steps=steps,
        tool_calls=tool_calls,
        outcomes=(*verdicts, *checks),
    )


def _outcomes(row: Mapping[str, Any], meta: Mapping[str, Any], this: str) -> tuple[list[Outcome], list[Outcome]]:
    """(what judges the run as a whole, the checks beside it)."""
    result = as_dict(row["eval_result"])
    score = result.get("score")
    verdicts = [scored(this, "score", score, polarity=reward_polarity(score), source_kind="environment")]
    if isinstance(meta.get("is_correct"), bool):
        verdict = 1 if meta["is_correct"] else -1
        verdicts.append(scored(this, "is_correct", meta["is_correct"], polarity=verdict, source_kind="environment"))
    checks = [
        scored(this, key, item, polarity=None, source_kind="environment")
        for key, item in result.items()
        if key != "score"
    ]
    return verdicts, checks
