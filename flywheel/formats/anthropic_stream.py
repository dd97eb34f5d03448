"""The events of a streamed Anthropic message, merged into the message they make.

`message_start` brings the message and its input tokens, `content_block_*` the blocks (text, thinking, signature and the
arguments of tools in pieces), `message_delta` the stop reason and the final usage. Arguments stay the text that was
streamed where it is no object of JSON (`partial_json` beside the block's `input`): a cut stream leaves half of one.

Not covered: telling apart several messages in one stream (the last `message_start` wins, as clients have it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_int, as_list

_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}
PARTIAL = "partial_json"


def is_event(value: Any) -> bool:
    """Whether it is an event of a streamed message."""
    return isinstance(value, dict) and value.get("type") in (
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    )  # fmt: skip


def merge_events(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The message; without a `message_stop` its `stop_reason` may be missing."""
    message: dict[str, Any] = {"type": "message", "role": "assistant"}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        kind, index = event.get("type"), as_int(event.get("index")) or 0
        if kind == "message_start":
            message |= as_dict(event.get("message"))
            blocks |= {ix: dict(as_dict(block)) for ix, block in enumerate(as_list(message.get("content")))}
        elif kind == "content_block_start":
            blocks[index] = dict(as_dict(event.get("content_block")))
        elif kind == "content_block_delta":
            _add_delta(blocks.setdefault(index, {"type": "text", "text": ""}), as_dict(event.get("delta")))
        elif kind == "message_delta":
            message |= as_dict(event.get("delta"))
            message["usage"] = {**as_dict(message.get("usage")), **as_dict(event.get("usage"))}
            message |= {key: value for key, value in event.items() if key not in ("type", "delta", "usage")}
        elif kind == "message_stop":  # Bedrock adds its metrics here
            message |= {key: value for key, value in event.items() if key != "type"}
        elif kind == "error":
            message["error"] = event.get("error")
    message["content"] = [_whole(blocks[index]) for index in sorted(blocks)]
    return message


def _add_delta(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    kind = delta.get("type")
    if kind == "input_json_delta":
        block[PARTIAL] = _joined(block.get(PARTIAL), delta.get(PARTIAL))
    elif kind == "citations_delta":
        block["citations"] = [*as_list(block.get("citations")), delta.get("citation")]
    elif isinstance(kind, str) and kind in _TEXTS:
        block[_TEXTS[kind]] = _joined(block.get(_TEXTS[kind]), delta.get(_TEXTS[kind]))
    else:
        block["deltas"] = [*as_list(block.get("deltas")), dict(delta)]


def _joined(held: Any, more: Any) -> str:
    return (held if isinstance(held, str) else "") + (more if isinstance(more, str) else "")


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """The block with the text of its arguments, the `input` of a block that streamed none left as it was."""
    decoded = try_loads(block[PARTIAL]) if block.get(PARTIAL) else None
    if decoded is not None and isinstance(decoded.value, dict):
        block["input"] = decoded.value
    return block
