"""The redaction key: the secret that redaction hashes people's names with, so that equal ones stay equal.

From FLYWHEEL_REDACTION_KEY where that is set (several machines of one team), else from a file inside the workspace that
only its owner can read and git never sees.

Not covered: what is redacted and how (trajectory/redact.py), changing the key (names would no longer match).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from flywheel.errors import WorkspaceError
from flywheel.workspace import Workspace

VARIABLE = "FLYWHEEL_REDACTION_KEY"
KEY_BYTES = 32


def redaction_key(workspace: Workspace) -> bytes:
    """The key's bytes. Errors: WorkspaceError if there is neither the variable nor the file."""
    if text := os.environ.get(VARIABLE):
        return text.encode()
    path = key_file(workspace)
    if not path.is_file():
        raise WorkspaceError(
            f"no redaction key: set {VARIABLE}, or run `flywheel init {workspace.root}` to make {path}"
        )
    return path.read_bytes()


def make_redaction_key(workspace: Workspace) -> None:
    """Make the key file, unless it is there or the environment holds the key."""
    path = key_file(workspace)
    if os.environ.get(VARIABLE) or path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.tmp")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        stream.write(secrets.token_hex(KEY_BYTES).encode())
    part.replace(path)


def key_file(workspace: Workspace) -> Path:
    """Where the key lies when it isn't in the environment."""
    return workspace.root / ".flywheel" / "redaction.key"
