"""How a long step says how far it is: one function type, so that verbs know nothing of terminals or of Prefect.

The command line passes a `rich` bar, a flow passes a Prefect progress artifact, tests pass `silent`.
"""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""`progress(done, total, what)`: `done` of `total` units of `what`."""


def silent(done: int, total: int, what: str) -> None:
    """Say nothing."""
