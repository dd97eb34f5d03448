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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from flywheel.records import Blob, Fragment, Outcome, Step, ToolCall, Trajectory
from flywheel.trajectory.redactor import Redactor
from flywheel.trajectory.scan import TOKENS, Rules, Suspicion, built_in
from flywheel.trajectory.texts import Texts
from flywheel.trajectory.tokens import without_tokens

__all__ = ["Redaction", "Redactor"]

_SAID = {"content", "parts", "reasoning", "refusal", "raw"}
_TOKEN_COLUMNS = ("token_ids", "token_mask", "logprobs")
_TOKENS_OF = attrgetter(*_TOKEN_COLUMNS)
_TEXT_MIMES = ("text/", "application/json", "application/xml", "application/x-ndjson")
_NONE: Suspicion = {}

_Changes = dict[int, dict[str, Any]]
"""By the identity of a row: the columns that lost something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """The choke point: what it is set to, and one method for each thing that may be stored after it.

    Every method adds to `counts` how many values of each kind were replaced. `own` are (kind, RE2 expression) pairs;
    `enabled` False gives everything back as it came. It can be sent to other processes.
    """

    key: bytes
    own: tuple[tuple[str, str], ...] = ()
    enabled: bool = True

    def fragment(self, fragment: Fragment, counts: Counter[str] | None = None) -> Fragment:
        """Every text of every row of a trajectory, redacted with the placeholders of its session."""
        if not self.enabled:
            return fragment
        head = fragment.trajectory
        redactor = self.redactor(session_of(head))
        if head.user_id is not None:
            redactor.user(head.user_id)
        tables: dict[str, Sequence[Any]] = {
            "trajectory": (head,), "steps": fragment.steps, "tool_calls": fragment.tool_calls,
            "outcomes": fragment.outcomes, "blobs": fragment.blobs, "spans": fragment.spans,
        }  # fmt: skip
        changes = _changes(tables.values(), redactor)
        _add(counts, redactor)
        if not changes:
            return fragment
        clean: dict[str, Any] = {
            name: tuple(replace(row, **changes[id(row)]) if id(row) in changes else row for row in rows)
            for name, rows in tables.items()
        }
        clean["trajectory"] = clean["trajectory"][0]
        return replace(fragment, **clean)

    def outcomes(self, outcomes: Iterable[Outcome], counts: Counter[str] | None = None) -> list[Outcome]:
        """Outcomes that came without their trajectory, with the placeholders of the session or trace that they name."""
        clean = []
        for outcome in outcomes:
            redactor = self.redactor(outcome.session_id or outcome.native_target_id or "")
            changes = _changes([(outcome,)], redactor) if self.enabled else {}
            clean.append(replace(outcome, **changes[id(outcome)]) if changes else outcome)
            _add(counts, redactor)
        return clean

    def data(self, data: bytes, encoding: str, counts: Counter[str] | None = None) -> bytes:
        """Raw bytes of a refused record, which may be cut off anywhere, as UTF-8 that may be stored."""
        if not self.enabled:
            return data
        redactor = self.redactor()
        clean = redactor.ruin(data.decode(encoding, "replace"))
        _add(counts, redactor)
        return clean.encode("utf-8", "replace")

    def text(self, text: str, counts: Counter[str] | None = None) -> str:
        """A text of no session: the name of a file, a message."""
        redactor = self.redactor()
        clean = redactor.text(text) if self.enabled else text
        _add(counts, redactor)
        return clean

    def inputs(self) -> dict[str, Any]:
        """What a batch's id and manifest say of the settings: nothing where they are as usual."""
        settings: dict[str, Any] = {} if self.enabled else {"mode": "off"}
        settings |= {"patterns": dict(sorted(self.own))} if self.own and self.enabled else {}
        return {"redaction": settings} if settings else {}

    def redactor(self, session: str = "") -> Redactor:
        """What redacts the texts of one session."""
        return Redactor(self.key, session, _rules(self.own))


@cache
def _rules(own: tuple[tuple[str, str], ...]) -> Rules:
    return Rules(dict(own)) if own else built_in()


def _add(counts: Counter[str] | None, redactor: Redactor) -> None:
    if counts is not None:
        counts.update(redactor.counts)


def session_of(head: Trajectory) -> str:
    """What a trajectory shares its placeholders with: its session, conversation or trace; else itself."""
    return head.session_id or head.conversation_id or head.trace_id or head.native_id or head.trajectory_id


def _changes(tables: Iterable[Sequence[Any]], redactor: Redactor) -> _Changes:
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
    for blob in (row for rows in tables if rows and isinstance(rows[0], Blob) for row in rows):
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
    steps = [row for rows in tables if rows and isinstance(rows[0], Step) for row in rows]
    steps = [step for step in steps if any(column is not None for column in _TOKENS_OF(step))]
    if not steps:
        return
    calls = (row for rows in tables if rows and isinstance(rows[0], ToolCall) for row in rows)
    called = {call.step_ix for call in calls if id(call) in changes}
    for step in steps:
        if step.step_ix not in called and not _SAID & changes.get(id(step), {}).keys():
            continue
        held = [name for name in _TOKEN_COLUMNS if getattr(step, name) is not None]
        flags = dict.fromkeys((*(step.quality_flags or ()), "tokens_redacted"))
        changes.setdefault(id(step), {}).update({**dict.fromkeys(held), "quality_flags": tuple(flags)})
        redactor.counts["TOKEN_IDS"] += 1


def _is_text(mime: str | None) -> bool:
    return mime is None or mime.startswith(_TEXT_MIMES) or mime.endswith(("+json", "+xml"))
