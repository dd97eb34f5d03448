"""Which candidates become rows of supervised fine-tuning, and the reason why each other does not.

    real    an online run that the application's feedback calls a success
    model   a repaired rollout: the failing trace's own prompt, and an answer that every verifier passed
    expert  the oracle's answer to a failing task that repair did not solve; never called a repair

A row leaves only with a reason (`REASONS`). Pure: evidence in, rows out; `curate` reads the lake and writes the files.

Not covered: preference pairs, recovery samples, RL tasks and near duplicates (issue C).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flywheel.config import Curate
from flywheel.curriculum.blend import in_order, lot, most_real, task_weight
from flywheel.curriculum.masks import Decode, Encode, mask_problem, n_trained
from flywheel.errors import ValidationError
from flywheel.records import Task, canonical_json, content_id

REASONS = {
    "no_task": "names no task of a task set, so nothing says which split it belongs to",
    "not_train_split": "its task is not of the training split",
    "eval_group": "its task shares a group with an evaluation task: training on it would leak",
    "eval_prompt": "its prompt is word for word that of an evaluation task",
    "incomplete": "the trace has no prompt or no answer, or a part of them was cut or redacted",
    "unsupported_roles": "the trace holds tool messages or tool calls, which this recipe can't train",
    "unverified": "a verifier gave no verdict, or only one verifier looked",
    "failed_verifier": "the selecting verifier did not pass it",
    "second_verifier": "the selecting verifier passed it, an independent one did not",
    "low_posterior": "so few of the task's re-runs pass that this pass may well be a false one",
    "too_long": "more tokens than [curate] max_length; rows are never cut",
    "nothing_to_learn": "no token of it would be trained",
    "mask_mismatch": "its trained tokens do not read back as the assistant's messages (special tokens in the text?)",
    "duplicate": "the same messages as a row that is kept",
    "per_task": "its task has [curate] per_task rows already",
    "real_share": "there are [curate] real_share real rows already",
}


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a verifier passes what is right (`tpr`) and what is wrong (`fpr`)."""

    tpr: float
    fpr: float


# ASSUMED, not measured: issue C replaces them by rates from an audited set, verifier by verifier.
SELECTING = Rates(tpr=0.98, fpr=0.02)
# Given that the selecting verifier passed: what fools one verifier of a task is the likelier to fool the other, so a
# wrong answer that slipped past the first is taken to slip past the second more often than any would: .10, not .02.
INDEPENDENT = Rates(tpr=0.95, fpr=0.10)


def true_success(passed: int, runs: int) -> float:
    """P(true success | both verifiers passed), for a task that `passed` of `runs` re-runs passed.

    The task's pass rate is the mean of Beta(1 + passed, 1 + runs - passed); methods.md §0.6.
    """
    rate = (1 + passed) / (2 + runs)
    true = rate * SELECTING.tpr * INDEPENDENT.tpr
    false = (1 - rate) * SELECTING.fpr * INDEPENDENT.fpr
    return true / (true + false)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One possible row with the evidence for and against it."""

    source: str  # real|expert|model
    task: Task | None
    task_id: str | None  # as recorded; `task` is None where no task set has it
    parents: tuple[str, ...]  # trajectory ids: the failing trace first, then the repaired rollout
    messages: tuple[Mapping[str, Any], ...]  # prompt, then the answer
    complete: bool = True
    cluster_id: str | None = None
    selecting: str | None = None  # id of the selecting verifier
    verdicts: Mapping[str, float | None] | None = None  # verifier id -> score
    runs: int = 0  # re-runs of the task that have a verdict
    passed: int = 0  # of these, passed by the selecting verifier

    @property
    def row_id(self) -> str:
        return content_id("row", "sft", self.source, self.task_id, self.parents, [dict(m) for m in self.messages])

    @property
    def verifier_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.verdicts or ()))

    @property
    def posterior(self) -> float | None:
        """P(true success) of a repair that both verifiers passed; None for the other sources."""
        return true_success(self.passed, self.runs) if self.source == "model" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """One row of a curriculum, as it is trained."""

    row_id: str
    source: str
    task_id: str
    cluster_id: str | None
    stage: int
    weight: float
    messages: str  # JSON
    input_ids: tuple[int, ...]
    labels: tuple[int, ...]
    parents: tuple[str, ...] = ()
    verifier_ids: tuple[str, ...] = ()
    posterior: float | None = None

    @property
    def trained_tokens(self) -> int:
        return n_trained(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """One candidate that is not trained on, and why: a key of `REASONS`."""

    row_id: str
    source: str
    task_id: str | None
    parents: tuple[str, ...]
    reason: str
    cluster_id: str | None = None
    verifier_ids: tuple[str, ...] = ()
    posterior: float | None = None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What training must not touch: the groups and prompts of every task outside the training split."""

    groups: frozenset[str]
    prompts: frozenset[str]

    @classmethod
    def of(cls, tasks: Collection[Task]) -> HeldOut:
        held = [task for task in tasks if task.split != "train"]
        return cls(frozenset(t.group_id for t in held), frozenset(_asked(_messages(t.prompt)) for t in held))


def choose(
    candidates: Sequence[Candidate], held_out: HeldOut, config: Curate, encode: Encode, decode: Decode
) -> tuple[list[SftRow], list[Dropped]]:
    """The rows in training order, and everything else with its reason, by row id.

    Errors: ValidationError where the encoder masks every single row wrongly: then the chat template is at fault.
    """
    rows: list[SftRow] = []
    dropped: list[Dropped] = []
    for candidate in candidates:
        result: SftRow | str | None = refusal(candidate, held_out, config.min_posterior)
        result = result or _encoded(candidate, config.max_length, encode, decode)
        if isinstance(result, SftRow):
            rows.append(result)
        else:
            dropped.append(_dropped(candidate, result))
    mismatches = [d.row_id for d in dropped if d.reason == "mask_mismatch"]
    if mismatches and not rows:
        sentence = f"the tokenizer masks every row wrongly, {mismatches[0]} for one: mend its chat template"
        raise ValidationError(sentence)
    for limited in (_distinct, _share):
        rows, refused = limited(rows, config)
        dropped += [_dropped(row, reason) for row, reason in refused]
    of_task = Counter(row.task_id for row in rows)
    weighted = [replace(row, weight=task_weight(of_task[row.task_id])) for row in rows]
    return in_order(weighted, config.seed), sorted(dropped, key=lambda d: (d.row_id, d.reason))


def refusal(candidate: Candidate, held_out: HeldOut, min_posterior: float) -> str | None:
    """The first reason against a candidate, from what is known before it is tokenised; None: it may train."""
    task = candidate.task
    if task is None:
        return "no_task"
    # The group first: a leak is worth its own name even where the split would refuse the row as well.
    if task.group_id in held_out.groups:
        return "eval_group" if task.split == "train" else "not_train_split"
    if task.split != "train":
        return "not_train_split"
    roles = [m["role"] for m in candidate.messages]
    if not candidate.complete or len(roles) < 2 or roles[-1] != "assistant":
        return "incomplete"
    if any(role not in ("system", "user", "assistant") for role in roles) or _calls(candidate.messages):
        return "unsupported_roles"
    if _asked(candidate.messages) in held_out.prompts:
        return "eval_prompt"
    return _unverified(candidate, min_posterior) if candidate.source == "model" else None


def _unverified(candidate: Candidate, min_posterior: float) -> str | None:
    verdicts = candidate.verdicts or {}
    selected = verdicts.get(candidate.selecting or "")
    others = [score for verifier, score in verdicts.items() if verifier != candidate.selecting]
    if selected is None:
        return "unverified"
    if selected < 1.0:
        return "failed_verifier"
    if any(score is not None and score < 1.0 for score in others):
        return "second_verifier"
    if not others or None in others:
        return "unverified"
    return None if (candidate.posterior or 0.0) >= min_posterior else "low_posterior"


def _encoded(candidate: Candidate, max_length: int, encode: Encode, decode: Decode) -> SftRow | str:
    """The tokenised row, or the reason why there is none."""
    input_ids, labels = encode(candidate.messages)
    if len(input_ids) > max_length:
        return "too_long"
    if not n_trained(labels) or not str(candidate.messages[-1].get("content") or "").strip():
        return "nothing_to_learn"
    if mask_problem(candidate.messages, input_ids, labels, decode):
        return "mask_mismatch"
    return SftRow(
        row_id=candidate.row_id,
        source=candidate.source,
        task_id=str(candidate.task_id),
        cluster_id=candidate.cluster_id,
        stage=(candidate.task.stage or 0) if candidate.task else 0,
        weight=1.0,
        messages=canonical_json([dict(m) for m in candidate.messages]),
        input_ids=tuple(input_ids),
        labels=tuple(labels),
        parents=candidate.parents,
        verifier_ids=candidate.verifier_ids,
        posterior=candidate.posterior,
    )


def _distinct(rows: Sequence[SftRow], config: Curate) -> tuple[list[SftRow], list[tuple[SftRow, str]]]:
    """At most `[curate] per_task` different rows a task: repairs, then successes, then experts; the shortest first."""
    kept: list[SftRow] = []
    refused: list[tuple[SftRow, str]] = []
    seen: set[str] = set()
    of_task: Counter[str] = Counter()
    preference = ("model", "real", "expert")
    for row in sorted(rows, key=lambda r: (preference.index(r.source), r.trained_tokens, r.row_id)):
        if row.messages in seen:
            refused.append((row, "duplicate"))
        elif of_task[row.task_id] >= config.per_task:
            refused.append((row, "per_task"))
        else:
            kept.append(row)
            seen.add(row.messages)
            of_task[row.task_id] += 1
    return kept, refused


def _share(rows: Sequence[SftRow], config: Curate) -> tuple[list[SftRow], list[tuple[SftRow, str]]]:
    """Real rows up to their share, drawn by lot; all others."""
    real = sorted((r for r in rows if r.source == "real"), key=lambda r: (lot(config.seed, "real", r.row_id), r.row_id))
    others = [row for row in rows if row.source != "real"]
    limit = most_real(len(others), config.real_share)
    return others + real[:limit], [(row, "real_share") for row in real[len(real) if limit is None else limit :]]


def _dropped(item: Candidate | SftRow, reason: str) -> Dropped:
    return Dropped(
        row_id=item.row_id,
        source=item.source,
        task_id=item.task_id,
        parents=item.parents,
        reason=reason,
        cluster_id=item.cluster_id,
        verifier_ids=item.verifier_ids,
        posterior=item.posterior,
    )


def _messages(prompt: str) -> list[Mapping[str, Any]]:
    messages: list[Mapping[str, Any]] = json.loads(prompt)
    return messages


def _asked(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the users asked, case and spacing aside: the key by which an evaluation prompt is recognised."""
    asked = " ".join(str(m.get("content") or "") for m in messages if m["role"] == "user")
    return " ".join(asked.split()).casefold()


def _calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(m.get("tool_calls") for m in messages)
