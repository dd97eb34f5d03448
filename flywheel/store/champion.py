"""The champion: what is in production, laid out so that `dvc repro` can rebuild it.

data/champion/
  curate.json    {"snapshot", "settings"}    inputs of stage `curate`     -> curriculum/
  train.json     {"settings"}                inputs of stage `train`      -> models/policy
  evaluate.json  {"settings"}                inputs of stage `evaluate`   -> evaluation/
  champion.json  ids of run, curriculum, evaluations and decision: for people, no stage reads it

`settings` holds only what differed from flywheel.toml when the champion was made (a flow's form, a gate that asked for
more runs): the rest is read from flywheel.toml, so that an edit there is a change that DVC sees.

Not covered: versions (`store/registry.py`), running the stages (`flywheel/champion.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flywheel.config import Config, Section
from flywheel.errors import ArtifactError
from flywheel.store import artifacts
from flywheel.workspace import Workspace

STAGES = ("curate", "train", "evaluate")
ORIGIN = "champion"
# Not part of what a stage gives: times differ from run to run, work folders are gone when it is finished.
LEFT_OUT = ("timings.json", "work")


def curriculum_folder(workspace: Workspace) -> Path:
    """The champion's curriculum, the out of stage `curate`."""
    return workspace.champion / "curriculum"


def evaluation_folder(workspace: Workspace) -> Path:
    """The champion's evaluation, the out of stage `evaluate`."""
    return workspace.champion / "evaluation"


def write(workspace: Workspace, name: str, content: Mapping[str, Any]) -> None:
    """Write data/champion/<name>.json; equal contents are equal bytes."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
    artifacts.write_atomic(workspace.champion / f"{name}.json", text.encode())


def read(workspace: Workspace, name: str) -> dict[str, Any]:
    """The content of data/champion/<name>.json. Errors: ArtifactError if it isn't there."""
    path = workspace.champion / f"{name}.json"
    if not path.is_file():
        raise ArtifactError(f"{path} is missing: `git checkout {path}`, or run `flywheel init {workspace.root}`")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def differing(section: Section, used: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were used and that flywheel.toml doesn't say."""
    says = section.model_dump()
    return {key: value for key, value in used.items() if key in says and says[key] != value}


def with_settings(config: Config, stage: str, settings: Mapping[str, Any]) -> Config:
    """The configuration with the champion's own settings of one stage."""
    section: Section = getattr(config, stage)
    return config.model_copy(update={stage: type(section).model_validate({**section.model_dump(), **settings})})


def place(source: Path, target: Path, leave_out: Sequence[str] = LEFT_OUT) -> None:
    """`target` becomes a copy of the folder `source`. Interrupted, it is the old one, the new one, or absent."""
    part = target.with_name(f".{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part, ignore=shutil.ignore_patterns(*leave_out))
    if target.exists():
        shutil.rmtree(target)
    part.replace(target)
