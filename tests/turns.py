"""Scripted turns: the real pipeline, git, DVC and lake with the double in place of a model, in seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scripted import SCRIPTED

from flows.turn import order
from flywheel.config import Config
from flywheel.init import init
from flywheel.stages import STAGES
from flywheel.traffic import serve_traffic
from flywheel.turn import open_turn
from flywheel.workspace import Workspace

AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
IDS = ("turn", "curriculum", "run", "candidate", "incumbent", "decision", "version", "verdict")
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Turned:
    """A workspace after its first turn, and what the turn returned. Copy the workspace before you change it."""

    workspace: Workspace
    result: dict[str, Any]


def made(folder: Path, config: Config = SCRIPTED) -> Workspace:
    """A workspace whose policy in production has answered the task set `online`; nothing is ingested yet."""
    init(folder, config=config)
    workspace = Workspace.find(folder)
    serve_traffic(workspace, config, taskset="online", at=AT)
    return workspace


def turned(workspace: Workspace, stages: dict[str, Callable[..., Any]] = STAGES) -> dict[str, Any]:
    """One turn in this process, or the rest of an interrupted one."""
    return order(open_turn(workspace.root, stages))


def environment() -> dict[str, str]:
    """The variables of a shell in which the environment is activated."""
    return {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command of the environment (flywheel, dvc…) as a person runs it, whatever it exits with."""
    return subprocess.run(
        [*command], cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=600
    )


def flywheel(*arguments: str | Path, cwd: Path | None = None, exits: int = 0) -> dict[str, Any]:
    """The one JSON object that `flywheel … --json` ends with. Fails on another exit code or on a traceback."""
    done = run("flywheel", *map(str, arguments), "--json", cwd=cwd)
    assert done.returncode == exits, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return last_object(done.stdout)


def last_object(stdout: str) -> dict[str, Any]:
    """The JSON object in the last line; no other line is one."""
    lines = stdout.splitlines()
    assert not any(line.startswith("{") for line in lines[:-1]), stdout
    found = json.loads(lines[-1], parse_constant=_refuse)
    assert isinstance(found, dict)
    return found


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """What a turn says, without times and places; of ingest a restart says only what is left to do."""
    results = {stage: said for stage, said in result["results"].items() if stage != "ingest"}
    stripped: dict[str, Any] = _without_times({**result, "results": results})
    return stripped


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_times(v) for k, v in value.items() if k not in ("seconds", "folder", "page", "made")}
    return [_without_times(item) for item in value] if isinstance(value, list | tuple) else value


def artefacts(workspace: Workspace, folders: Sequence[str] = ("data", "models")) -> dict[str, bytes]:
    """The bytes of every artefact's manifest below the workspace, by path; they hold the hashes of all other files."""
    found = (path for folder in folders for path in (workspace.root / folder).rglob("manifest.json"))
    return {path.relative_to(workspace.root).as_posix(): path.read_bytes() for path in sorted(found)}


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
