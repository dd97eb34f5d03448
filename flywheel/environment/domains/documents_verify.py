"""The two verifiers of `documents`: one compares with the gold answer, the other reads the message itself.

V1 `exact`     strict JSON object, exactly the asked keys, every value equal to gold. Money is compared as Decimal.
V2 `grounded`  never sees gold: each value must be one that stands in the message, of the right type, and not only
               in a sentence about another order.
They share the JSON reader and nothing else: V1 trusts the generator, V2 its own patterns (`documents_values.find_*`),
so a fault in either shows as a disagreement. Not covered: two orders asked about in one message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from flywheel.environment.domains import documents_values as values
from flywheel.environment.domains.documents_text import ASIDE_CUES
from flywheel.records import Rollout, Task, Verdict, canonical_json

EXACT = "documents.exact@1"
GROUNDED = "documents.grounded@1"

FINDERS: Mapping[str, Callable[[str], Iterator[values.Found]]] = {
    "order_id": values.find_orders,
    "total": values.find_money,
    "date": values.find_dates,
    "name": values.find_names,
}


class Unjudgeable(Exception):
    """The verifier cannot say: `owner` is whose fault that is (`verifier` or `task`). It becomes a score of None."""

    def __init__(self, owner: str, reason: str) -> None:
        super().__init__(owner, reason)
        self.owner = owner
        self.reason = reason


def verify(task: Task, rollout: Rollout) -> tuple[Verdict, Verdict]:
    """Both verdicts, `exact` first."""
    content = rollout.reply.message.get("content")
    return (
        _judge(EXACT, rollout, lambda: _exact(task, content)),
        _judge(GROUNDED, rollout, lambda: _grounded(task, content)),
    )


def _judge(verifier_id: str, rollout: Rollout, look: Callable[[], tuple[dict[str, bool], str | None]]) -> Verdict:
    try:
        parts, problem = look()
    except Unjudgeable as cannot:
        return Verdict(
            trajectory_id=rollout.rollout_id,
            verifier_id=verifier_id,
            owner=cannot.owner,
            evidence=canonical_json({"problem": cannot.reason}),
            sandbox_level=0,
        )
    return Verdict(
        trajectory_id=rollout.rollout_id,
        verifier_id=verifier_id,
        score=1.0 if all(parts.values()) else 0.0,
        parts=canonical_json(parts),
        evidence=canonical_json({"problem": problem}) if problem else None,
        sandbox_level=0,
    )


def _exact(task: Task, content: object) -> tuple[dict[str, bool], str | None]:
    environment = json.loads(task.environment or "null")
    if not isinstance(environment, dict) or "gold" not in environment:
        raise Unjudgeable("task", f"task {task.task_id} carries no gold answer in its environment")
    gold = environment["gold"]
    answer, problem = read_answer(content)
    if answer is None:
        return {"json": False}, problem
    parts = {"json": True, "keys": set(answer) == set(gold)}
    for name, want in gold.items():
        expected = Decimal(want) if name == "total" else want
        parts[name] = type(answer.get(name)) is type(expected) and answer[name] == expected
    return parts, _first_wrong(parts)


def _grounded(task: Task, content: object) -> tuple[dict[str, bool], str | None]:
    message = json.loads(task.prompt)[-1]["content"]
    asked = tuple(FINDERS)[: json.loads(task.level or "{}").get("fields", 0)]
    known = {name: _candidates(name, message) for name in asked}
    if not asked or not all(known.values()):
        raise Unjudgeable("verifier", f"task {task.task_id}: no value found for {[n for n in asked if not known[n]]}")
    answer, problem = read_answer(content)
    if answer is None:
        return {"json": False}, problem
    parts = {"json": True, "keys": tuple(sorted(answer)) == tuple(sorted(asked))}
    for name in asked:
        value = answer.get(name)
        right_type = isinstance(value, Decimal) if name == "total" else isinstance(value, str)
        parts[name] = right_type and _normal(name, value) in known[name]
    return parts, _first_wrong(parts)


def _candidates(name: str, message: str) -> set[str]:
    """Values of the field's type in the sentences that are not about another order."""
    kept = [s for s in re.split(r"(?<=[.!?])\s+", message) if not any(cue in s.lower() for cue in ASIDE_CUES)]
    return {_normal(name, found.value) for found in FINDERS[name](" ".join(kept))}


def _normal(name: str, value: object) -> str:
    """Equal amounts are equal text: 12.5 and 12.50 both read 12.50. An amount finer than a cent stays as it is."""
    if name != "total":
        return str(value)
    amount = Decimal(str(value))
    return f"{amount:.2f}" if amount == round(amount, 2) else str(amount)


def _first_wrong(parts: Mapping[str, bool]) -> str | None:
    wrong = [name for name, good in parts.items() if not good]
    return f"wrong: {', '.join(wrong)}" if wrong else None


def read_answer(content: object) -> tuple[dict[str, Any] | None, str | None]:
    """The JSON object that is the whole of an answer, numbers as Decimal; else None and why.

    Refused: prose or code fences around it, other JSON types, a key twice, NaN and Infinity.
    """
    if not isinstance(content, str):
        return None, "the answer has no text"
    try:
        answer = json.loads(
            content, parse_float=_number, parse_int=_number, parse_constant=_refuse, object_pairs_hook=_once
        )
    except (ValueError, RecursionError) as error:
        return None, f"not one JSON object: {error}"
    return (answer, None) if isinstance(answer, dict) else (None, f"JSON, but a {type(answer).__name__}")


def _number(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        message = f"number out of range: {text[:40]}"
        raise ValueError(message) from error
    if abs(number.adjusted()) > 30:
        message = f"number out of range: {text[:40]}"
        raise ValueError(message)
    return number


def _refuse(text: str) -> object:
    message = f"{text} is no JSON number"
    raise ValueError(message)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    answer = dict(pairs)
    if len(answer) != len(pairs):
        message = "a key stands twice"
        raise ValueError(message)
    return answer
