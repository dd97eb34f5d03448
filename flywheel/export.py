"""Export: trajectories of the lake as a file that other tools read, and an account of what that file can't hold.

    flywheel export --format openai_chat|atif -o FILE [--where SQL | --ids ID...] [--report FILE] [--snapshot ID]

One line a trajectory, in the order of their ids, so the same snapshot gives the same bytes. What is exported is what
the lake holds: redacted, with the outcomes that have joined since, media and long texts in their place. Losses are
counted by kind over all trajectories, and with `--report` for each. The file appears whole or not at all.

Not covered: curricula (`curate` writes those).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import astuple

from flywheel.config import Config
from flywheel.errors import ConfigError
from flywheel.formats.exporters import EXPORTERS, Exported, exported
from flywheel.progress import Progress, silent
from flywheel.records import Fragment, Outcome, Row, Step, ToolCall, Trajectory
from flywheel.store.lake import Lake
from flywheel.trajectory.outofline import internalise
from flywheel.workspace import Workspace

AT_ONCE = 200  # trajectories held in memory
_REFERENCE = re.compile(r'blob(?: |":")([0-9a-f]{64})')
_AnyRow = TypeVar("_AnyRow", bound=Row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """What was written, and what could not be."""

    format: str
    file: str
    trajectories: int
    lossless: int  # of them, those of which the file holds everything
    bytes: int
    losses: dict[str, int]  # by kind, most frequent first
    report: str | None


def export(
    workspace: Workspace,
    config: Config,
    *,
    format_name: str,
    out: Path,
    where: str | None = None,
    ids: Sequence[str] = (),
    report: Path | None = None,
    snapshot: str | None = None,
    progress: Progress = silent,
) -> ExportResult:
    """Write the trajectories with those ids, or that the SQL condition holds for, or all.

    Errors: ConfigError for a format that isn't written, an id that the lake doesn't have, a file that can't be written,
    or no trajectory at all; LakeError for SQL that fails.
    """
    if format_name not in EXPORTERS:
        raise ConfigError(f"no exporter for format {format_name!r}; use one of: {', '.join(sorted(EXPORTERS))}")
    if where is not None and ids:
        raise ConfigError("give either --where or --ids: a condition, or the ids themselves")
    lake = Lake(workspace)
    head = lake.snapshot(snapshot) if snapshot else lake.head()
    named = head.snapshot_id if head else None
    chosen = _chosen(lake, where, ids, named)
    lines = _exported(lake, chosen, format_name, named, progress)
    losses, lossless, size = _write(lines, out, report)
    return ExportResult(
        format=format_name,
        file=str(out),
        trajectories=len(chosen),
        lossless=lossless,
        bytes=size,
        losses=dict(losses.most_common()),
        report=None if report is None else str(report),
    )


def _chosen(lake: Lake, where: str | None, ids: Sequence[str], snapshot: str | None) -> list[str]:
    """The ids, sorted. With ids given, all of them must be there."""
    condition = "trajectory_id in (select unnest($1))" if ids else where or "true"
    sql = f"select trajectory_id from trajectory where {condition} order by 1"
    rows = lake.query(sql, [list(ids)] if ids else None, snapshot=snapshot)
    found = [row["trajectory_id"] for row in rows]
    missing = sorted(set(ids) - set(found))
    if missing:
        raise ConfigError(f"the lake has no trajectory {missing[0]!r} ({len(missing)} of {len(set(ids))} are unknown)")
    if not found:
        why = f"none that {where!r} holds for" if where else "none"
        raise ConfigError(f"no trajectory to export: the lake has {why}")
    return found


def _exported(
    lake: Lake, chosen: Sequence[str], format_name: str, snapshot: str | None, progress: Progress
) -> Iterator[tuple[str, Exported]]:
    for at in range(0, len(chosen), AT_ONCE):
        some = chosen[at : at + AT_ONCE]
        progress(at, len(chosen), "trajectories")
        heads = {row.trajectory_id: row for row in _rows(lake, Trajectory, some, "trajectory_id", snapshot)}
        steps = _by_id(_rows(lake, Step, some, "step_ix", snapshot))
        calls = _by_id(_rows(lake, ToolCall, some, "step_ix, call_ix", snapshot))
        outcomes = _by_id(_rows(lake, Outcome, some, "outcome_id", snapshot))
        for trajectory_id in some:
            fragment = Fragment(
                key=trajectory_id,
                record_ix=0,
                trajectory=heads[trajectory_id],
                steps=tuple(steps.get(trajectory_id, ())),
                tool_calls=tuple(calls.get(trajectory_id, ())),
                outcomes=tuple(outcomes.get(trajectory_id, ())),
            )
            yield trajectory_id, exported(_whole(lake, fragment, snapshot), format_name)
    progress(len(chosen), len(chosen), "trajectories")


def _whole(lake: Lake, fragment: Fragment, snapshot: str | None) -> Fragment:
    """The fragment with what was moved out of line back in its place; what was moved may hold references again."""
    held: dict[str, bytes] = {}
    while wanted := sorted(_references(fragment) - held.keys()):
        rows = lake.query(
            "select sha256, data from blob where sha256 in (select unnest($1))", [wanted], snapshot=snapshot
        )
        held |= dict.fromkeys(wanted, b"") | {row["sha256"]: row["data"] for row in rows}
        found = {sha256: data for sha256, data in held.items() if data}
        fragment = internalise(fragment, found)
    return fragment


def _references(fragment: Fragment) -> set[str]:
    rows = (fragment.trajectory, *fragment.steps, *fragment.tool_calls, *fragment.outcomes)
    texts = (value for row in rows for value in astuple(row) if isinstance(value, str) and "blob" in value)
    return {match[1] for text in texts for match in _REFERENCE.finditer(text)}


def _rows(lake: Lake, kind: type[_AnyRow], ids: Sequence[str], order: str, snapshot: str | None) -> list[_AnyRow]:
    """The rows of a table that belong to the trajectories, as they were when they were read."""
    table = getattr(kind, "TABLE")  # noqa: B009 - rows that are no table have none
    names = kind.__struct_fields__
    columns = ", ".join(f'"{name}"' for name in names)
    sql = f"select {columns} from {table} where trajectory_id in (select unnest($1)) order by trajectory_id, {order}"
    rows = lake.query(sql, [list(ids)], snapshot=snapshot)
    return [kind(**{name: _as_row(row[name]) for name in names}) for row in rows]


def _as_row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _by_id(rows: Sequence[_AnyRow]) -> Mapping[str, list[_AnyRow]]:
    found: dict[str, list[_AnyRow]] = {}
    for row in rows:
        found.setdefault(getattr(row, "trajectory_id"), []).append(row)  # noqa: B009 - not every row has one
    return found


def _write(lines: Iterator[tuple[str, Exported]], out: Path, report: Path | None) -> tuple[Counter[str], int, int]:
    """(losses by kind, trajectories without any, bytes). Both files appear when all of it is written."""
    losses: Counter[str] = Counter()
    lossless = size = 0
    drafts = {path: path.with_name(f"{path.name}.part") for path in (out, report) if path is not None}
    try:
        files = {path: draft.open("wb") for path, draft in drafts.items()}
    except OSError as error:
        raise ConfigError(f"can't write {error.filename}: {error.strerror}") from error
    try:
        for trajectory_id, made in lines:
            size += files[out].write(made.line.encode("utf-8", "surrogatepass") + b"\n")
            losses += made.losses
            lossless += not made.losses
            if report is not None:
                entry = {"trajectory_id": trajectory_id, "losses": dict(sorted(made.losses.items()))}
                files[report].write(json.dumps(entry).encode() + b"\n")
        for path, file in files.items():
            file.close()
            drafts[path].replace(path)
    finally:
        for file in files.values():
            file.close()
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    return losses, lossless, size
