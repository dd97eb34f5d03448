"""`flywheel <verb>`: the same verbs for people, DVC and CI.

Exit 0: done (also an honest non-promotion, or nothing to do: the result says so). Exit 1: refused or failed, with a
sentence on stderr. Exit 2: wrong usage. `--json` prints exactly one JSON object as the last line of stdout: the result,
or {"error", "boundary"} where there is none; all else is stderr.
Imports happen inside the verbs: `flywheel --help` has to answer before a person wonders.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flywheel import __version__
from flywheel.errors import FlywheelError

if TYPE_CHECKING:
    from flywheel.maintain import Upkeep

PathArgument = click.Path(path_type=Path)
INGEST_SAYS = (
    "batch", "snapshot", "files", "records", "trajectories", "quarantined", "repaired", "skipped", "bytes", "seconds",
    "formats",
)  # fmt: skip


def common(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The two options every verb has. Given before the verb they are the default for it."""
    verb = click.option("--root", type=PathArgument, help="Workspace (default: the nearest flywheel.toml).")(verb)
    return click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line of stdout.")(verb)


champion_option = click.option(
    "--champion", is_flag=True, help="Rebuild the champion's part, as `dvc repro` does: inputs from data/champion."
)


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


def rebuild_champion(stage: str, root: Path | None, as_json: bool) -> None:
    """One stage of dvc.yaml, as `dvc repro` calls it."""
    from flywheel.champion import rebuild
    from flywheel.stages import opened
    from flywheel.terminal import TerminalProgress, show

    workspace, config = opened(root)
    with TerminalProgress(stage) as progress:
        result = rebuild(workspace, config, stage=stage, progress=progress)
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


@cli.command()
@common
@click.argument("folder", type=PathArgument, required=False)
@click.option("--base", help="smollm2 | scripted | a folder of weights (default: as flywheel.toml says).")
@click.option("--git-remote", help="Where policy tags are pushed (default: a bare repository inside the workspace).")
@click.option("--dvc-remote", help="Where weights and task sets are pushed (default: a store inside the workspace).")
def init(
    root: Path | None,
    as_json: bool,
    folder: Path | None,
    base: str | None,
    git_remote: str | None,
    dvc_remote: str | None,
) -> None:
    """Make a workspace: git, DVC, task sets, and the base policy in production."""
    from flywheel.init import init as verb
    from flywheel.terminal import TerminalProgress, show

    if folder and root:
        raise click.UsageError("say either init FOLDER or --root FOLDER")
    with TerminalProgress("init") as progress:
        place = folder or root or Path()
        result = verb(place, base=base, git_remote=git_remote, dvc_remote=dvc_remote, progress=progress)
    show(result, as_json)


@cli.command()
@common
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--stage-only", is_flag=True, help="Stage the batch; leave judging and publishing to `validate`.")
@click.option("--format", "format_", help="Use this reader for every file instead of sniffing by content.")
def ingest(root: Path | None, as_json: bool, paths: tuple[Path, ...], stage_only: bool, format_: str | None) -> None:
    """Land trace files, stage them as a batch, judge it, publish what passes."""
    from flywheel import stages
    from flywheel.config import Ingest
    from flywheel.terminal import TerminalProgress, show

    settings = Ingest(format=format_) if format_ else None
    verb = stages.stage_only if stage_only else stages.ingest
    with TerminalProgress("ingest") as progress:
        result = verb(root, settings, paths=paths, progress=progress)
    show({name: result[name] for name in INGEST_SAYS}, as_json)
    refuse_failed(result["judged"])


@cli.command()
@common
@click.option("--batch", help="Judge this batch, also one that failed before (default: all that wait).")
@click.option("--accept", help="Publish this failed batch all the same; recorded as forced. Needs --reason.")
@click.option("--reason", help="Why the failed batch is accepted.")
def validate(root: Path | None, as_json: bool, batch: str | None, accept: str | None, reason: str | None) -> None:
    """Judge the staged batches; publish those that pass."""
    from dataclasses import asdict

    if reason and not accept:
        raise click.UsageError("--reason is for --accept BATCH")
    result = run_verb("validate", root, as_json, batch=batch, accept=accept, reason=reason)
    refuse_failed(asdict(result)["judged"])


def refuse_failed(judged: Sequence[Mapping[str, Any]]) -> None:
    """Exit 1 with a sentence for each batch that failed; the result is printed already, and the others went on."""
    failed = [verdict for verdict in judged if verdict["state"] == "failed"]
    for verdict in failed:
        sys.stderr.write(
            f"flywheel: validate: {verdict['batch']} failed and stays staged: {'; '.join(verdict['failed'])}. "
            f"See {verdict['data_docs']}, or `flywheel validate --accept {verdict['batch']} --reason WHY`\n"
        )
    if failed:
        sys.exit(1)


@cli.command()
@common
def triage(root: Path | None, as_json: bool) -> None:
    """Label failures with code, step, evidence and owner, and cluster them."""
    run_verb("triage", root, as_json)


@cli.command()
@common
def repair(root: Path | None, as_json: bool) -> None:
    """Try failing tasks again with a stronger prompt; keep what every verifier passes."""
    run_verb("repair", root, as_json)


@cli.command()
@common
@champion_option
def curate(root: Path | None, as_json: bool, champion: bool) -> None:
    """Turn verified evidence into a curriculum."""
    if champion:
        rebuild_champion("curate", root, as_json)
    else:
        run_stage("curate", root, as_json)


@cli.command()
@common
@click.option("--curriculum", help="Id of the curriculum to train on.")
@champion_option
def train(root: Path | None, as_json: bool, curriculum: str | None, champion: bool) -> None:
    """Train the base on a curriculum. Run it again after a crash: it resumes."""
    if champion == (curriculum is not None):
        raise click.UsageError("say either --curriculum ID or --champion")
    if champion:
        rebuild_champion("train", root, as_json)
    else:
        run_stage("train", root, as_json, curriculum=curriculum)


@cli.command()
@common
@click.option("--run", "run_id", help="Id of the run to judge.")
@click.option("--stage", help="Judge the policy in this stage instead, e.g. production.")
@click.option("--taskset", help="Task set (default: as flywheel.toml says).")
@click.option("-k", type=int, help="Runs of each task (default: as flywheel.toml says).")
@champion_option
def evaluate(
    root: Path | None,
    as_json: bool,
    run_id: str | None,
    stage: str | None,
    taskset: str | None,
    k: int | None,
    champion: bool,
) -> None:
    """Try one policy k times on every task of a held-out set."""
    from flywheel.stages import evaluate_one
    from flywheel.terminal import TerminalProgress, show

    if (run_id is not None) + (stage is not None) + champion != 1:
        raise click.UsageError("say one of --run ID, --stage NAME and --champion")
    if champion:
        rebuild_champion("evaluate", root, as_json)
    else:
        with TerminalProgress("evaluate") as progress:
            show(evaluate_one(root, run=run_id, stage=stage, taskset=taskset, k=k, progress=progress), as_json)


@cli.command()
@common
@click.option("--candidate", required=True, help="Evaluation id of the candidate.")
@click.option("--incumbent", required=True, help="Evaluation id of the incumbent.")
def gate(root: Path | None, as_json: bool, candidate: str, incumbent: str) -> None:
    """Decide on two evaluations: PROMOTE, REJECT or INCONCLUSIVE, with every reason."""
    run_verb("gate", root, as_json, candidate_eval=candidate, incumbent_eval=incumbent)


@cli.command()
@common
@click.option("--run", "run_id", required=True, help="Id of the run.")
@click.option("--decision", required=True, help="Id of the gate's decision on it.")
@click.option("--force-by", help="Promote against the decision, in this person's name. Needs --reason.")
@click.option("--reason", help="Why the promotion is forced; recorded for ever.")
def promote(
    root: Path | None, as_json: bool, run_id: str, decision: str, force_by: str | None, reason: str | None
) -> None:
    """Make a run with a PROMOTE decision the policy in production."""
    run_verb("promote", root, as_json, run_id=run_id, decision_id=decision, forced_by=force_by, reason=reason)


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


@cli.group()
def lake() -> None:
    """Look after the lake's files."""


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


def main() -> None:
    """Entry point: a refusal is one sentence on stderr and exit 1, never a traceback."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        leave(error.exit_code, error.format_message(), "usage")
    except click.exceptions.Abort:
        sys.stderr.write("flywheel: stopped; run the same command again to go on\n")
        leave(1, "stopped", "flywheel")
    except FlywheelError as error:
        sys.stderr.write(f"flywheel: {error.boundary}: {error}\n")
        leave(1, str(error), error.boundary)


def leave(code: int, sentence: str, boundary: str) -> NoReturn:
    """End the process; with --json the sentence is the one JSON object."""
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": sentence, "boundary": boundary}) + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
