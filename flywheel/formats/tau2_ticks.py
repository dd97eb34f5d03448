"""Ticks of a spoken tau2-bench simulation to messages: what one party says while it holds the floor is one message.

    {tick_id, timestamp, agent_chunk: {content?, contains_speech, ...}, user_chunk: {...},
     agent_tool_calls?, agent_tool_results?, user_tool_calls?, user_tool_results?}

Not covered: the words of chunks that were stored as audio only; such a message has no content, and the run is marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flywheel.formats.reader import as_dict, as_list, as_text

_PARTIES = (("user", "user"), ("agent", "assistant"))


def messages(ticks: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """The messages in the order in which they begin; overlapping speech is two messages."""
    made: list[dict[str, Any]] = []
    speaking: dict[str, dict[str, Any]] = {}
    for item in ticks:
        tick = as_dict(item)
        for party, role in _PARTIES:
            chunk = as_dict(tick.get(f"{party}_chunk"))
            content, calls = as_text(chunk.get("content")), as_list(tick.get(f"{party}_tool_calls"))
            calls = calls or as_list(chunk.get("tool_calls"))
            if not content and not calls and chunk.get("contains_speech") is not True:
                speaking.pop(party, None)
                continue
            message = speaking.get(party)
            if message is None:
                message = speaking[party] = _begun(role, tick)
                made.append(message)
            if content:
                message["content"] = (message.get("content") or "") + content
            if calls:
                message["tool_calls"] = [*message.get("tool_calls", []), *calls]
        for party, _ in _PARTIES:
            results = as_list(tick.get(f"{party}_tool_results"))
            made += [as_dict(result) for result in results if as_dict(result)]
            if results:
                speaking.pop(party, None)
    yield from made


def _begun(role: str, tick: Mapping[str, Any]) -> dict[str, Any]:
    ids = {key: tick[key] for key in ("tick_id", "timestamp") if key in tick}
    return {"role": role, **ids}
