"""Anthropic messages: calls as gateways log them, requests or responses alone, streamed events, recorded responses.

    {request: {system, messages, tools, ...}, response: {type: "message", content: [...]}}
    {system?, messages, ..., response?}                     a request, perhaps with its response
    {type: "message", content, stop_reason, usage}          a response alone
    {type: "message_start" | "content_block_delta" ...}     an event of a streamed message, one a record
    {status, headers, body}                                 a recorded response, its body JSON or an event stream

A list of messages is taken for Anthropic's if its blocks are (tool_use, tool_result, thinking), or its request says so.
How calls become conversations: `calls.py`; their envelopes: `exchange.py`.

Not covered: Claude Code's sessions (`claude_code.py`), managed agents (`anthropic_sessions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from flywheel.formats.anthropic_blocks import blocks_of, is_block
from flywheel.formats.calls import CallReader, sniff_calls
from flywheel.formats.openai_chat_call import is_message
from flywheel.formats.reader import Head, Match, Record, Source
from flywheel.records import Fragment, Reject


class AnthropicMessages:
    """The reader."""

    name = "anthropic_messages"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.in_array and head.values and all(is_message(value) for value in head.values):
            own = any(is_block(block) for value in head.values for block in blocks_of(value))
            return Match(confidence=0.85, unit="document") if own else None
        return sniff_calls(head, self.name)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        opened = (
            replace(record, value={"messages": record.value}) if isinstance(record.value, list) else record
            for record in records
        )
        yield from CallReader(source, self.name).read(opened)
