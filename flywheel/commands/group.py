"""The command itself, the two options every verb has, and how a verb is run: with a bar, its result shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flywheel import __version__

PathArgument = click.Path(path_type=Path)


def common(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The two options every verb has. Given before the verb they are the default for it."""
    verb = click.option("--root", type=PathArgument, help="Workspace (default: the nearest flywheel.toml).")(verb)
    return click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")(verb)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", type=PathArgument, help="Workspace (default: the nearest flywheel.toml).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context, root: Path | None, as_json: bool) -> None:
    """Turn failed agent trajectories into the next, measurably better checkpoint."""
    context.default_map = {
        name: {"root": root, "as_json": as_json, **{s: {"root": root, "as_json": as_json} for s in subcommands(c)}}
        for name, c in cli.commands.items()
    }


def subcommands(command: click.Command) -> list[str]:
    """Names of the verbs inside a group (`lake compact`, `tasksets build`)."""
    return list(command.commands) if isinstance(command, click.Group) else []


def run_stage(stage: str, root: Path | None, as_json: bool, **ids: Any) -> None:
    """One stage of the turn, by itself, with a bar."""
    from flywheel.stages import STAGES
    from flywheel.terminal import TerminalProgress, show

    with TerminalProgress(stage) as progress:
        result = STAGES[stage](root, progress=progress, **ids)
    show(result, as_json)


def run_verb(name: str, root: Path | None, as_json: bool, **arguments: Any) -> Any:
    """One verb by itself: `flywheel/<name>.py` has a function of the same name."""
    from importlib import import_module

    from flywheel.stages import opened
    from flywheel.terminal import TerminalProgress, show

    workspace, config = opened(root)
    with TerminalProgress(name) as progress:
        result = getattr(import_module(f"flywheel.{name}"), name)(workspace, config, progress=progress, **arguments)
    show(result, as_json)
    return result
