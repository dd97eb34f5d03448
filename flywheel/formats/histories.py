"""Which earlier call of the same source a call continues, where no id says so.

A log of an agent repeats the whole history in each request. A call continues an earlier one if its messages begin with
the earlier one's messages and answer and go on from there. Told by a running hash of the messages, so what is held is
one number a call, of the last `MOST` calls.

Not covered: calls in different sources (a conversation or session id joins those), histories that were shortened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_list

MOST = 100_000
_UNSAID = ("thinking", "redacted_thinking", "reasoning")  # a history may leave these out


class Histories:
    """The calls of one source so far, by what was said up to and including their answer."""

    def __init__(self) -> None:
        self._ends: OrderedDict[int, str] = OrderedDict()

    def key(self, messages: Sequence[Any], answer: Sequence[Any], own: str, scope: str) -> str:
        """The key of the conversation that the call belongs to: an earlier call's, or its `own`.

        `scope`: what must be equal besides the messages (the task, the user).
        """
        running, found = hash(scope), own
        for message in messages[:-1]:
            running = hash((running, _digest(message)))
            found = self._ends.get(running, found)
        for message in (*messages[-1:], *answer):
            running = hash((running, _digest(message)))
        self._ends[running] = found
        self._ends.move_to_end(running)
        if len(self._ends) > MOST:
            self._ends.popitem(last=False)
        return found


def opening(messages: Iterable[Any]) -> str:
    """The messages up to the first of the user as JSON: what all calls of one growing history have in common."""
    found = []
    for message in messages:
        found.append(_said(message))
        if as_dict(message).get("role") in ("user", "human"):
            break
    return dumps(found)


def _digest(message: Any) -> int:
    return hash(tuple(_said(message))) if isinstance(message, dict) else hash(dumps(message))


def _said(message: Any) -> list[str]:
    """What was said, in one spelling for a message and its repetition in a later request."""
    given: Mapping[str, Any] = as_dict(message)
    calls = [_call(as_dict(call)) for call in as_list(given.get("tool_calls"))]
    said = [str(given.get("role") or given.get("type")), _text(given.get("content")), "\0".join(calls)]
    for name in ("tool_call_id", "name", "function_call", "call_id", "arguments", "output"):
        if given.get(name) is not None:
            said.append(given[name] if isinstance(given[name], str) else dumps(given[name]))
    return said


def _call(call: Mapping[str, Any]) -> str:
    body = as_dict(call.get("function")) or call
    return f"{call.get('id')}\1{body.get('name')}\1{body.get('arguments')}"


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return dumps(content)
    return "\n".join(text for part in content if (text := _part(part)) is not None)


def _part(part: Any) -> str | None:
    if not isinstance(part, dict):
        return part if isinstance(part, str) else dumps(part)
    if part.get("type") in _UNSAID:
        return None
    if isinstance(part.get("text"), str):
        return str(part["text"])
    return dumps({name: value for name, value in part.items() if name != "cache_control"})
