"""Champion: run one stage of the champion's pipeline again, as `dvc repro` asks for it.

    flywheel curate --champion      data/champion/curate.json + [curate]      -> data/champion/curriculum
    flywheel train --champion       data/champion/{train.json,curriculum}
                                    + [base] [train]                          -> models/policy
    flywheel evaluate --champion    data/champion/evaluate.json + models/policy
                                    + the task set + [evaluate]               -> data/champion/evaluation

Each is the verb of that name on the champion's own inputs, and the result put where dvc.yaml says. Nothing is
registered: what comes out is an experiment until `flywheel promote`.

Not covered: the layout of a champion (`store/champion.py`), which stages have to run (DVC knows).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flywheel.config import Config
from flywheel.progress import Progress, silent
from flywheel.store import artifacts, champion
from flywheel.workspace import Workspace


def rebuild(workspace: Workspace, config: Config, *, stage: str, progress: Progress = silent) -> dict[str, Any]:
    """Run `curate`, `train` or `evaluate` for the champion; that verb's result.

    Errors: ArtifactError if data/champion lacks an input, and what the verb itself refuses.
    """
    inputs = champion.read(workspace, stage)
    return REBUILDERS[stage](workspace, champion.with_settings(config, stage, inputs["settings"]), inputs, progress)


def _curate(workspace: Workspace, config: Config, inputs: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from flywheel.curate import curate

    out = champion.curriculum_folder(workspace)
    return asdict(curate(workspace, config, snapshot=inputs["snapshot"], out=out, progress=progress))


def _train(workspace: Workspace, config: Config, inputs: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from flywheel.train import train

    source = champion.curriculum_folder(workspace)
    curriculum_id = artifacts.load(source).id
    if not artifacts.is_finished(workspace.curricula / curriculum_id):
        champion.place(source, workspace.curricula / curriculum_id)
    result = train(workspace, config, curriculum_id=curriculum_id, progress=progress)
    champion.place(workspace.runs / result.run_id / "policy", workspace.policy)
    return asdict(result)


def _evaluate(workspace: Workspace, config: Config, inputs: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from flywheel.evaluate import evaluate

    result = evaluate(workspace, config, policy=workspace.policy, progress=progress)
    champion.place(workspace.evals / result.evaluation_id, champion.evaluation_folder(workspace))
    return asdict(result)


REBUILDERS = {"curate": _curate, "train": _train, "evaluate": _evaluate}
