"""Data docs: the verdict on one batch as a page that needs no network. Pure; everything is escaped, nothing is fetched.

Great Expectations' own pages pull scripts, styles and logos from five hosts; this renders its results without them.
Not covered: an index over batches (`from validation` in SQL lists all verdicts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flywheel.validate import Finding

WORDS = {"accepted": "accepted and published", "failed": "failed: it stays staged", "forced": "failed, but forced"}


def render(batch_id: str, state: str, reason: str | None, tables: Mapping[str, tuple[int, Sequence[Finding]]]) -> str:
    """The page of one batch. `tables`: by table, the number of rows judged and what each check found."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("flywheel"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template("validation.html").render(
        batch=batch_id,
        state=state,
        verdict=WORDS[state],
        reason=reason if state == "forced" else None,
        tables=tables,
        broken=[
            (table, finding) for table, (_, findings) in tables.items() for finding in findings if not finding.success
        ],
    )
