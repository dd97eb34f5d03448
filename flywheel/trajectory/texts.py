"""All texts of some rows, column by column, so that they can be looked at together, and where each of them stands.

What is done with a text depends on its column: a new text column of a row is plain text, a new JSON column JSON, and
nothing is left out unless it is named in `_EXEMPT` (hashes of our own).

Not covered: the bytes of blobs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple

from flywheel.records import Blob, Outcome, Span, Step, ToolCall, Trajectory

_EXEMPT = {
    "trajectory_id", "parent_trajectory_id", "subagent_trajectory_id", "outcome_id",
    "content_sha256", "system_prompt_sha256", "tools_sha256", "sha256",
}  # fmt: skip
_IDENTIFIERS = {
    "native_id", "conversation_id", "session_id", "trace_id", "span_id", "parent_span_id", "tenant", "source_id",
    "native_target_id", "source_ref", "task_id", "continued_from", "call_id", "tool_call_id", "llm_call_id", "user_id",
}  # fmt: skip
_SAID, _SAID_AGAIN = ("content", "parts"), ("result_text", "result_parts")
"""The result of a call is the content of a step, mostly the same object: it is looked at once."""

Rule = Literal["text", "json", "identifier"]


class Cell(NamedTuple):
    """Where a text stands. `item`: which of several in one column."""

    row: Any
    column: str
    rule: Rule
    item: int | None = None


class _Column(NamedTuple):
    """A column of some rows; its texts stand together, from `first` on."""

    first: int
    rows: Sequence[Any]
    name: str
    rule: Rule
    item: int | None = None


@dataclass(slots=True)
class Texts:
    """`texts`, '' where a row has none. `cells` says where each stands."""

    texts: list[str] = field(default_factory=list)
    _columns: list[_Column] = field(default_factory=list)
    _again: dict[int, list[Cell]] = field(default_factory=dict)
    _said: dict[int, int] = field(default_factory=dict)  # by identity: which text

    def add(self, rows: Sequence[Any]) -> None:
        """The texts of rows of one table. Steps come before their calls."""
        if not rows:
            return
        get, columns = COLUMNS[type(rows[0])]
        for (name, rule, several), values in zip(columns, zip(*map(get, rows), strict=True), strict=True):
            if not any(values):
                continue
            if several:
                self._add_items(rows, name, rule, values)
                continue
            if name in _SAID_AGAIN:
                values = tuple(self._unless_said(Cell(r, name, rule), v) for r, v in zip(rows, values, strict=True))
            first = len(self.texts)
            self._columns.append(_Column(first, rows, name, rule))
            self.texts.extend([value or "" for value in values])
            if name in _SAID:
                self._said |= {id(value): first + ix for ix, value in enumerate(values) if value}

    def _add_items(self, rows: Sequence[Any], name: str, rule: Rule, values: Iterable[Any]) -> None:
        for row, value in zip(rows, values, strict=True):
            for item, text in enumerate(value or ()):
                self._columns.append(_Column(len(self.texts), (row,), name, rule, item))
                self.texts.append(text)

    def _unless_said(self, cell: Cell, value: str | None) -> str | None:
        said = self._said.get(id(value))
        if said is not None:
            self._again.setdefault(said, []).append(cell)
        return value if said is None else None

    def cells(self, ix: int) -> Iterator[Cell]:
        """Where a text stands; more than once if several columns hold the same object."""
        column = self._columns[bisect_right(self._columns, ix, key=itemgetter(0)) - 1]
        yield Cell(column.rows[ix - column.first], column.name, column.rule, column.item)
        yield from self._again.get(ix, ())


def _columns_of(row: type) -> Iterator[tuple[str, Rule, bool]]:
    """(column, rule, holds several) of the text columns. Read off the annotations, which are strings in records.py."""
    for column in fields(row):
        kind = str(column.type)
        is_own_source = column.name == "source_id" and row is not Outcome  # elsewhere it's a hash of bytes
        if column.name in _EXEMPT or is_own_source or not ("str" in kind or "Json" in kind):
            continue
        rule: Rule = "identifier" if column.name in _IDENTIFIERS else "json" if "Json" in kind else "text"
        yield column.name, rule, "tuple" in kind


def _getter_of(row: type) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[tuple[str, Rule, bool], ...]]:
    columns = tuple(_columns_of(row))
    return attrgetter(*(name for name, _, _ in columns)), columns


COLUMNS = {row: _getter_of(row) for row in (Trajectory, Step, ToolCall, Outcome, Blob, Span)}
"""By class: what gets the values of its text columns, and the columns."""
