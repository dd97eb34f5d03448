"""The stages of a turn: each composes the verbs that belong together and returns a small JSON-able result.

| stage    | verbs                | what the result names                     |
|----------|----------------------|-------------------------------------------|
| ingest   | ingest -> validate   | batch, snapshot                           |
| repair   | triage -> repair     | repair                                    |
| curate   | curate               | curriculum                                |
| train    | train                | run                                       |
| evaluate | evaluate (both)      | candidate and incumbent evaluation        |
| promote  | gate -> promote      | decision, policy version                  |
| report   | report               | page                                      |
| maintain | maintain (3 kinds)   | newest snapshot (not part of a turn)      |

A flow of the same name in `flows/` runs the stage under Prefect; `flywheel turn --plain` runs it in this process.
Everything is reached by a workspace root and ids: no tables and no objects pass between stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from flywheel.config import Config, Section, load_config
from flywheel.progress import Progress, silent
from flywheel.workspace import Workspace

Result = dict[str, Any]


def opened(root: str | Path | None, *overrides: Section | None) -> tuple[Workspace, Config]:
    """The workspace and its configuration, where the fields set in a given section (a flow's form) replace its own."""
    workspace = Workspace.find(root)
    config = load_config(workspace.config_file)
    for section in overrides:
        if section is not None:
            name = type(section).__name__.lower()
            own: Section = getattr(config, name)
            config = config.model_copy(
                update={name: own.model_copy(update={key: getattr(section, key) for key in section.model_fields_set})}
            )
    return workspace, config


def ingest(
    root: str | Path | None,
    settings: Section | None = None,
    *,
    paths: Sequence[Path | str] = (),
    full: bool = False,
    progress: Progress = silent,
) -> Result:
    """Landing objects become a staged batch; the batch is judged; what passes is published."""
    from flywheel.ingest import ingest as stage_batch
    from flywheel.validate import validate

    workspace, config = opened(root, settings)
    staged = stage_batch(workspace, config, paths=paths, full=full, progress=progress)
    judged = validate(workspace, config, progress=progress)
    return {**asdict(staged), **asdict(judged)}


def stage_only(
    root: str | Path | None,
    settings: Section | None = None,
    *,
    paths: Sequence[Path | str] = (),
    full: bool = False,
    progress: Progress = silent,
) -> Result:
    """The first half of `ingest`: the batch waits for `flywheel validate`."""
    from flywheel.ingest import ingest as stage_batch
    from flywheel.store.lake import Lake

    workspace, config = opened(root, settings)
    staged = stage_batch(workspace, config, paths=paths, full=full, progress=progress)
    head = Lake(workspace).head()
    return {**asdict(staged), "snapshot": head.snapshot_id if head else None, "judged": []}


def repair(root: str | Path | None, settings: Section | None = None, *, progress: Progress = silent) -> Result:
    """Failures are labelled and clustered; failing tasks are tried again by a stronger prompt."""
    from flywheel.repair import repair as rerun
    from flywheel.store.registry import Registry
    from flywheel.triage import triage

    workspace, config = opened(root, settings)
    labelled = triage(workspace, config, progress=progress)
    policy = Registry(workspace).checked_out()
    return {"triage": asdict(labelled), **asdict(rerun(workspace, config, policy=policy, progress=progress))}


def curate(root: str | Path | None, settings: Section | None = None, *, progress: Progress = silent) -> Result:
    """Verified evidence becomes a curriculum."""
    from flywheel.curate import curate as verb

    workspace, config = opened(root, settings)
    return asdict(verb(workspace, config, progress=progress))


def train(
    root: str | Path | None, settings: Section | None = None, *, curriculum: str, progress: Progress = silent
) -> Result:
    """The base, trained on the curriculum, becomes a run."""
    from flywheel.train import train as verb

    workspace, config = opened(root, settings)
    return asdict(verb(workspace, config, curriculum_id=curriculum, progress=progress))


def evaluate(
    root: str | Path | None, settings: Section | None = None, *, run: str, progress: Progress = silent
) -> Result:
    """The run and the policy in production are tried on the same held-out tasks."""
    from flywheel.evaluate import evaluate as verb
    from flywheel.store.registry import Registry

    workspace, config = opened(root, settings)
    candidate = verb(workspace, config, policy=policy_of(workspace, run), progress=progress)
    # Not models/policy as it lies there: after `dvc repro` with another parameter that is an experiment.
    incumbent = verb(workspace, config, policy=Registry(workspace).checked_out(), progress=progress)
    return {"candidate": asdict(candidate), "incumbent": asdict(incumbent)}


def policy_of(workspace: Workspace, run: str) -> Path:
    """The policy folder of a finished run. Errors: ArtifactError if there is no such run, or it isn't finished."""
    from flywheel.store import artifacts

    artifacts.load(workspace.runs / run)
    return workspace.runs / run / "policy"


def evaluate_one(
    root: str | Path | None,
    *,
    run: str | None,
    stage: str | None,
    taskset: str | None,
    k: int | None,
    progress: Progress = silent,
) -> Result:
    """One policy by itself: a run's, or the one in a stage of the registry."""
    from flywheel.evaluate import evaluate as verb
    from flywheel.store.registry import Registry

    workspace, config = opened(root)
    if k is not None:
        config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"k": k})})
    folder = policy_of(workspace, run) if run else Registry(workspace).checked_out(str(stage))
    return asdict(verb(workspace, config, policy=folder, taskset=taskset, progress=progress))


def promote(
    root: str | Path | None,
    settings: Section | None = None,
    *,
    run: str,
    candidate: str,
    incumbent: str,
    progress: Progress = silent,
) -> Result:
    """The gate decides on both reports; a run with evidence becomes the policy in production."""
    from flywheel.gate import gate
    from flywheel.promote import promote as verb

    workspace, config = opened(root, settings)
    decided = gate(workspace, config, candidate_eval=candidate, incumbent_eval=incumbent)
    progress(1, 2, "decided")
    registered = verb(workspace, config, run_id=run, decision_id=decided.decision_id)
    progress(2, 2, "registered")
    return {"gate": asdict(decided), **asdict(registered)}


def report(root: str | Path | None, *, progress: Progress = silent) -> Result:
    """What the turn did, on one page."""
    from flywheel.report import report as verb

    workspace, config = opened(root)
    return asdict(verb(workspace, config, progress=progress))


def maintain(root: str | Path | None, *, progress: Progress = silent) -> Result:
    """The lake's files are merged, cleared of leftovers, and checked."""
    from flywheel.maintain import maintain as verb

    workspace, _ = opened(root)
    steps: tuple[Literal["compact", "vacuum", "verify"], ...] = ("compact", "vacuum", "verify")
    done: Result = {}
    for number, what in enumerate(steps, 1):
        done[what] = asdict(verb(workspace, what))
        progress(number, len(steps), what)
    return done


STAGES: dict[str, Callable[..., Result]] = {
    "ingest": ingest,
    "repair": repair,
    "curate": curate,
    "train": train,
    "evaluate": evaluate,
    "promote": promote,
    "report": report,
    "maintain": maintain,
}
