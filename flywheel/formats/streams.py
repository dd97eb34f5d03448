"""Streamed answers: server-sent events as text, and the deltas of chat completions merged into the answer they make.

A tool call is merged by its `index`; only its first delta need have an id and a name. Where a gateway leaves the index
out, or gives several calls the same one, a new id begins a new call. What is no text is kept as it came last.

Not covered: the events of other protocols (`responses_stream.py`, `anthropic_stream.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_int, as_list, as_text

CHUNK = "chat.completion.chunk"
_HEARD = ("data", "transcript")  # of audio: pieces of base64, pieces of words
_JOINED = ("content", "reasoning_content", "reasoning", "refusal")


def sse_events(text: str) -> list[dict[str, Any]] | None:
    """The JSON objects of a `data: ...` event stream in order; None where the text is no such stream."""
    if not text.lstrip().startswith(("event:", "data:", ":", "id:")):
        return None
    events: list[dict[str, Any]] = []
    data: list[str] = []
    for line in (*text.replace("\r\n", "\n").split("\n"), ""):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line.strip() and data:
            decoded = try_loads("\n".join(data))
            if decoded is not None and isinstance(decoded.value, dict):
                events.append(decoded.value)
            data = []
    return events


def is_chunk(value: Any) -> bool:
    """Whether it is a piece of a streamed chat completion."""
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list) or "messages" in value:
        return False
    if value.get("object") == "" and "prompt_filter_results" in value:
        return True  # Azure's first
    choice = next(iter(value["choices"]), None)
    return value.get("object") == CHUNK or (isinstance(choice, dict) and isinstance(choice.get("delta"), dict))


def merge_chunks(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The chat completion that the chunks of one answer add up to; `object` stays the chunks' own."""
    response: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for key, value in chunk.items():
            if key != "choices" and (value is not None or key not in response):
                response[key] = value
        for position, item in enumerate(as_list(chunk.get("choices"))):
            choice = as_dict(item)
            index = as_int(choice.get("index"))
            index = position if index is None else index
            _add_choice(choices.setdefault(index, {"index": index, "message": {}, "finish_reason": None}), choice)
    response["choices"] = [choices[index] for index in sorted(choices)]
    return response


def _add_choice(merged: dict[str, Any], choice: Mapping[str, Any]) -> None:
    for key, value in choice.items():
        if key == "delta":
            _add_delta(merged["message"], as_dict(value))
        elif key == "logprobs" and isinstance(value, dict):
            logprobs = merged.setdefault("logprobs", {})
            for name, item in value.items():
                logprobs[name] = [*as_list(logprobs.get(name)), *item] if isinstance(item, list) else item
        elif key not in ("index", "message") and value is not None:
            merged[key] = value


def _add_delta(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        held = message.get(key)
        if key == "tool_calls":
            for call in as_list(value):
                _add_call(message.setdefault("tool_calls", []), as_dict(call))
        elif key == "function_call" and isinstance(value, dict):
            _add_function(message.setdefault("function_call", {}), value)
        elif value is None:
            message.setdefault(key, None)
        elif key in _JOINED and isinstance(value, str) and isinstance(held, str):
            message[key] = held + value
        elif isinstance(value, list) and isinstance(held, list):
            message[key] = [*held, *value]
        elif key == "audio" and isinstance(value, dict) and isinstance(held, dict):
            message[key] = {
                **held,
                **value,
                **{name: held[name] + value[name] for name in _HEARD if _both(held, value, name)},
            }
        elif key != "role" or not held:
            message[key] = value


def _both(held: Mapping[str, Any], more: Mapping[str, Any], name: str) -> bool:
    return isinstance(held.get(name), str) and isinstance(more.get(name), str)


def _add_call(calls: list[Any], delta: Mapping[str, Any]) -> None:
    call_id, index = as_text(delta.get("id")), as_int(delta.get("index"))
    held = next((c for c in reversed(calls) if index is None or c.get("index") == index), None)
    if held is None or (call_id is not None and held.get("id") not in (None, "", call_id)):
        held = {"index": index, "id": None, "function": {}}
        calls.append(held)
    for key, value in delta.items():
        if key == "function":
            _add_function(held["function"], as_dict(value))
        elif key != "index" and value not in (None, "") and (key != "id" or not held.get("id")):
            held[key] = value


def _add_function(held: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "arguments" and isinstance(value, str) and isinstance(held.get(key), str):
            held[key] += value
        elif value is not None and (key != "name" or not held.get("name")):
            held[key] = value
