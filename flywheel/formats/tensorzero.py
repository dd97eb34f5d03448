"""TensorZero: datapoints and inferences, `{function_name, id, episode_id, input, output, ...}`.

`input` and `output` may be JSON text. Input is `{system?, messages: [{role, content: [block]}]}`; the output of a chat
function is a list of blocks, that of a JSON function `{raw, parsed}`. Blocks: text, template (its arguments are what
the application said), raw_text, tool_call, tool_result, thought, image, file, unknown. A datapoint without output has
been asked and not answered. An episode is the session of its inferences; a datapoint's id is unique in its dataset.

Not covered: feedback tables of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.messages import ROLES, Conversation, read_content
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
from flywheel.formats.times import read_time
from flywheel.formats.usage import count
from flywheel.records import Fragment, Reject, Trajectory

_KEYS = {"function_name", "input", "episode_id"}
_READ = {
    "input",
    "output",
    "id",
    "episode_id",
    "tool_params",
    "tags",
    "processing_time_ms",
    "input_tokens",
    "output_tokens",
}


class TensorZero:
    """The reader."""

    name = "tensorzero"
    version = "1"
    independent = True

    def sniff(self, head: Head) -> Match | None:
        found = sum(1 for value in head.values if isinstance(value, dict) and value.keys() >= _KEYS)
        return Match(confidence=round(0.95 * found / len(head.values), 3)) if found else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        first = source.first_record
        for record in records:
            first = first or fingerprint(record.value)
            row = as_dict(record.value)
            asked = _opened(row.get("input"))
            if not isinstance(asked, dict):
                yield record.reject("not_tensorzero", "the record has no `input` with messages")
            else:
                yield _fragment(row, asked, record, source, first)


def _opened(value: Any) -> Any:
    """A JSON value that may be kept as text."""
    decoded = try_loads(value) if isinstance(value, str) else None
    return value if decoded is None else decoded.value


def _fragment(row: Mapping[str, Any], asked: Mapping[str, Any], record: Record, source: Source, first: str) -> Fragment:
    native_id = first_text(row, "id", "inference_id") or fingerprint(row)
    dataset = as_text(row.get("dataset_name"))
    this = trajectory_id("tensorzero", native_id if dataset is None else f"{native_id}/{dataset}", first)
    conversation = Conversation(this)
    if asked.get("system") is not None:
        system = read_content(asked, "system")
        conversation.add(role="system", content=system.text, content_state=system.state, parts=system.parts)
    for message in as_list(asked.get("messages")):
        _add_message(conversation, as_dict(message))
    output = _opened(row.get("output"))
    if output is not None:
        blocks = output if isinstance(output, list) else as_list(as_dict(output).get("content")) or [output]
        _add_message(conversation, {"role": "assistant", "content": blocks}, sampled=True)
    steps, tool_calls = conversation.finish()
    params = _opened(row.get("tool_params"))
    tools = as_dict(params).get("tools_available") or as_dict(params).get("tools")
    made, took = read_time(row.get("timestamp", row.get("updated_at"))), as_float(row.get("processing_time_ms"))
    rest = {key: item for key, item in row.items() if key not in _READ and item is not None}
    rest |= {"input": more} if (more := {k: v for k, v in asked.items() if k not in ("system", "messages")}) else {}
    rest |= {"tool_params": row["tool_params"]} if row.get("tool_params") and not tools else {}
    tags = as_dict(row.get("tags"))
    trajectory = Trajectory(
        trajectory_id=this,
        content_sha256="",
        native_id=native_id,
        session_id=as_text(row.get("episode_id")),
        source_id=source.source_id,
        source_record_ix=record.ix,
        format="tensorzero",
        agent_name=as_text(row.get("function_name")),
        agent_version=as_text(row.get("variant_name")),
        model=as_text(row.get("model_name")),
        tools=dumps(tools) if tools else None,
        ended_at=made.at,
        duration_ms=took,
        time_quality=made.quality,
        n_steps=len(steps),
        input_tokens=count(row.get("input_tokens")),
        output_tokens=count(row.get("output_tokens")),
        content_complete=True,
        quality_flags=(*record.repairs, *(() if steps else ("no_steps",))) or None,
        metadata=dumps(tags) if tags else None,
        extra=dumps(rest) if rest else None,
    )
    return Fragment(key=this, record_ix=record.ix, trajectory=trajectory, steps=steps, tool_calls=tool_calls)


def _add_message(conversation: Conversation, message: Mapping[str, Any], **columns: Any) -> None:
    """A message's row, and one more for each result of a tool in it."""
    content = message.get("content")
    raw = as_text(message.get("role"))
    blocks = [as_dict(block) for block in content] if isinstance(content, list) else []
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        read = read_content(block, "result")
        step_ix = conversation.add(
            role="tool",
            role_raw=raw,
            name=as_text(block.get("name")),
            content=read.text,
            content_state=read.state,
            parts=read.parts,
            tool_call_id=as_text(block.get("id")),
            extra=dumps({"type": "tool_result"}),
        )
        conversation.result(step_ix)
    if isinstance(content, list) and results and len(results) == len(content):
        return
    _add_said(conversation, message, raw, blocks, **columns)


def _add_said(
    conversation: Conversation,
    message: Mapping[str, Any],
    raw: str | None,
    blocks: list[dict[str, Any]],
    **columns: Any,
) -> None:
    said = [block for block in blocks if block.get("type") not in ("tool_result", "tool_call", "thought")]
    thoughts = [block for block in blocks if block.get("type") == "thought"]
    plain = read_content(message)
    texts = [text for block in said if (text := _text(block)) is not None]
    rest = {key: value for key, value in message.items() if key not in ("role", "content")}
    step_ix = conversation.add(
        role=ROLES.get((raw or "").lower(), "event"),
        role_raw=raw,
        content="\n".join(texts) if texts else None if blocks else plain.text,
        content_state="present" if texts else "null" if blocks else plain.state,
        parts=dumps(said) if said else None if blocks else plain.parts,
        reasoning="\n".join(text for block in thoughts if (text := as_text(block.get("text")))) or None,
        reasoning_opaque=dumps(thoughts) if thoughts else None,
        extra=dumps(rest) if rest else None,
        **columns,
    )
    for block in blocks:
        if block.get("type") == "tool_call" and conversation.steps[step_ix].role == "assistant":
            raw_arguments = block.get("raw_arguments")
            conversation.call(
                step_ix,
                call_id=as_text(block.get("id")),
                name=first_text(block, "raw_name", "name"),
                kind="function",
                arguments=block.get("arguments") if raw_arguments is None else raw_arguments,
                extra={k: v for k, v in block.items() if k not in ("id", "raw_name", "raw_arguments", "type")},
            )


def _text(block: Mapping[str, Any]) -> str | None:
    """What a block says: its text, the value of raw text, the raw output of a JSON function, a template's arguments."""
    for key in ("text", "value", "raw"):
        if isinstance(block.get(key), str):
            return str(block[key])
    return dumps(block["arguments"]) if block.get("type") == "template" and "arguments" in block else None
