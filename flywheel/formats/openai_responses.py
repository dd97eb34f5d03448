"""OpenAI responses: calls as gateways log them, responses alone, streamed events, and a bare list of items.

    {request: {input, instructions, tools, ...}, response: {object: "response", output: [...]}}
    {input, ..., response?}      a request, perhaps with its response
    {object: "response", ...}    a response alone
    {type: "response.*", ...}    an event of a streamed response, one a record
    [item, item, ...]            a document that is the items of one conversation

How calls become conversations: `calls.py`; their envelopes: `exchange.py`.

Not covered: NeMo-Gym's rows (`nemo_gym.py`), the Assistants API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from flywheel.formats.calls import CallReader, sniff_calls
from flywheel.formats.openai_chat_call import is_message
from flywheel.formats.openai_response_items import is_item
from flywheel.formats.reader import Head, Match, Record, Source
from flywheel.records import Fragment, Reject


class OpenAIResponses:
    """The reader."""

    name = "openai_responses"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        items = [is_item(value) for value in head.values]
        if head.in_array and any(items) and all(is_item(v) or is_message(v) for v in head.values):
            return Match(confidence=0.85, unit="document")
        return sniff_calls(head, self.name)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        opened = (
            replace(record, value={"input": record.value}) if isinstance(record.value, list) else record
            for record in records
        )
        yield from CallReader(source, self.name).read(opened)
