"""Secrets and personal data out of everything that is stored: the one choke point between readers and the lake.

Equal values get equal placeholders in all trajectories of one session, so references survive (`placeholders.py`). Who
the user is becomes a keyed hash (`user-3f...`), the same in every trajectory of this workspace. Identifiers that hold
personal data likewise.

Every text column of every row passes through (`texts.py`). All texts of a trajectory are looked at together; only what
is suspected is looked at closely. The tokens of a text say what it said, so a step that lost something loses its token
ids and log-probabilities too.

Not covered: images and audio; what the patterns don't look for (`patterns.py`, `secret_patterns.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from flywheel.records import Blob, Fragment, Outcome, Step, ToolCall, Trajectory
from flywheel.trajectory.redactor import Redactor
from flywheel.trajectory.scan import TOKENS, Rules, Suspicion
from flywheel.trajectory.texts import Texts
from flywheel.trajectory.tokens import without_tokens

__all__ = ["Redacted", "Redactor", "redact_bytes", "redact_fragment", "redact_loose", "redact_outcomes"]

_SAID = {"content", "parts", "reasoning", "refusal", "raw"}
_TOKEN_COLUMNS = ("token_ids", "token_mask", "logprobs")
_TEXT_MIMES = ("text/", "application/json", "application/xml", "application/x-ndjson")
_NONE: Suspicion = {}

_Changes = dict[int, dict[str, Any]]
"""By the identity of a row: the columns that lost something."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A fragment that may be stored, and how many values of each kind it lost."""

    fragment: Fragment
    counts: Mapping[str, int]


def redact_fragment(fragment: Fragment, key: bytes, rules: Rules | None = None) -> Redacted:
    """Every text of every row of a trajectory, redacted with the placeholders of its session."""
    head = fragment.trajectory
    redactor = Redactor(key, session_of(head), rules)
    if not redactor.rules.enabled:
        return Redacted(fragment, {})
    if head.user_id is not None:
        redactor.user(head.user_id)
    tables: dict[str, Sequence[Any]] = {
        "trajectory": (head,), "steps": fragment.steps, "tool_calls": fragment.tool_calls,
        "outcomes": fragment.outcomes, "blobs": fragment.blobs, "spans": fragment.spans,
    }  # fmt: skip
    changes = _changes(tables.values(), redactor)
    if not changes:
        return Redacted(fragment, dict(redactor.counts))
    clean: dict[str, Any] = {
        name: tuple(replace(row, **changes[id(row)]) if id(row) in changes else row for row in rows)
        for name, rows in tables.items()
    }
    clean["trajectory"] = clean["trajectory"][0]
    return Redacted(replace(fragment, **clean), dict(redactor.counts))


def redact_outcomes(outcomes: Iterable[Outcome], key: bytes, rules: Rules | None = None) -> list[Outcome]:
    """Outcomes that came without their trajectory, with the placeholders of the session or trace that they name."""
    return redact_loose(outcomes, key, rules)[0]


def redact_loose(
    outcomes: Iterable[Outcome], key: bytes, rules: Rules | None = None
) -> tuple[list[Outcome], Mapping[str, int]]:
    """The same, and how many values of each kind they lost."""
    clean, counts = [], Counter[str]()
    for outcome in outcomes:
        redactor = Redactor(key, outcome.session_id or outcome.native_target_id or "", rules)
        changes = _changes([(outcome,)], redactor)
        clean.append(replace(outcome, **changes[id(outcome)]) if changes else outcome)
        counts += redactor.counts
    return clean, counts


def redact_bytes(data: bytes, encoding: str, key: bytes, rules: Rules | None = None) -> bytes:
    """Raw bytes of a refused record as UTF-8 that may be stored."""
    return Redactor(key, rules=rules).text(data.decode(encoding, "replace")).encode("utf-8", "replace")


def session_of(head: Trajectory) -> str:
    """What a trajectory shares its placeholders with: its session, conversation or trace; else itself."""
    return head.session_id or head.conversation_id or head.trace_id or head.native_id or head.trajectory_id


def _changes(tables: Iterable[Sequence[Any]], redactor: Redactor) -> _Changes:
    if not redactor.rules.enabled:
        return {}
    texts, changes, tables = Texts(), _Changes(), [*tables]
    for rows in tables:
        texts.add(rows)
    suspects: dict[int, Suspicion] = redactor.rules.suspects(texts.texts)
    concerned = redactor.concerned(texts.texts)
    for ix in sorted(suspects.keys() | concerned):
        text, suspicion = texts.texts[ix], suspects.get(ix, _NONE)
        for row, column, rule, item in texts.cells(ix):
            clean = redactor.apply(rule, text, suspicion)
            if clean != text:
                _set(changes, row, column, item, clean)
    for blob in (row for rows in tables for row in rows if isinstance(row, Blob)):
        if isinstance(blob.data, bytes) and _is_text(blob.mime):
            data = redactor.text(blob.data.decode("utf-8", "replace")).encode()
            if data != blob.data:
                changes.setdefault(id(blob), {})["data"] = data
    if changes:
        _drop_tokens(tables, changes, redactor)
        for ix in (ix for ix, suspicion in suspects.items() if TOKENS in suspicion):
            for row, column, rule, _ in texts.cells(ix):
                text = changes.get(id(row), {}).get(column) or getattr(row, column)
                if rule == "json" and (clean := without_tokens(text)) != text:
                    redactor.counts["TOKEN_IDS"] += 1
                    _set(changes, row, column, None, clean)
    return changes


def _set(changes: _Changes, row: Any, column: str, item: int | None, clean: str) -> None:
    columns = changes.setdefault(id(row), {})
    if item is None:
        columns[column] = clean
        return
    items = columns.get(column) or getattr(row, column)
    columns[column] = (*items[:item], clean, *items[item + 1 :])


def _drop_tokens(tables: Iterable[Sequence[Any]], changes: _Changes, redactor: Redactor) -> None:
    """Token ids and log-probabilities of the steps that said, or called with, what was taken out."""
    rows = [row for table in tables for row in table]
    called = {row.step_ix for row in rows if isinstance(row, ToolCall) and id(row) in changes}
    for step in (row for row in rows if isinstance(row, Step)):
        if step.step_ix not in called and not _SAID & changes.get(id(step), {}).keys():
            continue
        held = [name for name in _TOKEN_COLUMNS if getattr(step, name) is not None]
        if held:
            flags = dict.fromkeys((*(step.quality_flags or ()), "tokens_redacted"))
            changes.setdefault(id(step), {}).update({**dict.fromkeys(held), "quality_flags": tuple(flags)})
            redactor.counts["TOKEN_IDS"] += 1


def _is_text(mime: str | None) -> bool:
    return mime is None or mime.startswith(_TEXT_MIMES) or mime.endswith(("+json", "+xml"))
