"""Histories of the Gemini API (`[{role: user | model, parts: [...]}]`) as messages of a Gemini CLI recording.

Calls stand in the model's content, results in the user's that follows: each result goes to the call with its id, or
to the first open one of its name. Thoughts are parts marked `thought`. What no part becomes stays in the content.

Not covered: requests to the API, whose history stands beside tools and settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.reader import as_dict, as_list

_CALL, _RESULT = "functionCall", "functionResponse"


def is_content(value: Any) -> bool:
    """Whether a value is a content of the API."""
    content = as_dict(value)
    return content.get("role") in ("user", "model") and isinstance(content.get("parts"), list)


def is_checkpoint(value: Mapping[str, Any]) -> bool:
    """Whether a document holds a saved history."""
    history = as_list(value.get("history"))
    return bool(history) and all(map(is_content, history[:8]))


def messages_of(value: Any) -> list[dict[str, Any]] | None:
    """The messages of a saved history; None for a record that is none."""
    contents = value if isinstance(value, list) else as_list(as_dict(value).get("history"))
    if not contents or not is_content(contents[0]):
        return None
    messages: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for content in contents:
        message = _message(as_dict(content), waiting)
        messages += [message] if message is not None else []
    return messages


def _message(content: Mapping[str, Any], waiting: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A message; None for a content that only holds the results of calls made before, which get them."""
    parts, kept, calls, thoughts = as_list(content.get("parts")), [], [], []
    for part in parts:
        given = as_dict(part)
        if isinstance(given.get(_CALL), dict):
            rest = {key: item for key, item in given.items() if key != _CALL}
            calls.append({**rest, **given[_CALL]})
        elif given.get("thought") is True and isinstance(given.get("text"), str):
            thoughts.append({"description": given["text"], **{k: v for k, v in given.items() if k != "text"}})
        elif not (isinstance(given.get(_RESULT), dict) and _answered(given, waiting)):
            kept.append(part)
    if parts and not kept and not calls and not thoughts:
        return None
    waiting += calls
    rest = {key: item for key, item in content.items() if key not in ("role", "parts")}
    kind = "gemini" if content.get("role") == "model" else "user"
    return {
        **rest,
        "type": kind,
        "content": kept,
        **({"toolCalls": calls} if calls else {}),
        **({"thoughts": thoughts} if thoughts else {}),
    }


def _answered(part: Mapping[str, Any], waiting: list[dict[str, Any]]) -> bool:
    """Give a result to its call. A response with an `error` and nothing else failed."""
    result = part[_RESULT]
    named = [call for call in waiting if result.get("id") is not None and call.get("id") == result["id"]]
    open_ones = named or [
        call
        for call in waiting
        if call.get("name") == result.get("name") and None in (call.get("id"), result.get("id"))
    ]
    if not open_ones:
        return False
    call = open_ones[0]
    waiting[:] = [other for other in waiting if other is not call]
    call["result"] = [part]
    call["status"] = "error" if as_dict(result.get("response")).keys() == {"error"} else "success"
    return True
