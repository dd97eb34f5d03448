"""The verbs of the loop, from `init` to `promote`: their options. What they do is in `flywheel/<verb>.py`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flywheel.commands.group import PathArgument, cli, common, run_stage, run_verb

INGEST_SAYS = (
    "batch", "snapshot", "files", "records", "trajectories", "quarantined", "repaired", "skipped", "bytes", "seconds",
    "formats", "refused",
)  # fmt: skip
champion_option = click.option(
    "--champion", is_flag=True, help="Rebuild the champion's part, as `dvc repro` does: inputs from data/champion."
)


def rebuild_champion(stage: str, root: Path | None, as_json: bool) -> None:
    """One stage of dvc.yaml, as `dvc repro` calls it."""
    from flywheel.champion import rebuild
    from flywheel.stages import opened
    from flywheel.terminal import TerminalProgress, show

    workspace, config = opened(root)
    with TerminalProgress(stage) as progress:
        result = rebuild(workspace, config, stage=stage, progress=progress)
    show(result, as_json)


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
@click.argument("paths", nargs=-1)
@click.option("--stage-only", is_flag=True, help="Stage the batch; leave judging and publishing to `validate`.")
@click.option("--format", "format_", help="Use this reader for every file instead of sniffing by content.")
@click.option("--full", is_flag=True, help="List all of a large S3 prefix, not only where new objects are likely.")
def ingest(
    root: Path | None, as_json: bool, paths: tuple[str, ...], stage_only: bool, format_: str | None, full: bool
) -> None:
    """Land trace files (paths or s3:// addresses), stage them as a batch, judge it, publish what passes.

    What can't be read is named and left out. Exit 1 if of one of the given paths nothing could be read.
    """
    from flywheel import stages
    from flywheel.config import Ingest
    from flywheel.terminal import TerminalProgress, show

    settings = Ingest(format=format_) if format_ else None
    verb = stages.stage_only if stage_only else stages.ingest
    with TerminalProgress("ingest") as progress:
        result = verb(root, settings, paths=paths, full=full, progress=progress)
    show({name: result[name] for name in INGEST_SAYS}, as_json)
    for sentence in result["refused"]:
        sys.stderr.write(f"flywheel: ingest: {sentence}\n")
    refuse_failed(result["judged"])
    if result["unread"]:
        sys.exit(1)


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
