"""OpenAI chat completions: fine-tuning files, gateway logs, LiteLLM logs, streamed chunks, and a bare list of messages.

    {messages, tools?, metadata?, feedback?, ...}          one conversation; `weight` on messages is the loss mask
    {request: {...}, response: {...}, metadata?, ...}      one call as a gateway logged it; `body` inside is opened
    {messages, tools, kwargs, response, cost, timestamp}   LiteLLM and OpenHands
    {choices: [...], usage, model}                         a response alone
    {object: "chat.completion.chunk", ...}                 a piece of a streamed response, one a record
    [message, message, ...]                                a document that is one conversation

The application's own data: `metadata.task_id` (names the task to re-run), user, session, `feedback` (see feedback.py).
Success is what feedback says and nothing else. How calls become conversations: `calls.py`; their envelopes:
`exchange.py`.

Not covered: preference pairs (`preference_pairs.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from flywheel.formats.calls import CallReader, sniff_calls
from flywheel.formats.openai_chat_call import is_message
from flywheel.formats.reader import Head, Match, Record, Source
from flywheel.records import Fragment, Reject


class OpenAIChat:
    """The reader."""

    name = "openai_chat"
    version = "3"

    def sniff(self, head: Head) -> Match | None:
        if head.values and head.in_array and all(is_message(value) for value in head.values):
            return Match(confidence=0.8, unit="document")
        return sniff_calls(head, self.name)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        opened = (
            replace(record, value={"messages": record.value}) if isinstance(record.value, list) else record
            for record in records
        )
        yield from CallReader(source, self.name).read(opened)
