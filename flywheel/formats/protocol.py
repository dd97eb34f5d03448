"""What the three chat protocols give the one reader of calls (`calls.py`): how each is told, and its rows.

Not covered: the protocols themselves (`openai_chat_call.py`, `openai_responses_call.py`, `anthropic_call.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from flywheel.formats.exchange import Exchange
from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_text, first_text
from flywheel.formats.times import MISSING, Time
from flywheel.formats.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A call as rows (they are in the conversation already) and as columns of its trajectory."""

    columns: Mapping[str, Any]
    answer_ix: int | None = None  # the step that is the (last row of the) answer
    time: Time = MISSING
    extra: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    in_record: frozenset[str] = frozenset()  # keys that columns or steps hold
    in_request: frozenset[str] = frozenset()
    in_response: frozenset[str] = frozenset()


class CallProtocol(Protocol):
    """One protocol."""

    name: str

    def claims(self, exchange: Exchange) -> float:
        """How sure it is that the exchange is of this protocol: 0 not at all, 1 by words that no other has."""
        ...

    def said(self, exchange: Exchange) -> tuple[Sequence[Any], Sequence[Any]]:
        """The messages of the request and those of the answer, as `Histories` compares them."""
        ...

    def build(self, exchange: Exchange, conversation: Conversation) -> Built:
        """Append the steps of the exchange to the conversation."""
        ...


def stamp(conversation: Conversation, step_ix: int, usage: Usage, **columns: Any) -> None:
    """Write what a response says of its answer into the answer's step."""
    conversation.steps[step_ix] = replace(
        conversation.steps[step_ix],
        sampled=True,
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        **columns,
    )


def error_columns(error: Any) -> dict[str, Any]:
    """Columns of a call that ended in an error object (or text) in place of an answer."""
    detail = as_dict(error)
    detail = as_dict(detail.get("error")) or detail
    return {
        "end_reason": "model_error",
        "error_type": first_text(detail, "type", "code", "error_class"),
        "error_message": as_text(error) or first_text(detail, "message", "error_message") or dumps(error),
    }
