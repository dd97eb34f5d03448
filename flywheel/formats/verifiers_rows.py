"""Rows of verifiers' results.jsonl up to 0.3 (and of prime-rl's rollout files of that time).

`prompt` and `completion` are lists of messages whose tool calls are JSON texts `{id, name, arguments}`, or plain texts
of completion models. `trajectory` repeats every turn with its response: usage, finish reason, ids and logprobs go to
the message it became. Metrics stand twice, in `metrics` and as columns. A row has no id of its own: it is named by its
turns, or by example and how often the example came before.

Not covered: turns that are no turn of `completion` (they stay in `extra`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import (
    Record,
    Source,
    as_dict,
    as_float,
    as_int32,
    as_list,
    as_text,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import reward_polarity, scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import count, openai_usage
from flywheel.records import Fragment, Outcome, Step, Trajectory

_ROW = {"prompt", "completion", "reward"}
_BESIDE = {"example_id", "metrics", "stop_condition", "trajectory", "is_completed", "answer"}
_STOPS = {
    "no_tools_called": "completed", "completed": "completed", "done": "completed", "agent_completed": "completed",
    "max_turns": "max_turns", "max_turns_reached": "max_turns", "prompt_too_long": "context_overflow",
    "context_length": "context_overflow", "timeout": "timeout", "timeout_reached": "timeout",
    "provider_error": "model_error", "max_total_completion_tokens_reached": "max_tokens",
}  # fmt: skip
_READ = {
    "prompt", "completion", "reward", "metrics", "trajectory", "error", "tool_defs", "oai_tools", "answer", "info",
    "stop_condition", "example_id",
}  # fmt: skip


def is_row(value: Any) -> bool:
    """Whether a value is such a row."""
    row = as_dict(value)
    return row.keys() >= _ROW and bool(_BESIDE & row.keys()) and isinstance(row["prompt"], (list, str))


def ending(record: Mapping[str, Any], error: Any) -> dict[str, Any]:
    """Columns: how a rollout ended and what went wrong; shared with the traces of later versions."""
    raw = as_text(record.get("stop_condition"))
    detail = as_dict(error)
    reason = "model_error" if error and raw in (None, "has_error") else _STOPS.get(raw or "")
    if record.get("is_timeout") is True:
        reason = "timeout"
    elif record.get("is_truncated") is True and reason in (None, "completed"):
        reason = "max_tokens"
    message = first_text(detail, "message", "error_chain_repr", "error_chain_str")
    return {
        "end_reason": reason or (None if raw is None else "unknown"),
        "end_reason_raw": raw,
        "error_type": first_text(detail, "type", "error"),
        "error_message": as_text(error) or message or (dumps(error) if error else None),
    }


def fragment(row: Mapping[str, Any], attempts: dict[str, int], record: Record, source: Source, first: str) -> Fragment:
    """The trajectory of a row; `attempts` counts how often each example came."""
    example = as_text(row.get("example_id")) or "?"
    attempt = attempts[example] = attempts.get(example, -1) + 1
    turns = [as_dict(turn) for turn in as_list(row.get("trajectory"))]
    native_id = next((found for turn in turns if (found := first_text(turn, "trajectory_id"))), f"{example}/{attempt}")
    this = trajectory_id("verifiers", native_id, first)
    conversation = Conversation(this)
    for message in _messages(row["prompt"], "user"):
        told = as_dict(message).get("role") == "assistant"
        add_message(conversation, message, **({"sampled": False} if told else {}))
    start = len(conversation.steps)
    for message in _messages(row["completion"], "assistant"):
        own = as_dict(message).get("role") == "assistant"
        add_message(conversation, message, **({"sampled": True} if own else {}))
    left = _stamp(conversation, start, turns)
    steps, tool_calls = conversation.finish()
    error, reward = row.get("error"), as_float(row.get("reward"))
    verdict = None if error else reward_polarity(row.get("reward"))
    usage, tools = as_dict(row.get("token_usage")), row.get("tool_defs") or row.get("oai_tools")
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        attempt=attempt,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="verifiers",
        format_version="0",
        model=next((step.model for step in steps if step.model), None),
        tools=(tools if isinstance(tools, str) else dumps(tools)) if tools else None,
        task_id=f"{row['task']}/{example}" if isinstance(row.get("task"), str) else as_text(row.get("example_id")),
        task=dumps({key: row[key] for key in ("answer", "info") if key in row}),
        n_steps=len(steps),
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        success=None if not verdict else verdict > 0,
        reward=reward,
        success_source=None if not verdict else "verifier:reward",
        content_complete=True,
        quality_flags=(record.repairs if steps else (*record.repairs, "no_steps")) or None,
        **ending(row, error),
        **_times(as_dict(row.get("timing"))),
        extra=_extra(row, left),
    )
    outcomes = _outcomes(row, this, None if error else verdict)
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _messages(value: Any, role: str) -> list[Any]:
    """Messages of a chat, or the one message that a text is. Calls that are JSON texts are opened."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_opened(message) for message in as_list(value)]


def _opened(message: Any) -> Any:
    calls = as_dict(message).get("tool_calls")
    if not isinstance(calls, list) or not any(isinstance(call, str) for call in calls):
        return message
    opened = []
    for call in calls:
        decoded = try_loads(call) if isinstance(call, str) else None
        held = decoded.value if decoded is not None else call
        opened.append({"arguments": held} if isinstance(held, str) else held)
    return {**message, "tool_calls": opened}


def _stamp(conversation: Conversation, start: int, turns: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Write each turn's response into the message it became; gives what of the turns is left."""
    answers = [step for step in conversation.steps[start:] if step.role == "assistant"]
    if len(answers) != len(turns):
        return list(turns)
    left = []
    for step, turn in zip(answers, turns, strict=True):
        response, tokens = as_dict(turn.get("response")), as_dict(turn.get("tokens"))
        usage, time = openai_usage(response.get("usage")), read_time(response.get("created"))
        message = as_dict(response.get("message"))
        finish = first_text(message, "finish_reason") or first_text(response, "finish_reason")
        conversation.steps[step.step_ix] = replace(
            step,
            llm_call_id=first_text(response, "id"),
            model=first_text(response, "model"),
            finish_reason=finish,
            finish_reason_raw=finish,
            ts=time.at,
            ts_raw=time.raw,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            token_ids=_ids(tokens.get("completion_ids")),
            logprobs=_numbers(tokens.get("completion_logprobs")),
        )
        left.append(_rest(turn, conversation.steps, step))
    return left


def _ids(value: Any) -> tuple[int, ...] | None:
    ids = tuple(number for number in map(as_int32, as_list(value)) if number is not None)
    return ids if ids and len(ids) == len(as_list(value)) else None


def _numbers(value: Any) -> tuple[float, ...] | None:
    numbers = tuple(number for number in map(as_float, as_list(value)) if number is not None)
    return numbers if numbers and len(numbers) == len(as_list(value)) else None


def _rest(turn: Mapping[str, Any], steps: Sequence[Step], step: Step) -> dict[str, Any]:
    """A turn without the messages that the conversation holds in the same words."""
    rest = dict(turn)
    prompt, completion = as_list(turn.get("prompt")), as_list(turn.get("completion"))
    if len(prompt) == step.step_ix and all(_same(m, s) for m, s in zip(prompt, steps, strict=False)):
        rest.pop("prompt")
    if len(completion) == 1 and _same(completion[0], step):
        rest.pop("completion")
        message = as_dict(as_dict(turn.get("response")).get("message"))
        more = {key: item for key, item in message.items() if key not in ("role", "content", "tool_calls")}
        if message and _same(message, step):
            rest["response"] = {**as_dict(turn["response"]), "message": more}
    return {key: item for key, item in rest.items() if item is not None}


def _same(message: Any, step: Step) -> bool:
    content = as_dict(message).get("content")
    said = content == step.content or (isinstance(content, list) and dumps(content) == step.parts)
    empty = content in (None, "") and step.content in (None, "")
    return (said or empty) and len(as_list(as_dict(message).get("tool_calls"))) == step.n_tool_calls


def _outcomes(row: Mapping[str, Any], this: str, verdict: int | None) -> tuple[Outcome, ...]:
    outcomes = [scored(this, "reward", row["reward"], polarity=verdict)] if row.get("reward") is not None else []
    for name, value in as_dict(row.get("metrics")).items():
        outcomes.append(scored(this, f"metric:{name}", value, polarity=None, source_kind="system"))
    return tuple(outcomes)


def _times(timing: Mapping[str, Any]) -> dict[str, Any]:
    start, seconds, millis = read_time(timing.get("start_time")), as_float(timing.get("total")), timing.get("total_ms")
    return {
        "started_at": start.at,
        "duration_ms": seconds * 1000 if seconds is not None else as_float(millis),
        "time_quality": start.quality if start.at is not None else None,
    }


def _extra(row: Mapping[str, Any], left: Sequence[Any]) -> str | None:
    metrics = as_dict(row.get("metrics"))
    rest = {
        key: item
        for key, item in row.items()
        if key not in _READ and item is not None and not (key in metrics and metrics[key] == item)
    }
    rest |= {"metrics": row["metrics"]} if row.get("metrics") and not metrics else {}
    rest |= {"error": row["error"]} if isinstance(row.get("error"), dict) else {}
    rest |= {"trajectory": list(left)} if any(left) else {}
    rest |= {"completion": row["completion"]} if not isinstance(row["completion"], (list, str, type(None))) else {}
    return dumps(rest) if rest else None
