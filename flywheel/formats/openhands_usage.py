"""What a conversation of OpenHands' agent SDK used, and how far it is: its state updates, and its base state.

Tokens and costs come as sums over the conversation, by what they were used for, in state updates that precede the
answer they count: the difference to the sums before belongs to the next answer (of the condenser: to the next
condensation).

Not covered: which event an update precedes (`openhands_v1.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from flywheel.formats.reader import as_dict, as_text
from flywheel.formats.session import Session
from flywheel.formats.usage import count, money

_TOKENS = {
    "prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens", "reasoning_tokens": "reasoning_tokens",
}  # fmt: skip
STATES = {"finished": "completed", "error": "agent_error", "stuck": "agent_error", "paused": "user_abort"}
CONDENSER = "condenser"


class Meter:
    """The sums of one conversation, and what of them no row has yet."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.sums: dict[str, dict[str, Any]] = {}  # by what it was used for: the sums so far
        self.due: dict[str, dict[str, Any]] = {}  # what the next answer (or condensation) used

    def read(self, metrics: Mapping[str, Any]) -> None:
        """What was used since the sums before."""
        for name, metric in metrics.items():
            usage, held = as_dict(as_dict(metric).get("accumulated_token_usage")), self.sums.setdefault(name, {})
            due = self.due.setdefault(name, {})
            for key, column in _TOKENS.items():
                number = count(usage.get(key))
                if number is not None and number > held.get(column, 0):
                    due[column] = due.get(column, 0) + number - held.get(column, 0)
                    held[column] = number
            cost = money(as_dict(metric).get("accumulated_cost"))
            if cost is not None and cost > held.get("cost_usd", Decimal(0)):
                due["cost_usd"] = due.get("cost_usd", Decimal(0)) + cost - held.get("cost_usd", Decimal(0))
                held["cost_usd"] = cost
            model = as_text(as_dict(metric).get("model_name"))
            if model is not None and name != CONDENSER:
                self.session.columns.setdefault("model", model)

    def count(self, ix: int, *names: str) -> None:
        """Write what is due into a row."""
        for name in names:
            for column, number in self.due.pop(name, {}).items():
                held = getattr(self.session.steps[ix], column)
                self.session.set(ix, **{column: number if held is None else held + number})


def add_states(session: Session, states: list[dict[str, Any]]) -> None:
    """What a base state says: the agent's settings, how far the conversation is, what it used."""
    for state in states:
        agent, status = as_dict(state.get("agent")), as_text(state.get("execution_status"))
        session.columns.setdefault("model", as_text(as_dict(agent.get("llm")).get("model")))
        session.extra["base_state"] = state
        if "end_reason" not in session.columns and status in STATES:
            session.columns |= {"end_reason": STATES[status], "end_reason_raw": status}
        metrics = as_dict(as_dict(state.get("stats")).get("usage_to_metrics"))
        if any(step.input_tokens is not None for step in session.steps):
            continue
        for metric in map(as_dict, metrics.values()):
            for key, column in _TOKENS.items():
                number = count(as_dict(metric.get("accumulated_token_usage")).get(key))
                if number is not None:
                    session.columns[column] = session.columns.get(column, 0) + number
