"""Flywheel: failed agent trajectories in, the next measurably better checkpoint out.

Verbs live at this level (one file each), nouns in the folders below. `flywheel.connect()` opens the
lake for questions in SQL; everything else is reached through `flywheel <verb>` or a Prefect flow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

__version__ = "0.1.0"


def connect(root: str | Path | None = None, snapshot: str | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only DuckDB connection over one published snapshot of the lake (default: the newest)."""
    from flywheel.store.lake import Lake
    from flywheel.workspace import Workspace

    return Lake(Workspace.find(root)).connect(snapshot)
