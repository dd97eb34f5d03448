"""Agent trajectories published as tables (Parquet, JSON lines): SWE-smith, SWE-Gym, SWE-rebench, nebius, CoderForge.

    {messages | trajectory: list or JSON text of OpenAI messages,
     instance_id | trajectory_id | traj_id, resolved?, tools?, model?, patch?, ...}
    {trajectory: [{role: ai | user | system, text, system_prompt, mask, cutoff_date}], target, exit_status}    nebius

Parquet gives every struct all the members that any row has, NULL where the row had none. Those of messages, calls,
arguments and tool definitions are dropped; arguments that were a struct are flagged `lossy_reconstructed`, since a null
that the model wrote can't be told from one that Parquet added.
`resolved` (0, 1, true) or `target` is the tests' verdict, so it is success. `mask` is the loss mask.

Not covered: annotated traces (`trail.py`, `mast.py`), the SWE-agent commands in the words of nebius' models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.messages import ROLES, Conversation, read_content
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import scored
from flywheel.records import Fragment, Outcome, Reject, ToolCall, Trajectory

_LISTS = ("messages", "trajectory", "conversations", "conversation")
_IDS = ("trajectory_id", "traj_id", "instance_id")
_VERDICTS = ("resolved", "target")
_MODELS = ("model", "model_name", "teacher_model")
_READ = {*_VERDICTS, "tools", "exit_status", "trajectory_id", "traj_id", "instance_id", "model", "model_name"}
_NEBIUS = {"role", "text", "system_prompt", "mask"}
_ENDS = {
    "submitted": "completed",
    "early_exit": "agent_error",
    "exit_context": "context_overflow",
    "exit_cost": "max_turns",
    "exit_format": "agent_error",
    "exit_environment_timeout": "env_error",
    "exit_api": "model_error",
    "exit_error": "agent_error",
}


class HFCorpora:
    """The reader."""

    name = "hf_corpora"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        found = [_confidence(as_dict(value), head.container == "parquet") for value in head.values]
        return Match(confidence=round(sum(found) / len(found), 3)) if any(found) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            row = as_dict(record.value)
            key, messages = _messages(row)
            if key is None:
                yield record.reject("not_hf_corpora", "the row has no list of messages, and no JSON text of one")
            else:
                yield _Row(row, key, messages, record, source, first).fragment()


def _messages(row: Mapping[str, Any]) -> tuple[str | None, list[Any]]:
    """(column, messages): a list, or the JSON text of one."""
    for key in _LISTS:
        held = row.get(key)
        decoded = try_loads(held) if isinstance(held, str) and held.lstrip().startswith("[") else None
        held = held if decoded is None else decoded.value
        if isinstance(held, list) and all(isinstance(item, dict) for item in held):
            return key, held
    return None, []


def _confidence(row: Mapping[str, Any], in_table: bool = False) -> float:
    """How sure the row is of a corpus. Messages that are structs of a table are at home here, even without an id."""
    key, messages = _messages(row)
    if key is None or any("from" in message for message in messages):
        return 0.0
    ids = sum(name in row for name in _IDS)
    hints = sum(
        name in row for name in (*_VERDICTS, "patch", "model_patch", "generated_patch", "exit_status", "run_id")
    )
    if messages and not all("role" in message for message in messages):
        return 0.0
    if isinstance(row[key], str):
        return 0.92 if ids else 0.6
    if ids and (hints or key == "trajectory"):
        return 0.92 if hints else 0.85
    return 0.82 if in_table and messages and not row.keys() & {"response", "request", "choices"} else 0.0


class _Row:
    """One row on its way to a fragment."""

    def __init__(
        self, row: Mapping[str, Any], key: str, messages: list[Any], record: Record, source: Source, first: str
    ) -> None:
        self.row, self.key, self.messages = row, key, messages
        self.record, self.source, self.first = record, source, first
        # A row of Parquet has no place of its own in the file; nulls in its structs are no nulls of the model's.
        self.in_table = record.raw is not None and record.length == 0

    def fragment(self) -> Fragment:
        row, native_id = self.row, self._native_id()
        this = trajectory_id("hf_corpora", native_id or fingerprint(row), self.first)
        conversation = Conversation(this)
        for message in self.messages:
            if message.keys() >= _NEBIUS:
                _add_nebius(conversation, message)
            else:
                add_message(conversation, _without_nulls(message) if self.in_table else message)
        steps, tool_calls = conversation.finish()
        if self.in_table:
            tool_calls = tuple(map(_reconstructed, tool_calls))
        verdicts = _verdicts(this, row)
        success = next((judged.value_bool for judged in verdicts if judged.value_bool is not None), None)
        judge = next((judged.name for judged in verdicts if judged.value_bool is not None), None)
        tools = row.get("tools")
        tools = _without_nulls(tools) if self.in_table and isinstance(tools, list) else tools
        ended = as_text(row.get("exit_status"))
        lossy = any(call.args_state == "lossy_reconstructed" for call in tool_calls)
        flags = {"lossy_reconstructed": lossy, "no_steps": not steps}
        trajectory = Trajectory(
            trajectory_id=this,
            content_sha256="",
            native_id=native_id,
            source_id=self.source.source_id,
            source_record_ix=self.record.ix,
            format="hf_corpora",
            model=first_text(row, *_MODELS),
            tools=(tools if isinstance(tools, str) else dumps(tools)) if tools else None,
            task_id=as_text(row.get("instance_id")),
            time_quality="missing",
            n_steps=len(steps),
            end_reason=None if ended is None else _ENDS.get(ended.split(" ")[0].strip("()")),
            end_reason_raw=ended,
            success=success,
            success_source=None if success is None else f"verifier:{judge}",
            content_complete=True,
            quality_flags=(*self.record.repairs, *(flag for flag, raised in flags.items() if raised)) or None,
            extra=self._extra(),
        )
        return Fragment(
            key=this,
            record_ix=self.record.ix,
            trajectory=trajectory,
            steps=steps,
            tool_calls=tool_calls,
            outcomes=verdicts,
        )

    def _native_id(self) -> str | None:
        """The trajectory's id, else the instance with the run (or a digest of what was said) that tried it."""
        own = first_text(self.row, "trajectory_id", "traj_id")
        if own is not None:
            return own
        instance, run = first_text(self.row, "instance_id"), first_text(self.row, "run_id")
        if instance is None:
            return first_text(self.row, "id", "uuid", "conversation_id", "prompt_id")
        return f"{instance}/{run or fingerprint([self.row.get('model_name'), self.messages])[:16]}"

    def _extra(self) -> str | None:
        rest = {name: value for name, value in self.row.items() if name not in _READ and name != self.key}
        rest |= {name: self.row[name] for name in _VERDICTS if name in self.row and _verdict(self.row[name]) is None}
        rest = {name: value for name, value in rest.items() if value is not None}
        return dumps(rest) if rest else None


def _verdicts(this: str, row: Mapping[str, Any]) -> tuple[Outcome, ...]:
    """0 and 1 of an integer column are a verdict, too."""
    found = ((name, judged) for name in _VERDICTS if (judged := _verdict(row.get(name))) is not None)
    return tuple(
        replace(scored(this, name, judged, polarity=1 if judged else -1, source_id="tests"), value_raw=dumps(row[name]))
        for name, judged in found
    )


def _verdict(value: Any) -> bool | None:
    return bool(value) if value in (0, 1) and isinstance(value, (bool, int, float)) else None


def _without_nulls(value: Any) -> Any:
    """The value without the members that are NULL, but for a message's content, where a null says something."""
    if isinstance(value, dict):
        kept = {key: _without_nulls(item) for key, item in value.items() if item is not None}
        return {**kept, "content": None} if "role" in value and "content" in value and "content" not in kept else kept
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _reconstructed(call: ToolCall) -> ToolCall:
    """Arguments that were a struct of Parquet: what was absent and what was null is not known any more."""
    was_struct = call.args_raw is None and call.args is not None
    return replace(call, args_state="lossy_reconstructed") if was_struct else call


def _add_nebius(conversation: Conversation, message: Mapping[str, Any]) -> None:
    raw = as_text(message.get("role"))
    key = "text" if message.get("text") is not None else "system_prompt"
    content = read_content(message, key)
    read = {"role", "mask", key, "system_prompt" if message.get("system_prompt") is None else key}
    rest = {name: value for name, value in message.items() if name not in read and value is not None}
    role = ROLES.get((raw or "").lower(), "event")
    mask = message.get("mask")
    conversation.add(
        role=role,
        role_raw=raw,
        content=content.text,
        content_state=content.state,
        parts=content.parts,
        trainable=mask if isinstance(mask, bool) else None,
        quality_flags=("odd_role",) if role == "event" else None,
        extra=dumps(rest) if rest else None,
    )
