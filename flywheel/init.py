"""Init: make a workspace, with everything a first turn needs, and complete one that was interrupted.

    flywheel init DIR [--base smollm2|scripted|FOLDER] [--git-remote URL] [--dvc-remote URL]

git (identity set in the repository), DVC, a bare git remote and a DVC store in DIR/.flywheel unless told otherwise,
the redaction key, flywheel.toml and dvc.yaml, the task sets `online` and `holdout`, and the base policy, registered as
policy@v0.1.0 and assigned to `production`, so that every gate has an incumbent. What is there stays; a second init
says so. Remotes inside the workspace are relative paths: move the folder as a whole and it goes on working.

Not covered: the base policy's bytes (`trainers/base_model.py`), changing a remote later (`git remote`, `dvc remote`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from flywheel.config import Base, Config, load_config
from flywheel.environment.tasksets import SetSpec, make
from flywheel.errors import ConfigError, RegistryError
from flywheel.ledger import PolicyVersion
from flywheel.progress import Progress, silent
from flywheel.records import Task, content_id
from flywheel.store import artifacts, champion
from flywheel.store.curricula import write_rows
from flywheel.store.git import make_bare
from flywheel.store.keys import make_redaction_key
from flywheel.store.lake import Lake
from flywheel.store.registry import PRODUCTION, Registry
from flywheel.store.registry_bytes import folder_sha256
from flywheel.store.tasks import taskset_sha256
from flywheel.store.versions import Entry, Version
from flywheel.workspace import CONFIG_NAME, Workspace

HOME = ".flywheel"  # the workspace's own git remote, DVC store, key and lock
GIT_REMOTE = f"{HOME}/git"
DVC_REMOTE = f"../{HOME}/dvc"  # DVC reads it from .dvc/
ONLINE, HOLDOUT = "online", "holdout"
STEPS = 6
BESIDE_WEIGHTS = (artifacts.MANIFEST, ".*")  # of models/base; a run of no steps leaves the same out

GITIGNORE = """\
# git keeps what describes the work; DVC keeps the bytes worth keeping; the rest can be made again.
/.flywheel/
/data/*
!/data/champion/
/data/champion/*
!/data/champion/*.json
!/data/tasksets/
/data/tasksets/*
!/data/tasksets/*.dvc
/models/
"""

DVC_CONFIG = """\
[core]
    analytics = false
    check_update = false
    remote = store
['remote "store"']
    url = {url}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitResult:
    """Where the workspace lies and what is in production there. `made`: False if all of it was there before."""

    root: str
    made: bool
    base: str
    version: str
    stage: str
    weights_sha256: str
    tasksets: dict[str, int]
    git_remote: str
    dvc_remote: str


def init(
    folder: Path,
    *,
    base: str | None = None,
    git_remote: str | None = None,
    dvc_remote: str | None = None,
    config: Config | None = None,
    progress: Progress = silent,
) -> InitResult:
    """Make or complete the workspace in `folder`. `config` is written as its flywheel.toml if there is none yet.

    Errors: ConfigError if flywheel.toml is there and says another base, RegistryError if git or DVC refuse,
    PolicyError if the base can't be had.
    """
    workspace = Workspace(folder.resolve())
    wanted = config or Config()
    if base is not None:
        wanted = wanted.model_copy(update={"base": Base(model=base)})
    settings = _files(workspace, wanted, base)
    registry = Registry(workspace)
    with registry.locked():
        progress(1, STEPS, "git and DVC")
        _connect(workspace, registry, git_remote, dvc_remote)
        made = registry.current() is None
        progress(2, STEPS, "task sets")
        sets = _tasksets(workspace, settings)
        _describe(workspace)
        if made:
            registry.track([workspace.tasksets / name for name in sets], _tracked(workspace), "Workspace")
        progress(3, STEPS, f"base policy {settings.base.model}")
        weights = _base(workspace, settings, progress)
        progress(4, STEPS, "registering the base policy")
        version = registry.current() or _register(workspace, registry, weights)
    progress(5, STEPS, "ledger")
    if version.entry.run_id is None:
        row = PolicyVersion(
            version=version.version, weights_sha256=version.entry.weights_sha256, git_rev=version.git_rev
        )
        Lake(workspace).publish(content_id("release", version.version), {PolicyVersion.TABLE: [row]})
    progress(STEPS, STEPS, "ready")
    return InitResult(
        root=str(workspace.root),
        made=made,
        base=settings.base.model,
        version=version.version,
        stage=PRODUCTION,
        weights_sha256=version.entry.weights_sha256,
        tasksets={name: len(tasks) for name, tasks in sets.items()},
        git_remote=registry.git.run("config", "remote.origin.url"),
        dvc_remote=registry.bytes.remote(),
    )


def config_text(config: Config) -> str:
    """A flywheel.toml that says every setting of the configuration, with its meaning above it."""
    lines = ["# The settings of this workspace. Secrets come from the environment, never from here."]
    for name in Config.model_fields:
        section = getattr(config, name)
        lines += ["", f"[{name}]"]
        for key, field in type(section).model_fields.items():
            lines += [f"# {field.description}", f"{key} = {_toml(getattr(section, key))}"]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML: as JSON, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _files(workspace: Workspace, wanted: Config, base: str | None) -> Config:
    """The files that a person may edit, each written only if it isn't there; the configuration that now holds."""
    texts = {
        ".gitignore": GITIGNORE,
        "dvc.yaml": (files("flywheel") / "templates" / "dvc.yaml").read_text(encoding="utf-8"),
        "dvc.lock": "schema: '2.0'\n",  # empty, so that git knows it from the first commit on
        CONFIG_NAME: config_text(wanted),
    }
    for name, text in texts.items():
        if not (workspace.root / name).is_file():
            artifacts.write_atomic(workspace.root / name, text.encode())
    make_redaction_key(workspace)
    settings = load_config(workspace.config_file)
    if base is not None and settings.base.model != base:
        raise ConfigError(
            f"{workspace.config_file} says base {settings.base.model!r}, not {base!r}: the base of a workspace is for "
            f"good, so choose another folder"
        )
    return settings


def _connect(workspace: Workspace, registry: Registry, git_remote: str | None, dvc_remote: str | None) -> None:
    """git, its remote, DVC, its remote. In a clone the remote it was cloned from stays."""
    registry.git.init()
    if git_remote is None and not registry.git.run("remote"):
        git_remote = GIT_REMOTE
    if git_remote == GIT_REMOTE:
        make_bare(workspace.root / GIT_REMOTE)
    if git_remote is not None:
        registry.git.set_remote(git_remote)
    registry.bytes.init(DVC_CONFIG.format(url=dvc_remote or DVC_REMOTE))
    registry.fetch_tags()
    if registry.git.head() is None and registry.git.has("origin/main"):
        raise RegistryError(
            f"{registry.git.run('config', 'remote.origin.url')} holds a workspace already: `git clone` it, "
            f"`dvc pull` there, then `flywheel init` in the clone"
        )


def _tasksets(workspace: Workspace, config: Config) -> dict[str, list[Task]]:
    """Both task sets by name, made if needed, and in the lake."""
    lake, settings, made = Lake(workspace), config.tasks, {}
    for name, split, n in ((ONLINE, "train", settings.train), (HOLDOUT, "eval", settings.holdout)):
        spec = SetSpec(name=name, domain=settings.domain, split=split, n=n, seed=settings.seed)
        made[name] = make(workspace, spec)
        lake.publish(content_id("taskset", name, taskset_sha256(made[name])), {Task.TABLE: made[name]})
    return made


def _describe(workspace: Workspace) -> None:
    """The inputs of the first champion: the base trained for no steps on what the lake holds: no trace."""
    if not (workspace.champion / f"{champion.ORIGIN}.json").is_file():
        head = Lake(workspace).head()
        champion.write(workspace, "curate", {"snapshot": head.snapshot_id if head else None, "settings": {}})
        champion.write(workspace, "train", {"settings": {"steps": 0}})
        champion.write(workspace, "evaluate", {"settings": {}})
        champion.write(workspace, champion.ORIGIN, {"run": None, "decision": None})


def _tracked(workspace: Workspace) -> list[str]:
    names = [".gitignore", ".dvcignore", ".dvc/config", ".dvc/.gitignore", CONFIG_NAME, "dvc.yaml", "dvc.lock"]
    return [*names, *(f"data/champion/{name}.json" for name in (*champion.STAGES, champion.ORIGIN))]


def _base(workspace: Workspace, config: Config, progress: Progress) -> str:
    """The base policy in models/base; its identity."""
    from flywheel.trainers.base_model import prepare_base
    from flywheel.trainers.recipe import weights_sha256

    if not workspace.base.is_dir():
        prepare_base(config.base.model, workspace.base, progress)
    return weights_sha256(workspace.base)


def _register(workspace: Workspace, registry: Registry, weights: str) -> Version:
    snapshot = champion.read(workspace, "curate")["snapshot"]

    def place() -> None:
        champion.place(workspace.base, workspace.policy, BESIDE_WEIGHTS)
        _empty_curriculum(champion.curriculum_folder(workspace), snapshot)

    entry = Entry(
        run_id=None,
        decision_id=None,
        weights_sha256=weights,
        content_sha256=folder_sha256(workspace.base, BESIDE_WEIGHTS),
    )
    return registry.release(place, ("curate", "train"), entry)


def _empty_curriculum(folder: Path, snapshot: str | None) -> None:
    if not artifacts.is_finished(folder):
        write_rows(folder, [], [])
        summary = {"rows": 0, "by_source": {}, "dropped": 0, "by_reason": {}}
        artifacts.finish(folder, "curriculum", content_id("curriculum", "empty"), {"snapshot": snapshot}, summary)
