"""Domain `documents`: a customer's message in, one strict JSON object out.

Level axes: `fields` (2-4 of order_id, total, date, name, in that order), `format` (`plain`: copy it; `written`:
thousands separators, month names), `distractors` (0 or 1 sentence about another order).
Sides of the split share neither sentences nor ways of writing values: `train` has its own, `eval` and `sibling` have
other sentences each, and the value formats of the held-out side. A phrasing is the family and the unit of clustering.
Worked examples for stronger prompts come from the train side, from seeds that no task uses.
Not covered: tools, several turns, attachments, languages other than English; there is no `sealed` shard yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

from flywheel.environment.domains import documents_text as text
from flywheel.environment.domains import documents_values as values
from flywheel.environment.domains.documents_verify import EXACT, GROUNDED, verify
from flywheel.errors import ConfigError
from flywheel.records import Request, Rollout, Task, Verdict, canonical_json, content_id

FIELDS: Mapping[str, str] = {  # field -> its rule; "" where the format example says it all
    "order_id": ' The order id stands as written, without "#".',
    "total": " The total has two decimals, no currency and no separators.",
    "date": " The date is YYYY-MM-DD.",
    "name": "",
}
SHOWN = "Order #20417 from 30 June 2023 is late, I paid $25.00 for it. Cheers, Kim Doe"
SHOWN_GOLD = {"order_id": "20417", "total": "25.00", "date": "2023-06-30", "name": "Kim Doe"}
"""The one example in every instruction. Without it the base model answers the customer instead (0 of 48 passed)."""
AXES: Mapping[str, tuple[Any, ...]] = {"fields": (2, 3, 4), "format": ("plain", "written"), "distractors": (0, 1)}
LEVELS = tuple(dict(zip(AXES, point, strict=True)) for point in product(*AXES.values()))
MIX = (
    *(level for level in LEVELS if not level["distractors"]),
    {"fields": 2, "format": "plain", "distractors": 1},
    {"fields": 3, "format": "written", "distractors": 1},
)
"""The levels that `sample` draws, in turn: a quarter has a distractor, which the base model can hardly do."""
SPLITS = tuple(text.PHRASINGS)


class Documents:
    """Customer-support messages to JSON; satisfies `Domain`."""

    name = "documents"
    verifiers = (EXACT, GROUNDED)

    def generate(self, seed: int, level: Mapping[str, Any], split: str) -> Task:
        """One task; `seed % number of phrasings` chooses the phrasing. Errors: ConfigError (unknown level, split)."""
        _check(level, split)
        phrasings = text.PHRASINGS[split]
        number = seed % len(phrasings)
        rng = _random("task", seed, dict(level), split)
        message, gold = _write(rng, phrasings[number], level, split)
        messages = [_instruction(int(level["fields"])), _question(message)]
        family = f"{split}-{number:02d}"
        return Task(
            task_id=content_id("task", self.name, split, family, dict(level), messages, gold),
            domain=self.name,
            family=family,
            level=canonical_json(dict(level)),
            stage=_stage(level),
            split=split,
            group_id=family,
            prompt=json.dumps(messages, ensure_ascii=False),
            environment=canonical_json({"gold": gold}),
            verifier_id=EXACT,
            seed=seed,
        )

    def sample(self, n: int, split: str, seed: int) -> list[Task]:
        """`n` tasks spread evenly over phrasings and levels. Another seed gives other values, never the same task."""
        _check(LEVELS[0], split)
        count = len(text.PHRASINGS[split])
        tasks = []
        for ix in range(n):
            phrasing = (ix + ix // count) % count  # one further each round, so that a phrasing meets every level
            tasks.append(self.generate((seed * 10**6 + ix) * count + phrasing, MIX[ix % len(MIX)], split))
        return tasks

    def tools(self, task: Task) -> tuple[Mapping[str, Any], ...]:
        """None: the answer is the message itself."""
        return ()

    def prompt(self, task: Task, shots: int = 0) -> Request:
        """The task's messages, after `shots` worked examples of its level. Equal levels share the whole prefix."""
        instruction, question = json.loads(task.prompt)
        level = json.loads(task.level or "{}")
        examples = [message for ix in range(shots) for message in _example(ix, level)]
        return Request(messages=(instruction, *examples, question), task_id=task.task_id)

    def verify(self, task: Task, rollout: Rollout, hidden_seed: int = 0) -> tuple[Verdict, ...]:
        """`exact` against gold, then `grounded` against the message. There is no hidden part, so no use of the seed."""
        return verify(task, rollout)

    def oracle(self, task: Task) -> Mapping[str, Any]:
        """The gold answer as the prompt asks for it."""
        return {"role": "assistant", "content": answer_text(json.loads(task.environment or "{}")["gold"])}

    def null(self, task: Task) -> Mapping[str, Any]:
        """A way in which small models fail, chosen by the task: apology, prose, fences, other keys, cut short."""
        gold = json.loads(task.environment or "{}")["gold"]
        right = answer_text(gold)
        wrong = (
            "I'm sorry to hear that! Could you please tell me your order number?",
            f"The order is {gold['order_id']} and the total is {gold['total']}.",
            f"```json\n{right}\n```",
            right.replace('"order_id"', '"order"').replace('"total"', '"amount"'),
            right[: len(right) * 2 // 3],
        )
        return {"role": "assistant", "content": wrong[int(hashlib.sha256(task.task_id.encode()).hexdigest(), 16) % 5]}

    def reinstance(self, task: Task, seed: int) -> Task:
        """The same phrasing, level and split with other ids, amounts, dates and names."""
        count = len(text.PHRASINGS[task.split])
        number = int(task.family.rpartition("-")[2])
        return self.generate(seed * count + number, json.loads(task.level or "{}"), task.split)


def answer_text(gold: Mapping[str, str]) -> str:
    """Gold values as the JSON the prompt asks for, keys in its order; the total is a bare number, digits as in gold."""
    pairs = (
        f'"{name}": {gold[name] if name == "total" else json.dumps(gold[name])}' for name in FIELDS if name in gold
    )
    return "{" + ", ".join(pairs) + "}"


def _check(level: Mapping[str, Any], split: str) -> None:
    if split not in SPLITS:
        problem = f"domain documents has no split {split!r}; it has {', '.join(SPLITS)}"
        raise ConfigError(problem)
    if dict(level) not in LEVELS:
        problem = f"domain documents has no level {dict(level)}; its axes are {dict(AXES)}"
        raise ConfigError(problem)


def _random(*parts: Any) -> Random:
    return Random(hashlib.sha256(canonical_json(parts).encode()).digest())


def _stage(level: Mapping[str, Any]) -> int:
    """1 (copy two values) to 4: one more for a third field, for written formats and for a distractor."""
    return 1 + int(level["fields"] > 2) + int(level["format"] == "written") + int(level["distractors"])


def _instruction(fields: int) -> dict[str, str]:
    names = list(FIELDS)[:fields]
    rules = "".join(FIELDS[name] for name in names)
    return {
        "role": "system",
        "content": f"Extract from the customer's message, as one line of JSON: {', '.join(names)}. "
        f"Only the order that the customer asks about.{rules}\n"
        f"Example:\nMessage: {SHOWN}\nJSON: {answer_text({name: SHOWN_GOLD[name] for name in names})}",
    }


def _question(message: str) -> dict[str, str]:
    return {"role": "user", "content": f"Message: {message}\nJSON:"}


def _values(rng: Random, form: str, split: str) -> tuple[dict[str, str], dict[str, str]]:
    """One order: the values as gold has them, and as a message of that side writes them."""
    side = "train" if split == "train" else "held"
    order = rng.choice(values.ORDERS[side, form])(rng)
    # "written" amounts always need a separator, "plain" ones never
    cents = rng.randint(100_000, 999_999) if form == "written" else rng.randint(500, 99_999)
    total = Decimal(cents) / 100
    day = date(2024, 1, 1) + timedelta(days=rng.randrange(700))
    name = " ".join(rng.choice(names) for names in values.NAMES[side])
    gold = {"order_id": order.removeprefix("#"), "total": f"{total:.2f}", "date": day.isoformat(), "name": name}
    written = {
        "order": order,
        "total": rng.choice(values.MONEY[side, form])(total),
        "date": rng.choice(values.DATES[side, form])(day),
        "name": name,
    }
    return gold, written


def _write(rng: Random, phrasing: str, level: Mapping[str, Any], split: str) -> tuple[str, dict[str, str]]:
    """A message and the gold values that are asked for."""
    gold, written = _values(rng, level["format"], split)
    sentences = [phrasing.format(**written)]
    for _ in range(level["distractors"]):
        _, other = _values(rng, level["format"], split)
        aside = rng.choice(text.ASIDES[split]).format(**{f"other_{name}": value for name, value in other.items()})
        sentences.insert(rng.choice((0, 1)), aside)
    if level["fields"] > 3:
        sentences.append(rng.choice(text.SIGNATURES[split]).format(**written))
    return " ".join(sentences), {name: gold[name] for name in list(FIELDS)[: level["fields"]]}


def _example(number: int, level: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Worked example `number` of a level: question and answer, from the train side, from a stream of its own."""
    rng = _random("example", number, dict(level))
    phrasing = text.PHRASINGS["train"][number * 7 % len(text.PHRASINGS["train"])]
    question, gold = _write(rng, phrasing, level, "train")
    return _question(question), {"role": "assistant", "content": answer_text(gold)}
