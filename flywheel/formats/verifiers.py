"""Rollouts of verifiers (Prime Intellect) and of prime-rl, which writes them the same way.

    {example_id, prompt, completion, reward, metrics, trajectory, ...}    results.jsonl up to 0.3 (`verifiers_rows.py`)
    {id, env, task, traces: [{nodes, calls, rewards, ...}], ...}          episodes since 0.4 (traces.jsonl)
    {version: 1, nodes, calls, ...}                                       one trace of such an episode

A trace's nodes are a message graph (`parent`): branches stay branches. Nodes carry token ids, mask and logprobs.
A trace's reward is the weighted sum of its rewards; at 1 it succeeded, at 0 it failed, and between them (or after an
error) nothing is said. verifiers counts prompt tokens without the cached ones: they are added up.

Not covered: token ids of images, the GEPA logs beside a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats import verifiers_rows
from flywheel.formats.messages import Conversation
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_float,
    as_int,
    as_int32,
    as_list,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import reward_polarity, scored
from flywheel.formats.times import read_time
from flywheel.formats.usage import count
from flywheel.formats.verifiers_rows import ending
from flywheel.records import Fragment, Outcome, Reject, Trajectory

_READ = {"id", "version", "verifiers", "nodes", "rewards", "metrics", "tools", "task", "timing"}
_NODE = {"parent", "message", "sampled", "timestamp", "token_ids", "mask", "logprobs"}


class Verifiers:
    """The reader."""

    name = "verifiers"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        episodes = [bool(_traces(value)) for value in head.values]
        rows = [verifiers_rows.is_row(value) for value in head.values]
        known = sum(episodes) + sum(rows)
        if not known:
            return None
        version = next((_version(trace) for value in head.values for trace in _traces(value)), None)
        return Match(confidence=round(0.94 * known / len(head.values), 3), version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first: str | None = None
        attempts: dict[str, int] = {}
        for record in records:
            first = first or fingerprint(record.value)
            traces = _traces(record.value)
            for trace in traces:
                yield _fragment(trace, as_dict(record.value), record, source, first)
            if not traces and verifiers_rows.is_row(record.value):
                yield verifiers_rows.fragment(record.value, attempts, record, source, first)
            elif not traces:
                yield record.reject("not_verifiers", "the record has no traces, and no prompt with a completion")


def _traces(value: Any) -> list[dict[str, Any]]:
    """The traces of an episode, or a trace that stands alone."""
    if _is_trace(value):
        return [value]
    traces = as_list(as_dict(value).get("traces"))
    return traces if traces and all(_is_trace(trace) for trace in traces) else []


def _is_trace(value: Any) -> bool:
    trace = as_dict(value)
    return isinstance(trace.get("nodes"), list) and isinstance(trace.get("calls"), list)


def _version(trace: Mapping[str, Any]) -> str | None:
    return first_text(as_dict(trace.get("verifiers")), "version") or as_text(trace.get("version"))


def _fragment(
    trace: Mapping[str, Any], episode: Mapping[str, Any], record: Record, source: Source, first: str
) -> Fragment:
    native_id = first_text(trace, "id") or fingerprint(trace)
    this = trajectory_id("verifiers", native_id, first)
    agent = as_dict(trace.get("agent"))
    config, task = as_dict(agent.get("config")), as_dict(trace.get("task")) or as_dict(episode.get("task"))
    conversation = Conversation(this)
    _add_nodes(conversation, trace, trainable=False if agent.get("trainable") is False else None)
    steps, tool_calls = conversation.finish()
    outcomes, reward = _outcomes(trace, this)
    ended = ending(trace, next(iter(as_list(trace.get("errors"))), trace.get("error")))
    verdict = None if ended["error_type"] or ended["error_message"] else reward_polarity(reward)
    around = {key: item for key, item in episode.items() if key != "traces"} if "traces" in episode else {}
    sampling = {key: item for key, item in as_dict(config.get("sampling")).items() if item is not None}
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        session_id=first_text(episode, "id") if "traces" in episode else None,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="verifiers",
        format_version=_version(trace),
        agent_name=first_text(agent, "name"),
        model=first_text(config, "model"),
        sampling=dumps(sampling) if sampling else None,
        tools=dumps(trace["tools"]) if trace.get("tools") else None,
        task_id=_task_id(task, episode),
        task=dumps(task) if task else None,
        n_steps=len(steps),
        input_tokens=count(trace.get("num_input_tokens")),
        output_tokens=count(trace.get("num_output_tokens")),
        success=None if not verdict else verdict > 0,
        reward=reward,
        success_source=None if not verdict else "verifier:rewards",
        content_complete=True,
        quality_flags=(record.repairs if steps else (*record.repairs, "no_steps")) or None,
        metadata=dumps({"episode": around}) if around else None,
        **ended,
        **_times(as_dict(trace.get("timing"))),
        extra=_extra(trace),
    )
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _task_id(task: Mapping[str, Any], episode: Mapping[str, Any]) -> str | None:
    """The environment's name and the task's place in it, else the hash that names the task."""
    name, ix = first_text(as_dict(episode.get("env")), "id"), first_text(as_dict(task.get("data")), "idx")
    return f"{name or first_text(task, 'type')}/{ix}" if ix is not None else first_text(task, "key", "hash", "id")


def _add_nodes(conversation: Conversation, trace: Mapping[str, Any], trainable: bool | None) -> None:
    for ix, item in enumerate(as_list(trace.get("nodes"))):
        node = as_dict(item)
        parent, time = as_int(node.get("parent")), read_time(node.get("timestamp"))
        placed = parent is None or 0 <= parent < ix
        ids, mask = as_list(node.get("token_ids")), as_list(node.get("mask"))
        logprobs = as_list(node.get("logprobs"))
        numbers = tuple(number for number in map(as_int32, ids) if number is not None)
        flags = [bool(flag) for flag in mask if flag in (0, 1)]
        probs = tuple(number for number in map(as_float, logprobs) if number is not None)
        sampled = node["sampled"] if isinstance(node.get("sampled"), bool) else None
        columns: dict[str, Any] = {
            "parent_ix": parent if placed else None,
            "sampled": sampled,
            "trainable": trainable if sampled else None,
            "token_ids": numbers if ids and len(numbers) == len(ids) else None,
            "token_mask": tuple(flags) if mask and len(flags) == len(mask) else None,
            "logprobs": probs if logprobs and len(probs) == len(logprobs) else None,
        }
        step_ix = add_message(conversation, node.get("message"), **columns)
        lists = (("token_ids", ids), ("token_mask", mask), ("logprobs", logprobs))
        odd = {name: said for name, said in lists if said and columns[name] is None}
        rest = {key: thing for key, thing in node.items() if key not in _NODE and thing is not None} | odd
        step = conversation.steps[step_ix]
        extra = (step.extra[:-1] + "," if step.extra else "{") + f'"node":{dumps(rest)}}}' if rest else step.extra
        conversation.steps[step_ix] = replace(step, ts=time.at or step.ts, ts_raw=time.raw or step.ts_raw, extra=extra)
        if not placed:
            conversation.flag(step_ix, "unknown_parent")
    for call in as_list(trace.get("calls")):
        _stamp(conversation, as_dict(call))


def _stamp(conversation: Conversation, call: Mapping[str, Any]) -> None:
    ix, usage = as_int(call.get("node")), as_dict(call.get("usage"))
    if ix is None or not 0 <= ix < len(conversation.steps):
        return
    step = conversation.steps[ix]
    cached, prompt = count(usage.get("cached_input_tokens")), count(usage.get("prompt_tokens"))
    finish, end = as_text(call.get("finish_reason")), read_time(as_dict(call.get("time")).get("end"))
    conversation.steps[ix] = replace(
        step,
        model=as_text(call.get("model")),
        finish_reason=finish,
        finish_reason_raw=finish,
        ts_end=end.at,
        llm_call_id=first_text(call, "id"),
        input_tokens=None if prompt is None else prompt + (cached or 0),
        cache_read_tokens=cached,
        output_tokens=count(usage.get("completion_tokens")),
        reasoning_tokens=count(usage.get("reasoning_tokens")),
    )


def _outcomes(trace: Mapping[str, Any], this: str) -> tuple[tuple[Outcome, ...], float | None]:
    """Rewards and metrics, and the weighted sum of the rewards."""
    outcomes, parts = [], []
    for name, said in as_dict(trace.get("rewards")).items():
        reward = said if isinstance(said, dict) else {"score": said}
        score, weight = as_float(reward.get("score")), as_float(reward.get("weight", 1))
        rest = {key: item for key, item in reward.items() if key not in ("score", "weight")}
        polarity = reward_polarity(reward.get("score"))
        outcomes.append(scored(this, name, reward.get("score"), polarity=polarity, weight=weight, metadata=rest))
        parts += [] if score is None or weight is None else [score * weight]
    for name, value in as_dict(trace.get("metrics")).items():
        outcomes.append(scored(this, f"metric:{name}", value, polarity=None, source_kind="system"))
    return tuple(outcomes), sum(parts) if parts else None


def _times(timing: Mapping[str, Any]) -> dict[str, Any]:
    start, end = read_time(timing.get("start")), read_time(as_dict(timing.get("agent")).get("end"))
    return {
        "started_at": start.at,
        "ended_at": end.at,
        "time_quality": start.quality if start.at is not None else None,
    }


def _extra(trace: Mapping[str, Any]) -> str | None:
    rest = {key: item for key, item in trace.items() if key not in _READ and item not in (None, [], {})}
    rest |= {"timing": trace["timing"]} if trace.get("timing") else {}
    rest |= {key: trace[key] for key in ("rewards", "metrics") if trace.get(key) and not isinstance(trace[key], dict)}
    odd = trace.get("task")
    rest |= {"task": odd} if odd and not isinstance(odd, dict) else {}
    return dumps(rest) if rest else None
