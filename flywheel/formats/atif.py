"""ATIF 1.0-1.8 (Harbor's agent trajectory interchange format).

One document `{schema_version, agent, steps, ...}`, one a line, or an object whose values are such documents. A step of
the agent gives an assistant row and one tool row for each result of its observation; `source_call_id` names the call.
Embedded `subagent_trajectories` become trajectories of their own that point to their parent.
Read although the schema forbids it: unknown versions, missing versions, step ids with holes, arguments that are no
object, totals that don't add up (flagged, both kept). Steps marked `is_copied_context` count no tokens.

The format has no place for rewards: Harbor keeps them in the trial's result.json, and a `<trial>/agent/trajectory.json`
is joined with it (`harbor_job.py`).

Not covered: files that steps refer to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flywheel.formats.harbor_job import trial_key, trial_of
from flywheel.formats.messages import CALLERS, Conversation, read_content
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
from flywheel.formats.times import read_time
from flywheel.formats.usage import count, money
from flywheel.records import Fragment, Reject, Trajectory

_SOURCES = {"system": "system", "user": "user", "agent": "assistant", "assistant": "assistant"}
_VERSIONS = {f"ATIF-v1.{minor}" for minor in range(9)}
_STEP = {
    "step_id", "timestamp", "source", "message", "model_name", "reasoning_content", "tool_calls", "observation",
    "metrics", "is_copied_context", "llm_call_count",
}  # fmt: skip
_METRICS = {
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "completion_token_ids", "logprobs",
}  # fmt: skip
_DOCUMENT = {"schema_version", "session_id", "trajectory_id", "agent", "steps", "subagent_trajectories"}
_EXPECTED = {"tool_calls": list, "observation": dict, "metrics": dict, "is_copied_context": bool}


class Atif:
    """The reader."""

    name = "atif"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        found = [_documents(value) for value in head.values]
        if not any(found):
            return None
        versions = [as_text(document.get("schema_version")) for documents in found for document in documents]
        named = [version for version in versions if version and version.startswith("ATIF")]
        confidence = (0.99 if named else 0.6) * sum(1 for documents in found if documents) / len(found)
        return Match(confidence=round(confidence, 3), version=named[0] if named else None)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first: str | None = None
        for record in records:
            first = first or fingerprint(record.value)
            documents = _documents(record.value)
            if not documents:
                yield record.reject("not_atif", "the record has no agent with a list of steps")
            for document in documents:
                yield from _Document(document, record, source, first).fragments()


def _documents(value: Any) -> list[dict[str, Any]]:
    """The ATIF documents that a record holds: itself, or all the values of an object of documents."""
    if _is_document(value):
        return [value]
    values = list(as_dict(value).values())
    return values if values and all(_is_document(item) for item in values) else []


def _is_document(value: Any) -> bool:
    document = as_dict(value)
    versioned = (as_text(document.get("schema_version")) or "").startswith("ATIF")
    return isinstance(document.get("steps"), list) and (versioned or isinstance(document.get("agent"), dict))


@dataclass(frozen=True, slots=True)
class _Document:
    """One document on its way to fragments."""

    value: Mapping[str, Any]
    record: Record
    source: Source
    first: str  # fingerprint of the source's first record: the scope of short ids
    parent: str | None = None

    @property
    def native_id(self) -> str | None:
        """`trajectory_id` since 1.7, where the session is shared by parent and children; before that the session."""
        return first_text(self.value, "trajectory_id", "session_id")

    def id_of(self, native_id: str | None) -> str:
        return trajectory_id("atif", native_id or fingerprint(self.value), self.first)

    def fragments(self) -> Iterator[Fragment]:
        trial = trial_of(self.source.path or self.source.uri) if self.parent is None else None
        this = self.id_of(self.native_id) if trial is None else trial_key(trial)
        conversation = Conversation(this)
        for step in as_list(self.value["steps"]):
            self._add_step(conversation, step)
        steps, tool_calls = conversation.finish()
        yield Fragment(
            key=this,
            record_ix=self.record.ix,
            trajectory=self._trajectory(this, len(steps), "atif" if trial is None else "harbor_job"),
            partial=trial is not None,
            steps=steps,
            tool_calls=tool_calls,
        )
        for child in as_list(self.value.get("subagent_trajectories")):
            if _is_document(child):
                yield from _Document(child, self.record, self.source, self.first, parent=this).fragments()

    def _trajectory(self, this: str, n_steps: int, format_name: str) -> Trajectory:
        agent, final = as_dict(self.value.get("agent")), as_dict(self.value.get("final_metrics"))
        version, tools = as_text(self.value.get("schema_version")), agent.get("tool_definitions")
        cost = money(final.get("total_cost_usd"))
        return Trajectory(
            trajectory_id=this,
            content_sha256="",
            native_id=self.native_id,
            session_id=as_text(self.value.get("session_id")),
            parent_trajectory_id=self.parent,
            source_id=self.source.source_id,
            source_record_ix=self.record.ix,
            format=format_name,
            format_version=version,
            agent_name=as_text(agent.get("name")),
            agent_version=as_text(agent.get("version")),
            model=as_text(agent.get("model_name")),
            tools=dumps(tools) if tools else None,
            n_steps=n_steps,
            input_tokens=count(final.get("total_prompt_tokens")),
            output_tokens=count(final.get("total_completion_tokens")),
            cache_read_tokens=count(final.get("total_cached_tokens")),
            cost_usd=cost,
            cost_source=None if cost is None else "recorded",
            content_complete=True,
            quality_flags=self._flags(version, final) or None,
            extra=self._extra(agent),
        )

    def _flags(self, version: str | None, final: Mapping[str, Any]) -> tuple[str, ...]:
        total = final.get("total_steps")
        flags = {
            "no_version": version is None,
            "unknown_version": version is not None and version not in _VERSIONS,
            "no_steps": not self.value["steps"],
            "total_steps_mismatch": total is not None and total != len(as_list(self.value["steps"])),
        }
        return (*self.record.repairs, *(name for name, raised in flags.items() if raised))

    def _extra(self, agent: Mapping[str, Any]) -> str | None:
        rest = {key: item for key, item in self.value.items() if key not in _DOCUMENT}
        known = ("name", "version", "model_name", "tool_definitions")
        more = {key: item for key, item in agent.items() if key not in known}
        odd = [child for child in as_list(self.value.get("subagent_trajectories")) if not _is_document(child)]
        rest |= {key: item for key, item in (("agent", more), ("subagent_trajectories", odd)) if item}
        return dumps(rest) if rest else None

    def _add_step(self, conversation: Conversation, value: Any) -> None:
        step = as_dict(value)
        source = as_text(step.get("source"))
        role = _SOURCES.get(source or "", "event")
        content, time = read_content(step, "message"), read_time(step.get("timestamp"))
        calls, own = step.get("llm_call_count"), as_dict(as_dict(step.get("extra")).get("flywheel"))
        step_ix = conversation.add(
            native_id=as_text(step.get("step_id")),
            native_ix=as_int32(step.get("step_id")),
            role=role,
            role_raw=source,
            name=as_text(own.get("name")),
            content=None if "content_state" in own and not content.text else content.text,
            content_state=as_text(own.get("content_state")) or content.state,
            parts=content.parts,
            refusal=as_text(own.get("refusal")) or content.refusal,
            trainable=own["trainable"] if isinstance(own.get("trainable"), bool) else None,
            reasoning=as_text(step.get("reasoning_content")),
            sampled=None if role != "assistant" or as_int(calls) is None else as_int(calls) != 0,
            is_copied_context=step["is_copied_context"] if isinstance(step.get("is_copied_context"), bool) else None,
            ts=time.at,
            ts_raw=time.raw,
            model=as_text(step.get("model_name")),
            quality_flags=None if isinstance(value, dict) and role != "event" else ("odd_role",),
            raw=None if isinstance(value, dict) else dumps(value),
            **_columns(step, role),
        )
        if role in CALLERS:
            self._add_calls(conversation, step_ix, step)
        for result in as_list(as_dict(step.get("observation")).get("results")):
            self._add_result(conversation, step_ix, role, as_dict(result))

    def _add_calls(self, conversation: Conversation, step_ix: int, step: Mapping[str, Any]) -> None:
        for item in as_list(step.get("tool_calls")):
            call = as_dict(item)
            known = ("tool_call_id", "function_name", "arguments")
            rest = {key: thing for key, thing in call.items() if key not in known}
            raw = as_dict(call.get("extra")).get("arguments_raw")  # as `export_atif.py` keeps the model's own text
            if isinstance(raw, str):
                rest["extra"] = {key: thing for key, thing in call["extra"].items() if key != "arguments_raw"}
            conversation.call(
                step_ix,
                call_id=as_text(call.get("tool_call_id")),
                name=as_text(call.get("function_name")),
                kind="function",
                arguments=raw if isinstance(raw, str) else call.get("arguments"),
                extra={key: thing for key, thing in rest.items() if key != "extra" or thing},
            )

    def _add_result(self, conversation: Conversation, caller: int, role: str, result: Mapping[str, Any]) -> None:
        """A result as a row of its own: a tool's if the agent acted, an event if the system reports something."""
        content, call_id = read_content(result), as_text(result.get("source_call_id"))
        rest, own = _without_own(
            {key: item for key, item in result.items() if key not in ("content", "source_call_id")}
        )
        failed = own.get("is_error")
        step_ix = conversation.add(
            role="tool" if role == "assistant" or call_id else "event",
            name=as_text(own.get("name")),
            content=content.text,
            content_state=content.state,
            parts=content.parts,
            tool_call_id=call_id,
            ts=conversation.steps[caller].ts,
            extra=dumps(rest) if rest else None,
        )
        if conversation.steps[step_ix].role != "tool":
            return
        reference = as_dict(next(iter(as_list(result.get("subagent_trajectory_ref"))), None))
        child = first_text(reference, "trajectory_id", "session_id")
        link = None if child is None else self.id_of(child)
        is_error = failed if isinstance(failed, bool) else None
        conversation.result(step_ix, is_error=is_error, caller=caller, subagent_trajectory_id=link)


def _without_own(value: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the object without what `export_atif.py` put into its `extra`, what that was)."""
    extra = as_dict(value.get("extra"))
    if not isinstance(extra.get("flywheel"), dict):
        return dict(value), {}
    left = {key: item for key, item in extra.items() if key != "flywheel"}
    rest = {key: item for key, item in value.items() if key != "extra"} | ({"extra": left} if left else {})
    return rest, extra["flywheel"]


def _columns(step: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Tokens, cost and sampled ids of a step; what has no column, or a type nobody expects, goes to its `extra`."""
    metrics = as_dict(step.get("metrics"))
    ids, logprobs = as_list(metrics.get("completion_token_ids")), as_list(metrics.get("logprobs"))
    token_ids = tuple(number for number in map(as_int32, ids) if number is not None)
    numbers = tuple(number for number in map(as_float, logprobs) if number is not None)
    rest, _ = _without_own({key: item for key, item in step.items() if key not in _STEP})
    observation = {key: item for key, item in as_dict(step.get("observation")).items() if key != "results"}
    more = {key: item for key, item in metrics.items() if key not in _METRICS}
    more |= {"completion_token_ids": ids} if len(token_ids) != len(ids) else {}
    more |= {"logprobs": logprobs} if len(numbers) != len(logprobs) else {}
    rest |= {key: item for key, item in (("metrics", more), ("observation", observation)) if item}
    rest |= {key: step[key] for key, kind in _EXPECTED.items() if step.get(key) and not isinstance(step[key], kind)}
    rest |= {"tool_calls": step["tool_calls"]} if step.get("tool_calls") and role not in CALLERS else {}
    rest |= {"llm_call_count": step["llm_call_count"]} if "llm_call_count" in step else {}
    return {
        "input_tokens": count(metrics.get("prompt_tokens")),
        "cache_read_tokens": count(metrics.get("cached_tokens")),
        "output_tokens": count(metrics.get("completion_tokens")),
        "reasoning_tokens": count(as_dict(metrics.get("extra")).get("reasoning_tokens")),
        "cost_usd": money(metrics.get("cost_usd")),
        "token_ids": token_ids if token_ids and len(token_ids) == len(ids) else None,
        "logprobs": numbers if numbers and len(numbers) == len(logprobs) else None,
        "extra": dumps(rest) if rest else None,
    }
