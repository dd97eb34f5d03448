"""Rows for the lake's tests, and what its child processes run (importable, so that a fork server can hold it)."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from flywheel.records import Outcome, Step, ToolCall, Trajectory
from flywheel.store import lake_publish
from flywheel.store.lake import Lake
from flywheel.workspace import CONFIG_NAME, Workspace

STEPS = 3


def make_workspace(root: Path) -> Workspace:
    """An empty workspace."""
    root.mkdir(parents=True, exist_ok=True)
    (root / CONFIG_NAME).touch()
    return Workspace(root)


def rows_of(*names: str, content: str = "v1", steps: int = STEPS) -> dict[str, list[Any]]:
    """One trajectory a name, each with `steps` steps, a call at every odd step, and one outcome."""
    tables: dict[str, list[Any]] = {"trajectory": [], "step": [], "tool_call": [], "outcome": []}
    for ix, name in enumerate(names):
        start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=-ix)
        tables["trajectory"].append(
            Trajectory(
                trajectory_id=name,
                content_sha256=f"{name} {content}",
                source_id="s",
                source_record_ix=ix,
                format="test",
                n_steps=steps,
                content_complete=True,
                started_at=start,
            )
        )
        for at in range(steps):
            tables["step"].append(
                Step(
                    trajectory_id=name, step_ix=at, role="assistant", content=f"{content} {at}", content_state="present"
                )
            )
            if at % 2:
                tables["tool_call"].append(
                    ToolCall(
                        trajectory_id=name, step_ix=at, call_ix=0, name="search", args_state="ok", result_state="error"
                    )
                )
        tables["outcome"].append(
            Outcome(outcome_id=f"o-{name}", trajectory_id=name, name="n", value_type="null", source_kind="system")
        )
    return tables


def batches(n: int, size: int = 4) -> dict[str, dict[str, list[Any]]]:
    """n batches of `size` trajectories, no two alike."""
    return {f"batch-{b}": rows_of(*(f"t-{b}-{i}" for i in range(size))) for b in range(n)}


def counts(lake: Lake, snapshot: str | None = None) -> dict[str, int]:
    """Rows of each table that has some, whole history, doubles included."""
    with lake.connect(snapshot) as con:
        names = ("trajectory_all", "step_all", "tool_call_all", "outcome", "batch_all", "snapshot")
        return {name: con.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in names}


# --- What child processes run ------------------------------------------------------------------------------


def publish_until_killed(
    root: Path, batch_id: str, rows: Mapping[str, list[Any]], where: str, nth: int, after: bool
) -> None:
    """Publish a batch, and die by SIGKILL before (or after) the nth call of lake_publish's function `where`."""
    real: Callable[..., Any] = getattr(lake_publish, where)
    calls = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if calls == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(lake_publish, where, deadly)
    Lake(Workspace(root)).publish(batch_id, rows)


def publish_all(root: Path, todo: Mapping[str, Mapping[str, list[Any]]], seed: int, gate: Any) -> None:
    """Publish the batches in an order of one's own, once the gate is open."""
    order = sorted(todo)
    random.Random(seed).shuffle(order)
    gate.wait()
    for batch_id in order:
        Lake(Workspace(root)).publish(batch_id, todo[batch_id])


def read_the_file(root: Path, answers: Any, stop: Any) -> None:
    """Open lake.duckdb again and again with nothing but duckdb; send (trajectories, steps) of each look."""
    while not stop.is_set():
        with duckdb.connect(str(root / "data" / "lake.duckdb"), read_only=True) as con:
            sql = "SELECT (SELECT count(*) FROM trajectory), (SELECT count(*) FROM step)"
            answers.put(con.sql(sql).fetchall()[0])
        time.sleep(0.01)
