"""What the crash tests do: watch a turn from outside, kill it -9 in a given verb, and say what is left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turns import BIN, artefacts, environment

from flywheel.records import canonical_json
from flywheel.store import artifacts
from flywheel.store.git import Git
from flywheel.store.lake import Lake
from flywheel.store.lake_views import base
from flywheel.store.registry import Registry
from flywheel.store.tables import TABLES
from flywheel.workspace import Workspace

POLL_S = 0.004
PATIENCE_S = 180.0
# Not the same in two undisturbed turns either: the moment something happened, and a commit's id, which holds one.
OF_THE_MOMENT = ("created_at", "ingested_at", "happened_at", "git_rev")


def done(workspace: Workspace) -> dict[str, Any]:
    """The results of the stages that the turn in progress has finished."""
    try:
        results: dict[str, Any] = json.loads(workspace.current_turn.read_bytes())["results"]
    except FileNotFoundError:
        return {}
    return results


def any_in(folder: Path, pattern: str) -> bool:
    return next(folder.glob(pattern), None) is not None


# The first thing that can be seen from outside once a verb is at work, in the order of the loop.
SIGNS: dict[str, Callable[[Workspace], bool]] = {
    "ingest": lambda w: w.current_turn.is_file(),
    "validate": lambda w: any_in(w.staging, "batch-*/manifest.json") or any_in(w.data, "validation/batch-*"),
    "triage": lambda w: "ingest" in done(w),
    "repair": lambda w: any_in(w.repairs, "repair-*/*"),
    "curate": lambda w: "repair" in done(w),
    "train": lambda w: "curate" in done(w),
    "evaluate": lambda w: "train" in done(w),
    "gate": lambda w: "evaluate" in done(w),
    "promote": lambda w: (
        any_in(w.lake, "decision/_delta_log/*.json") and not (w.lake / "publishing.json").exists() and SIGNS["gate"](w)
    ),
    "report": lambda w: "promote" in done(w),
}


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: aimed at which verb, how long after its first sign, and which verb it hit (None: it came too late)."""

    aimed: str
    after_s: float
    hit: str | None


def kill_in(workspace: Workspace, verb: str, after_s: float) -> Kill:
    """Go on with the turn by the command; SIGKILL it `after_s` seconds after the first sign of that verb."""
    with subprocess.Popen(
        [str(BIN / "flywheel"), "turn", "--plain", "--json", "--root", str(workspace.root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as child:
        deadline = time.monotonic() + PATIENCE_S
        while not SIGNS[verb](workspace):
            assert time.monotonic() < deadline, f"no sign of {verb}"
            if child.poll() is not None:
                break
            time.sleep(POLL_S)
        time.sleep(after_s)
        child.kill()
        assert child.stderr is not None
        said = child.stderr.read().decode()
    assert child.returncode in (-signal.SIGKILL, 0), said
    return Kill(verb, after_s, interrupted(workspace) if child.returncode else None)


def interrupted(workspace: Workspace) -> str:
    """The verb that a killed turn was in."""
    return [verb for verb, seen in SIGNS.items() if seen(workspace)][-1]


def remains(workspace: Workspace) -> dict[str, Any]:
    """Everything that has to be the same whatever happened on the way: artefacts, files, lake, versions, git."""
    for manifest in artefacts(workspace):
        artifacts.load((workspace.root / manifest).parent, verify=True)
    git = Git(workspace.root)
    head = Lake(workspace).head()
    return {
        "artefacts": artefacts(workspace),
        "files": files(workspace),
        "snapshot": head and head.snapshot_id,
        "rows": {table: rows(workspace, table) for table in TABLES},
        "versions": {v.version: (v.stages, v.entry) for v in Registry(workspace).versions()},
        "tags": git.run("tag").split(),
        "commits": git.run("log", "--format=%s").splitlines(),
        "changes": git.run("status", "--porcelain"),
    }


def files(workspace: Workspace) -> list[str]:
    """Every file of the workspace by name, except inside stores that name files at random (lake, git, DVC).

    Also without the drafts of a killed writer, which nobody reads and `flywheel lake vacuum` removes after a day.
    """
    stores = (workspace.lake, workspace.root / ".git", workspace.root / ".dvc", workspace.root / ".flywheel")
    drafts = (*workspace.staging.glob(".*"), *workspace.root.rglob(".*.tmp"))
    left_out = (*stores, *drafts)
    found = (path for path in workspace.root.rglob("*") if not any(path.is_relative_to(place) for place in left_out))
    return sorted(path.relative_to(workspace.root).as_posix() for path in found)


def rows(workspace: Workspace, table: str) -> list[str]:
    """All rows of a table, history included, as sorted lines of JSON without what is of the moment."""
    names = [name for name in TABLES[table].schema.names if name not in OF_THE_MOMENT]
    columns = ", ".join(f'"{name}"' for name in names)
    found = Lake(workspace).query(f"select {columns} from {base(table)}")
    return sorted(canonical_json({name: str(value) for name, value in row.items()}) for row in found)
