"""Write-once folders: an artefact exists when its manifest does, and the manifest is written last.

A stage writes its files into a folder, then calls `finish`, which hashes them and places `manifest.json` by one
atomic rename. A folder without a manifest is unfinished work: resume it or delete it. Manifests hold inputs,
counts and hashes only; times belong in `timings.json`, which no manifest covers.

Not covered: locking (two writers of one folder), remote storage (DVC and the registry move finished folders).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from flywheel.errors import ArtifactError

MANIFEST = "manifest.json"
_TEMPORARY = ".*.tmp"  # what `write_atomic` leaves behind when it's killed half-way


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an artefact is, what it was made from, and the sha256 of every file it consists of."""

    kind: str
    id: str
    inputs: Mapping[str, Any]
    summary: Mapping[str, Any]
    files: Mapping[str, str]  # path relative to the folder, with forward slashes -> sha256


def is_finished(folder: Path) -> bool:
    """Whether the folder is a finished artefact."""
    return (folder / MANIFEST).is_file()


def finish(
    folder: Path,
    kind: str,
    artifact_id: str,
    inputs: Mapping[str, Any],
    summary: Mapping[str, Any],
    exclude: Sequence[str] = ("timings.json",),
) -> Manifest:
    """Hash what lies in the folder and write its manifest, last and atomically.

    `exclude` holds fnmatch patterns for paths relative to the folder, or for their first part ("checkpoints").
    Finishing an artefact again is allowed only if it gives the same manifest.
    Errors: ArtifactError where a different manifest stands already.
    """
    files = {name: file_sha256(folder / name) for name in _names(folder, exclude)}
    manifest = Manifest(kind, artifact_id, dict(inputs), dict(summary), files)
    text = json.dumps(asdict(manifest), sort_keys=True, indent=1, allow_nan=False) + "\n"
    path = folder / MANIFEST
    if path.is_file():
        if path.read_text(encoding="utf-8") != text:
            raise ArtifactError(
                f"{kind} {artifact_id}: {path} exists and says something else; artefacts are written once, "
                f"so delete the folder to build it again"
            )
        return manifest
    write_atomic(path, text.encode())
    return manifest


def load(folder: Path, verify: bool = False) -> Manifest:
    """The manifest of a finished artefact; with `verify`, every file is hashed and compared first.

    Errors: ArtifactError if there is no manifest, if it isn't one, or (with `verify`) if a file is missing or differs.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(f"{folder} is not a finished artefact: no {MANIFEST}; run the stage that makes it again")
    try:
        manifest = Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{path} is not a manifest ({error}); delete the folder and run its stage again") from error
    if verify:
        _check(folder, manifest)
    return manifest


def amend(folder: Path, summary: Mapping[str, Any]) -> Manifest:
    """Write the manifest of a finished artefact anew for the files as they are now, with more in its summary.

    For erasure alone: everything else writes an artefact once. Errors: ArtifactError for an unfinished folder.
    """
    old = load(folder)
    files = {name: file_sha256(folder / name) for name in old.files}
    manifest = Manifest(old.kind, old.id, old.inputs, {**old.summary, **summary}, files)
    text = json.dumps(asdict(manifest), sort_keys=True, indent=1, allow_nan=False) + "\n"
    write_atomic(folder / MANIFEST, text.encode())
    return manifest


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, streamed."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write so that a reader, or a crash, sees the old file or the whole new one. Makes the parent folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename inside the folder survive a power cut, where the system can open folders (not on Windows)."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _names(folder: Path, exclude: Sequence[str]) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or name.as_posix() == MANIFEST or fnmatch(name.name, _TEMPORARY):
            continue
        if not any(fnmatch(name.as_posix(), pattern) or fnmatch(name.parts[0], pattern) for pattern in exclude):
            yield name.as_posix()


def _check(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{manifest.kind} {manifest.id}: {path} is missing; restore it or run the stage again")
        if file_sha256(path) != expected:
            raise ArtifactError(f"{manifest.kind} {manifest.id}: {path} differs from its manifest; restore it")
