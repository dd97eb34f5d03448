"""The verbs around the loop: turns, questions, versions, serving, upkeep. What they do is in `flywheel/<verb>.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flywheel.commands.group import cli, common, run_verb

if TYPE_CHECKING:
    from flywheel.maintain import Upkeep


@cli.command()
@common
@click.argument("version")
def rollback(root: Path | None, as_json: bool, version: str) -> None:
    """Put an earlier version back into production."""
    run_verb("rollback", root, as_json, version=version)


@cli.command()
@common
def history(root: Path | None, as_json: bool) -> None:
    """Versions, stages and when they changed hands."""
    run_verb("history", root, as_json)


@cli.command()
@common
def report(root: Path | None, as_json: bool) -> None:
    """Write the page that says what the last turn did."""
    run_verb("report", root, as_json)


@cli.command()
@common
@click.option("--plain", is_flag=True, help="Run the stages in this process, without Prefect.")
def turn(root: Path | None, as_json: bool, plain: bool) -> None:
    """One whole turn, in order. Run it again after a crash: it goes on where it stopped."""
    from flywheel.demo import run_turn
    from flywheel.terminal import show

    result = run_turn(root, plain=plain)
    show(result if as_json else {name: value for name, value in result.items() if name != "results"}, as_json)


@cli.command()
@common
@click.option("--traces", multiple=True, type=click.Path(path_type=Path, exists=True), help="Land these files too.")
@click.option("--traffic", is_flag=True, help="First land new traffic served by the policy in production.")
def demo(root: Path | None, as_json: bool, traces: tuple[Path, ...], traffic: bool) -> None:
    """The whole loop on this machine: a real model fails, is repaired, trained, judged, and perhaps promoted."""
    from flywheel.demo import demo as verb
    from flywheel.terminal import show

    result = verb(root or Path("demo"), traces=traces, traffic=traffic, to_stderr=as_json)
    if as_json:
        show(result, as_json)


@cli.command()
@common
@click.argument("query")
@click.option("--snapshot", help="Ask an older snapshot (default: the newest).")
@click.option("--limit", default=50, show_default=True, help="Rows shown to people; 0 shows all.")
def sql(root: Path | None, as_json: bool, query: str, snapshot: str | None, limit: int) -> None:
    """Ask the lake: flywheel sql "from failures_by_tool"."""
    from flywheel.store.lake import Lake
    from flywheel.terminal import show, show_table
    from flywheel.workspace import Workspace

    rows = Lake(Workspace.find(root)).query(query, snapshot=snapshot)
    if as_json:
        show({"rows": rows, "n": len(rows)}, as_json)
    else:
        show_table("", rows, limit or None)


@cli.command()
@common
@click.argument("id_")
def show(root: Path | None, as_json: bool, id_: str) -> None:
    """Where an id comes from and what came of it: trace, failure, rollout, curriculum, run, decision, version."""
    run_verb("show", root, as_json, id_=id_)


SNAPSHOTS = """
    SELECT s.snapshot_id, s.created_at, s.state, b.n_trajectories AS added, b.reason, s.batches[1] AS batch
    FROM snapshot s LEFT JOIN batch b ON b.batch_id = s.batches[1] ORDER BY s.created_at DESC, s.snapshot_id"""


@cli.group()
def lake() -> None:
    """Look after the lake's files."""


@lake.command()
@common
def snapshots(root: Path | None, as_json: bool) -> None:
    """Every published state, newest first; `flywheel sql --snapshot ID` asks an older one."""
    from flywheel.store.lake import Lake
    from flywheel.terminal import show as show_result
    from flywheel.terminal import show_table
    from flywheel.workspace import Workspace

    rows = Lake(Workspace.find(root)).query(SNAPSHOTS)
    if as_json:
        show_result({"snapshots": rows, "n": len(rows)}, as_json)
    else:
        show_table("", rows)


@lake.command()
@common
def compact(root: Path | None, as_json: bool) -> None:
    """Rewrite many small Parquet files as few."""
    run_maintenance("compact", root, as_json)


@lake.command()
@common
def vacuum(root: Path | None, as_json: bool) -> None:
    """Delete files that no snapshot names."""
    run_maintenance("vacuum", root, as_json)


@lake.command()
@common
def verify(root: Path | None, as_json: bool) -> None:
    """Check that every snapshot's files are there and no key is doubled; exit 1 if not."""
    run_maintenance("verify", root, as_json)


@lake.command()
@common
@click.option("--user", required=True, help="The application's own id of the user; the lake knows only its keyed hash.")
@click.option("--dry-run", is_flag=True, help="Say what would go, change nothing.")
def erase(root: Path | None, as_json: bool, user: str, dry_run: bool) -> None:
    """Erase what a user said from every table version, landing object, staged batch and curriculum."""
    from flywheel.erase import erase as verb
    from flywheel.stages import opened
    from flywheel.terminal import TerminalProgress
    from flywheel.terminal import show as show_result

    workspace, config = opened(root)
    with TerminalProgress("erase") as progress:
        show_result(verb(workspace, config, user=user, dry_run=dry_run, progress=progress), as_json)


def run_maintenance(name: Upkeep, root: Path | None, as_json: bool) -> None:
    """One function of store/lake_maintain.py on this workspace's lake."""
    from flywheel.maintain import maintain
    from flywheel.terminal import show as show_result
    from flywheel.workspace import Workspace

    show_result(maintain(Workspace.find(root), name), as_json)


@cli.group()
def tasksets() -> None:
    """Task sets: what a policy is tried on."""


@tasksets.command()
@common
@click.argument("name")
@click.option("--split", default="train", show_default=True, type=click.Choice(["train", "sibling", "eval"]))
@click.option("-n", default=48, show_default=True, help="Number of tasks.")
@click.option("--seed", type=int, help="Seed of the generator (default: as flywheel.toml says).")
def build(root: Path | None, as_json: bool, name: str, split: str, n: int, seed: int | None) -> None:
    """Generate a task set, admit it, and commit it through DVC."""
    from flywheel.stages import opened
    from flywheel.tasksets import build as verb
    from flywheel.terminal import show as show_result

    workspace, config = opened(root)
    show_result(verb(workspace, config, name=name, split=split, n=n, seed=seed), as_json)


@tasksets.command()
@common
@click.argument("name")
def check(root: Path | None, as_json: bool, name: str) -> None:
    """The oracle passes every task, a do-nothing agent none, and no group stands on two sides of a split."""
    from flywheel.stages import opened
    from flywheel.tasksets import check as verb
    from flywheel.terminal import show as show_result

    workspace, config = opened(root)
    show_result(verb(workspace, config, name=name), as_json)


@cli.command()
@common
@click.option("--stage", default="production", show_default=True, help="Serve the policy in this stage.")
@click.option("--port", default=8000, show_default=True, help="Port on 127.0.0.1; 0 takes a free one.")
def serve(root: Path | None, as_json: bool, stage: str, port: int) -> None:
    """Serve a policy over HTTP (OpenAI chat completions) until Ctrl-C; every exchange lands as a trace."""
    from flywheel.serve import serve as verb
    from flywheel.stages import opened
    from flywheel.terminal import show as show_result

    workspace, config = opened(root)
    show_result(verb(workspace, config, stage=stage, port=port), as_json)


@cli.command()
@common
def reverify(root: Path | None, as_json: bool) -> None:
    """Judge the stored rollouts again with today's verifiers and name those that now differ."""
    run_verb("reverify", root, as_json)


@cli.command()
@common
@click.option("--format", "format_name", required=True, type=click.Choice(["openai_chat", "atif"]))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@click.option("--where", help='Which trajectories, in SQL: "success = false and task_id is not null".')
@click.option("--ids", multiple=True, help="One trajectory by its id; give it several times for several.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Also write each one's losses here.")
@click.option("--snapshot", help="Export an older snapshot (default: the newest).")
def export(root: Path | None, as_json: bool, **choices: Any) -> None:
    """Write trajectories as JSON lines that other tools read, and say what the format could not hold."""
    run_verb("export", root, as_json, **choices)
