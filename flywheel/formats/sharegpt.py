"""ShareGPT and its relatives, `{conversations: [{from, value}, ...], system?, tools?}`, and Alpaca.

    from: human|user|gpt|assistant|system|function_call|tool_call|observation|tool|function_response|... in any spelling
    weight, loss, train on a turn: whether to learn from it        tools: JSON text, or a list
    turns of {role, content, tool_calls, ...} are read as OpenAI messages
    {instruction, input?, output, system?, history?}               Alpaca

A turn that is a call gives an assistant row, its value kept as content too, since it is what the model said. The value
is JSON of one call or several, perhaps with single quotes around the arguments, perhaps none at all; there are no ids,
so results pair by order. Turns of unknown tags, two in a row of one speaker, and empty ones stay.

Not covered: which turns a trainer's template would drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.messages import ROLES, Conversation, read_content
from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import dumps, try_loads
from flywheel.formats.reader import (
    Head,
    Match,
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
from flywheel.formats.scores import scored
from flywheel.records import Fragment, Outcome, Reject, Trajectory

_LISTS = ("conversations", "conversation")
_TAGS = ("from", "role", "speaker")
_VALUES = ("value", "content", "text")
_LEARNT = ("weight", "loss", "train", "training")
_CALLS = {"functioncall", "toolcall", "toolcalls", "functioncalls", "action"}
_RESULTS = {"observation", "tool", "toolresponse", "toolresult", "functionresponse", "functionresult", "function"}
_TURN = {*_TAGS, *_VALUES, *_LEARNT, "name", "id", "tool_call_id"}
_READ = frozenset({*_LISTS, "system", "system_prompt", "tools", "feedback"})
_ALPACA = frozenset({"instruction", "input", "output", "history"})
# {"name": "f", "arguments": '{...}'} is what several corpora print: JSON but for the quotes around the arguments.
_QUOTED = re.compile(r'^\s*\{\s*"name"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*\'(.*)\'\s*\}\s*$', re.DOTALL)


class ShareGPT:
    """The reader."""

    name = "sharegpt"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        found = [_confidence(value) for value in head.values]
        if head.in_array and found and all(isinstance(v, dict) and "from" in v and "value" in v for v in head.values):
            return Match(confidence=0.85, unit="document")
        return Match(confidence=round(sum(found) / len(found), 3)) if any(found) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            value = {"conversations": record.value} if isinstance(record.value, list) else as_dict(record.value)
            if _turns(value) is None and not _is_alpaca(value):
                yield record.reject("not_sharegpt", "the record has no list `conversations` and no `instruction`")
            else:
                yield _fragment(value, record, source, first)


def _confidence(value: Any) -> float:
    turns = _turns(as_dict(value))
    if turns is not None:
        named = any("from" in as_dict(turn) and "value" in as_dict(turn) for turn in turns)
        return 0.9 if named else 0.7 if turns and all(_tag(as_dict(turn)) is not None for turn in turns) else 0.3
    return 0.6 if _is_alpaca(as_dict(value)) else 0.0


def _turns(value: Mapping[str, Any]) -> list[Any] | None:
    """The turns; a table may hold them as JSON text."""
    for key in _LISTS:
        held = value.get(key)
        decoded = try_loads(held) if isinstance(held, str) and held.startswith("[") else None
        held = held if decoded is None else decoded.value
        if isinstance(held, list):
            return held
    return None


def _is_alpaca(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("instruction"), str) and isinstance(value.get("output"), str)


def _fragment(value: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    native_id = first_text(value, "id", "conversation_id", "uuid")
    identity = {key: item for key, item in value.items() if key != "feedback"}
    this = trajectory_id("sharegpt", native_id or fingerprint(identity), first)
    conversation, turns = Conversation(this), _turns(value)
    told = first_text(value, "system", "system_prompt")
    if told is not None:
        conversation.add(role="system", content=told, content_state="present")
    for turn in _alpaca(value) if turns is None else turns:
        _add_turn(conversation, turn)
    steps, tool_calls = conversation.finish()
    outcomes = (*feedback.read_feedback(value.get("feedback"), this), *_liked(this, value))
    summary = feedback.headline([item for item in outcomes if item.name != "preferred"])
    tools = value.get("tools")
    read = _READ | (_ALPACA if turns is None else frozenset()) | ({"id"} if native_id == value.get("id") else set())
    rest = {key: item for key, item in value.items() if key not in read and item is not None}
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="sharegpt",
        format_version="alpaca" if turns is None else None,
        model=as_text(value.get("model")),
        tools=(tools if isinstance(tools, str) else dumps(tools)) if tools else None,
        time_quality="missing",
        n_steps=len(steps),
        success=summary.success,
        reward=summary.reward,
        success_source=summary.source,
        content_complete=True,
        quality_flags=(*record.repairs, *(() if steps else ("no_steps",))) or None,
        extra=dumps(rest) if rest else None,
    )
    return Fragment(
        key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls, outcomes=outcomes
    )


def _liked(this: str, value: Mapping[str, Any]) -> list[Outcome]:
    """The label of a row for KTO: whether the answer is a good one. That makes it no success."""
    tag = value.get("kto_tag")
    if not isinstance(tag, bool):
        return []
    return [scored(this, "preferred", tag, polarity=1 if tag else -1, source_kind="human_expert")]


def _alpaca(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    turns = []
    for pair in as_list(value.get("history")):
        said = as_list(pair)
        turns += [{"from": tag, "value": text} for tag, text in zip(("human", "gpt"), said, strict=False)]
    given = value.get("input")
    asked = f"{value['instruction']}\n\n{given}" if isinstance(given, str) and given else value["instruction"]
    return [*turns, {"from": "human", "value": asked}, {"from": "gpt", "value": value["output"]}]


def _tag(turn: Mapping[str, Any]) -> str | None:
    return first_text(turn, *_TAGS)


def _add_turn(conversation: Conversation, value: Any) -> None:
    turn = as_dict(value)
    if "role" in turn and not turn.keys() & {"from", "value"}:
        add_message(conversation, turn)
        return
    raw = _tag(turn)
    tag = re.sub(r"[^a-z]", "", (raw or "").lower())
    key = next((key for key in _VALUES if key in turn), "value")
    content = read_content(turn, key)
    role = "assistant" if tag in _CALLS else "tool" if tag in _RESULTS else ROLES.get((raw or "").lower(), "event")
    rest = {k: item for k, item in turn.items() if k not in _TURN or (k in _VALUES and k != key)}
    rest |= {k: turn[k] for k in _LEARNT if k in turn and not isinstance(turn[k], bool) and turn[k] not in (0, 1)}
    step_ix = conversation.add(
        native_id=as_text(turn.get("id")),
        role=role,
        role_raw=raw,
        name=as_text(turn.get("name")),
        content=content.text,
        content_state=content.state,
        parts=content.parts,
        tool_call_id=as_text(turn.get("tool_call_id")) if role == "tool" else None,
        trainable=_trainable(turn),
        quality_flags=("odd_role" if isinstance(value, dict) else "not_a_message",) if role == "event" else None,
        raw=None if isinstance(value, dict) else dumps(value),
        extra=dumps(rest) if rest else None,
    )
    if tag in _CALLS:
        _add_calls(conversation, step_ix, turn.get(key))
    elif role == "tool":
        conversation.result(step_ix)


def _trainable(turn: Mapping[str, Any]) -> bool | None:
    """True or False where the turn has a mark of either; a weight between them is kept, and is neither."""
    for key in _LEARNT:
        number = float(turn[key]) if isinstance(turn.get(key), bool) else as_float(turn.get(key))
        if number in (0, 1):
            return number == 1
    return None


def _add_calls(conversation: Conversation, step_ix: int, value: Any) -> None:
    """The calls that the turn's value holds; where it is no JSON, one call with the value as its arguments."""
    decoded = try_loads(value) if isinstance(value, str) else None
    held = value if not isinstance(value, str) else None if decoded is None else decoded.value
    calls = [as_dict(item) for item in (held if isinstance(held, list) else [held])]
    if not calls or not all(first_text(_body(call), "name") for call in calls):
        quoted = _QUOTED.match(value) if isinstance(value, str) else None
        name, arguments = (None, value) if quoted is None else quoted.groups()
        conversation.call(step_ix, call_id=None, name=name, kind="function", arguments=arguments)
        return
    for call in calls:
        body = _body(call)
        known = ("name", "arguments", "parameters", "id", "type", "function")
        conversation.call(
            step_ix,
            call_id=as_text(call.get("id")),
            name=as_text(body.get("name")),
            kind="function",
            arguments=body.get("arguments", body.get("parameters")),
            extra={key: item for key, item in call.items() if key not in known},
        )


def _body(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return as_dict(call.get("function")) or call
