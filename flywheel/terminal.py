"""What a person in a terminal sees: a bar while something runs, then what it did.

Everything but the result goes to stderr, so `--json` leaves exactly one JSON object as the last line of stdout.
Where stderr is no terminal (CI, cron) a line every few seconds takes the place of the bar.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from types import TracebackType
from typing import Any

SECONDS_BETWEEN_LINES = 10.0


class TerminalProgress:
    """A `Progress` as a rich bar, or as plain lines where there is no terminal. Use as a context manager."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._bar: Any = None
        self._task: Any = None
        self._started = self._last = time.monotonic()

    def __enter__(self) -> TerminalProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int, what: str) -> None:
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(f"{self._stage}: {what}", total=total)
            self._bar.update(self._task, completed=done, total=total, description=f"{self._stage}: {what}")
            return
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            sys.stderr.write(f"{self._stage}: {what} {done}/{total} ({now - self._started:.0f} s)\n")


def show(result: Any, as_json: bool) -> None:
    """Print a verb's result: one JSON line, or `name  value` lines for people."""
    values: Mapping[str, Any] = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
    if as_json:
        sys.stdout.write(json.dumps(_for_json(values), default=str, allow_nan=False) + "\n")
        return
    for name, value in values.items():
        if value is None or value == {} or value == [] or value == ():
            continue
        text = json.dumps(value, default=str) if isinstance(value, dict | list | tuple) else str(value)
        sys.stdout.write(f"{name:<14} {text}\n")


def _for_json(value: Any) -> Any:
    """What JSON has no word for becomes text: keys that are no strings, NaN and the infinities."""
    if isinstance(value, Mapping):
        return {str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def show_table(title: str, rows: list[dict[str, Any]], limit: int | None = None) -> None:
    """A table for people; at most `limit` rows, and it says how many were left out."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for name in rows[0] if rows else ["(no rows)"]:
        table.add_column(escape(str(name)), overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(escape("" if v is None else str(v)) for v in row.values()))
    console = Console()
    console.print(table)
    if limit is not None and len(rows) > limit:
        console.print(f"{len(rows) - limit} more rows; --limit 0 shows all")
