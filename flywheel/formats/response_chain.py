"""Responses that go on from an earlier one whose items the server kept (`previous_response_id`, `conversation`).

Their requests hold only what is new. Where the source has the earlier response, its items are put in front, so that
each call is a whole path; where it hasn't, the trajectory names the one that it continues.

Not covered: earlier responses in other sources, or further back than the last `MOST` of this one.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from flywheel.formats.exchange import Exchange
from flywheel.formats.openai_responses_call import input_items
from flywheel.formats.reader import as_dict, as_list, as_text, first_text

MOST = 256


@dataclass(frozen=True, slots=True)
class _Held:
    """What was said up to and including a response."""

    key: str  # of the trajectory it belongs to
    items: list[Any]
    instructions: Any


class ResponseChain:
    """The latest responses of one source, by their ids and by their conversations."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def resumed(self, exchange: Exchange) -> tuple[Exchange, str | None]:
        """The exchange with the history it goes on from, and the key of the trajectory it continues, if it's held."""
        held = next((self._held[name] for name in _goes_on_from(exchange) if name in self._held), None)
        if held is None:
            return exchange, None
        request = dict(exchange.request)
        told = request.pop("instructions", None)
        same = told is None or told == held.instructions
        new = input_items(replace(exchange, request=request, response={}))
        again = [] if same else [{"role": "system", "content": told}] if isinstance(told, str) else as_list(told)
        response = {key: value for key, value in exchange.response.items() if key != "instructions"}
        return replace(exchange, request={**request, "input": [*held.items, *again, *new]}, response=response), held.key

    def keep(self, exchange: Exchange, key: str) -> None:
        """Remember what an exchange said. It is the resumed one, where it was resumed."""
        items = [*input_items(exchange), *as_list(exchange.response.get("output"))]
        told = exchange.request.get("instructions") or exchange.response.get("instructions")
        held = _Held(key, items, told)
        for name in (first_text(exchange.response, "id"), _conversation(exchange)):
            if name is not None:
                self._held[name] = held
                self._held.move_to_end(name)
        while len(self._held) > MOST:
            self._held.popitem(last=False)


def _goes_on_from(exchange: Exchange) -> list[str]:
    named = (previous(exchange), _conversation(exchange))
    return [name for name in named if name is not None]


def previous(exchange: Exchange) -> str | None:
    """The id of the response that this one goes on from."""
    return first_text(exchange.request, "previous_response_id") or first_text(exchange.response, "previous_response_id")


def _conversation(exchange: Exchange) -> str | None:
    """The conversation that the server keeps; an application's own ids are no such thing."""
    named = exchange.request.get("conversation") or exchange.response.get("conversation")
    return as_text(named) or first_text(as_dict(named), "id")
