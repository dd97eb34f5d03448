"""Where things lie in a workspace: one property a place, no I/O beyond finding the root.

flywheel.toml  dvc.yaml          data/landing/   data/staging/<batch>/   data/lake/<table>/   data/lake.duckdb
data/objects/  data/tasksets/<name>/            data/repairs/<id>/   data/curricula/<id>/   data/evals/<id>/
data/decisions/<id>/  data/turns/<id>/  data/reports/   data/champion/
models/base/   models/policy/ (the DVC artifact)   models/runs/<id>/
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from flywheel.errors import WorkspaceError

CONFIG_NAME = "flywheel.toml"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder with a flywheel.toml in it."""

    root: Path

    @classmethod
    def find(cls, start: str | Path | None = None) -> Workspace:
        """The given folder, else $FLYWHEEL_ROOT, else the nearest folder upwards that holds a flywheel.toml."""
        start = start or os.environ.get("FLYWHEEL_ROOT")
        if start is not None:
            root = Path(start).resolve()
            if not (root / CONFIG_NAME).is_file():
                raise WorkspaceError(f"{root} has no {CONFIG_NAME}: run `flywheel init {root}` first")
            return cls(root)
        here = Path.cwd().resolve()
        for folder in (here, *here.parents):
            if (folder / CONFIG_NAME).is_file():
                return cls(folder)
        raise WorkspaceError(f"no {CONFIG_NAME} in {here} or above it: run `flywheel init DIR`, or pass --root DIR")

    @property
    def config_file(self) -> Path:
        return self.root / CONFIG_NAME

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def landing(self) -> Path:
        """Where trace files land unless `[ingest] landing` names another place."""
        return self.data / "landing"

    @property
    def object_index(self) -> Path:
        """What is known of landing objects (see `store/objects_index.py`); it may be deleted."""
        return self.data / "objects" / "index.sqlite"

    @property
    def staging(self) -> Path:
        return self.data / "staging"

    @property
    def lake(self) -> Path:
        return self.data / "lake"

    @property
    def lake_file(self) -> Path:
        return self.data / "lake.duckdb"

    @property
    def tasksets(self) -> Path:
        return self.data / "tasksets"

    @property
    def repairs(self) -> Path:
        return self.data / "repairs"

    @property
    def curricula(self) -> Path:
        return self.data / "curricula"

    @property
    def evals(self) -> Path:
        return self.data / "evals"

    @property
    def decisions(self) -> Path:
        return self.data / "decisions"

    @property
    def turns(self) -> Path:
        return self.data / "turns"

    @property
    def current_turn(self) -> Path:
        """The journal of the turn in progress; absent between turns."""
        return self.turns / "current.json"

    @property
    def reports(self) -> Path:
        return self.data / "reports"

    @property
    def champion(self) -> Path:
        return self.data / "champion"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def base(self) -> Path:
        """The policy that every run starts from: curricula accumulate, drift does not."""
        return self.models / "base"

    @property
    def policy(self) -> Path:
        return self.models / "policy"

    @property
    def runs(self) -> Path:
        return self.models / "runs"
