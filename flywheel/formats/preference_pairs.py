"""Preference data: each side of a pair is a trajectory of its own, with an outcome `preferred`.

    {input: {messages, tools?}, preferred_output: [message], non_preferred_output: [message]}      OpenAI, Together
    {prompt?, chosen, rejected, score_chosen?, score_rejected?}                                    TRL, UltraFeedback
    {conversations | instruction, input?, chosen: message, rejected: message}                      LLaMA-Factory
    {prompt, completion, label?}                                                                   KTO, completions

Prompt and sides are texts, messages, or lists of messages (of ShareGPT, too); sides that begin with the prompt, or have
none, hold the whole conversation. The two share a `conversation_id`; the rejected one names the preferred one as its
parent, and the step at which it branches off.
Being preferred is no success: that stays unknown.

Not covered: rankings of more than two answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.scores import scored
from flywheel.records import Fragment, Reject, Trajectory, content_id

_SIDES = (("preferred_output", "non_preferred_output"), ("chosen", "rejected"))
_READ = {"input", "tools", "completion", "label", *(key for pair in _SIDES for key in pair)}


class PreferencePairs:
    """The reader."""

    name = "preference_pairs"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        found = [_confidence(as_dict(value)) for value in head.values]
        return Match(confidence=round(sum(found) / len(found), 3)) if any(found) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            row = as_dict(record.value)
            if _confidence(row) == 0:
                yield record.reject("not_preference_pairs", "the record has no preferred and no other answer")
            else:
                yield from _sides(row, record, source, first)


def _confidence(row: Mapping[str, Any]) -> float:
    for preferred, other in _SIDES:
        if _is_said(row.get(preferred)) and _is_said(row.get(other)):
            return 0.92
    if _is_said(row.get("prompt")) and _is_said(row.get("completion")) and "choices" not in row:
        return 0.85 if isinstance(row.get("label"), bool) else 0.6
    return 0.0


def _is_said(value: Any) -> bool:
    if isinstance(value, dict):
        return "role" in value or "from" in value
    return isinstance(value, str) or (
        isinstance(value, list) and all(_is_said(i) and isinstance(i, dict) for i in value)
    )


def _messages(value: Any, role: str) -> list[Any]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return [_message(item) for item in (value if isinstance(value, list) else [value] if _is_said(value) else [])]


def _message(turn: Any) -> Any:
    """A turn of ShareGPT in OpenAI's words; any other as it is."""
    if not isinstance(turn, dict) or "from" not in turn:
        return turn
    rest = {key: value for key, value in turn.items() if key not in ("from", "value")}
    return {"role": turn["from"], "content": turn.get("value"), **rest}


def _asked(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that `_prompt` reads."""
    if isinstance(row.get("instruction"), str):
        return "system", "instruction"
    return "system", "prompt" if "prompt" in row else "conversations"


def _prompt(row: Mapping[str, Any]) -> list[Any]:
    """What both sides answer, system prompt first."""
    told = _messages(row.get("system"), "system")
    if isinstance(row.get("instruction"), str):
        more = row.get("input")
        asked = f"{row['instruction']}\n\n{more}" if isinstance(more, str) and more else row["instruction"]
        return [*told, {"role": "user", "content": asked}]
    given = row.get("prompt", row.get("conversations", as_dict(row.get("input")).get("messages")))
    return [*told, *_messages(given, "user")]


def _whole(prompt: list[Any], side: list[Any]) -> list[Any]:
    """A side with the prompt in front, unless it begins with it."""
    words = [as_dict(message).get("content") for message in prompt]
    begins = bool(prompt) and [as_dict(message).get("content") for message in side[: len(prompt)]] == words
    return side if begins and len(side) > len(prompt) else [*prompt, *side]


def _sides(row: Mapping[str, Any], record: Record, source: Source, first: str) -> Iterator[Fragment]:
    prompt = _prompt(row)
    keys = next((pair for pair in _SIDES if pair[0] in row and pair[1] in row), None)
    native_id = first_text(row, "id", "prompt_id", "pair_id") or fingerprint(row)
    pair = trajectory_id("preference_pairs", native_id, first)
    if keys is None:
        label = row.get("label")
        answer = [*prompt, *_messages(row.get("completion"), "assistant")]
        yield _side(row, record, source, answer, key=pair, native_id=native_id, preferred=label)
        return
    said = [_whole(prompt, _messages(row.get(key), "assistant")) for key in keys]
    ids = [content_id("trajectory", pair, key) for key in keys]
    common = next((ix for ix, (one, two) in enumerate(zip(*said, strict=False)) if one != two), min(map(len, said)))
    for ix, (key, messages) in enumerate(zip(keys, said, strict=True)):
        relation: dict[str, Any] = {"conversation_id": pair, "branch": key}
        if ix:
            relation |= {"parent_trajectory_id": ids[0], "parent_step_ix": common - 1 if common else None}
        score = row.get(f"score_{key}")
        yield _side(
            row, record, source, messages, key=ids[ix], native_id=native_id, preferred=not ix, score=score, **relation
        )


def _side(
    row: Mapping[str, Any],
    record: Record,
    source: Source,
    messages: Sequence[Any],
    *,
    key: str,
    native_id: str,
    preferred: Any,
    score: Any = None,
    **relation: Any,
) -> Fragment:
    conversation = Conversation(key)
    for message in messages:
        add_message(conversation, message)
    steps, tool_calls = conversation.finish()
    outcomes = []
    if preferred is not None:
        liked = {True: 1, False: -1}.get(preferred) if isinstance(preferred, bool) else None
        outcomes.append(scored(key, "preferred", preferred, polarity=liked, source_kind="human_expert"))
    if score is not None:
        outcomes.append(scored(key, "score", score, polarity=None, source_kind="system"))
    asked = as_dict(row.get("input"))
    read = {*_READ, *(name for name in _asked(row) if _is_said(row.get(name)))}
    rest = {name: value for name, value in row.items() if name not in read and value is not None}
    rest |= {"label": row["label"]} if "label" in row and not isinstance(row["label"], bool) else {}
    more: Any = {name: value for name, value in asked.items() if name not in ("messages", "tools")}
    if not asked and not isinstance(row.get("instruction"), str):
        more = row.get("input")
    rest |= {"input": more} if more else {}
    tools = asked.get("tools") or row.get("tools")
    trajectory = Trajectory(
        trajectory_id=key,
        content_sha256="",
        native_id=native_id,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="preference_pairs",
        model=as_text(asked.get("model")) or as_text(row.get("model")),
        tools=(tools if isinstance(tools, str) else dumps(tools)) if tools else None,
        time_quality="missing",
        n_steps=len(steps),
        reward=as_float(score),
        content_complete=True,
        quality_flags=record.repairs or None,
        extra=dumps(rest) if rest else None,
        **relation,
    )
    return Fragment(
        key=key,
        record_ix=record.ix,
        trajectory=trajectory,
        steps=steps,
        tool_calls=tool_calls,
        outcomes=tuple(outcomes),
    )
