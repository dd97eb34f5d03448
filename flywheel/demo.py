"""The demo: the whole loop on one machine, with a real model, in about a quarter of an hour.

    flywheel demo [--traces FILE]... [--traffic]

Makes the workspace `./demo` if there is none, lets the policy in production answer a stream of support messages (its
failures are real), then runs one turn under Prefect and prints what came of it. Nothing is scripted: the gain is
whatever it is, and an honest non-promotion ends with exit code 0 and its reasons. A second call without anything new
is a quick no-op; `--traffic` first lands new messages, answered by whatever is in production by then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flywheel.config import load_config
from flywheel.stages import STAGES
from flywheel.terminal import TerminalProgress
from flywheel.workspace import Workspace

# Prefect's own settings: quiet, without telemetry, and patient enough for a busy laptop.
PREFECT_ENVIRONMENT = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}


def demo(
    folder: Path, *, traces: Sequence[Path] = (), traffic: bool = False, to_stderr: bool = False
) -> dict[str, Any]:
    """Make the workspace if needed, land traffic, run one turn, print the outcome. Returns the turn's result."""
    started = time.monotonic()
    workspace = prepare(folder)
    land(workspace, traces, traffic)
    result = run_turn(workspace.root)
    from flywheel.outcome import print_outcome

    print_outcome(workspace, result, time.monotonic() - started, to_stderr)
    return result


def prepare(folder: Path) -> Workspace:
    """The demo's workspace, made by `flywheel init` when it isn't there."""
    from flywheel.init import init

    say(f"workspace {folder}: git, DVC, task sets, base policy")
    with TerminalProgress("init") as progress:
        init(folder, progress=progress)
    return Workspace.find(folder)


def land(workspace: Workspace, traces: Sequence[Path], traffic: bool) -> None:
    """Traces into the landing folder: the policy's own traffic (at first, or when asked), and a person's files."""
    from flywheel.store.tasks import taskset_names
    from flywheel.tasksets import build
    from flywheel.traffic import has_landed, serve_traffic

    config = load_config(workspace.config_file)
    rounds = [name for name in taskset_names(workspace) if name.startswith("online")]
    taskset = "online" if len(rounds) == 1 else f"online-{len(rounds)}"
    if traffic and has_landed(workspace, config, taskset):
        taskset = f"online-{len(rounds) + 1}"
        build(
            workspace, config, name=taskset, split="train", n=config.tasks.train, seed=config.tasks.seed + len(rounds)
        )
    if not has_landed(workspace, config, taskset):
        say(f"the policy in production answers {taskset}: {config.tasks.train} support messages")
        with TerminalProgress("traffic") as progress:
            served = serve_traffic(workspace, config, taskset=taskset, at=datetime.now(UTC), progress=progress)
        say(f"{served.failed} of {served.requests} answers failed the application's own check")
    if traces:
        from flywheel.ingest import land as land_files

        for sentence in land_files(workspace, config, traces).refused:
            say(sentence)


def run_turn(root: str | Path | None, plain: bool = False) -> dict[str, Any]:
    """One turn: under Prefect (a temporary server unless PREFECT_API_URL names one), or `plain` in this process."""
    for name, value in PREFECT_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from flows.turn import order, turn
    from flywheel.turn import open_turn

    workspace = Workspace.find(root)
    if not plain:
        result: dict[str, Any] = turn(root=str(workspace.root))
        return result

    def with_bar(stage: str) -> Any:
        def run(**arguments: Any) -> dict[str, Any]:
            with TerminalProgress(stage) as progress:
                return STAGES[stage](progress=progress, **arguments)

        return run

    return order(open_turn(workspace.root, {stage: with_bar(stage) for stage in STAGES}))


def say(sentence: str) -> None:
    """One line for the person who waits; stdout stays free for the result."""
    sys.stderr.write(f"demo: {sentence}\n")
