"""What the registry's tests and their child processes run: releases of tiny policies, and dying at a given step."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gto.api

from flywheel.store import champion
from flywheel.store.git import Git
from flywheel.store.registry import Registry
from flywheel.store.registry_bytes import Bytes, folder_sha256
from flywheel.store.versions import Entry, Version
from flywheel.workspace import Workspace

# Everything a release does that outlives the process, in order.
STEPS: dict[str, tuple[Any, str]] = {
    "place": (champion, "write"),
    "record": (Bytes, "record"),
    "commit": (Git, "commit"),
    "push bytes": (Bytes, "push"),
    "register": (gto.api, "register"),
    "assign": (gto.api, "assign"),
    "push": (Git, "push"),
}


def release(
    workspace: Workspace,
    name: str,
    incumbent: str | None = None,
    forced_by: str | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Version:
    """Release the policy whose one file says `name`; curriculum and evaluation are folders of the same kind.

    `meanwhile` happens in the middle of it, after the remote was asked what there is.
    """
    source = workspace.runs / name / "policy"
    source.mkdir(parents=True, exist_ok=True)
    (source / "skill.json").write_text(name)

    def place() -> None:
        meanwhile()
        for target in (workspace.policy, champion.curriculum_folder(workspace), champion.evaluation_folder(workspace)):
            champion.place(source, target)
        champion.write(workspace, champion.ORIGIN, {"run": name})

    entry = Entry(
        run_id=name,
        decision_id=f"decision of {name}",
        weights_sha256=f"weights of {name}",
        content_sha256=folder_sha256(source),
        forced_by=forced_by,
    )
    return Registry(workspace).release(place, champion.STAGES, entry, incumbent=incumbent)


def release_and_die(root: Path, step: str, after: bool) -> None:
    """Release "killed", but SIGKILL this process just before (or just after) that step."""
    die_at(step, after)
    release(Workspace(root), "killed")


def die_at(step: str, after: bool) -> None:
    """From now on this process dies by SIGKILL around that step."""
    owner, name = (Bytes, "add") if step == "add" else STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)

    def deadly(*arguments: Any, **options: Any) -> Any:
        if after:
            real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        sys.exit("still alive")

    setattr(owner, name, deadly)
