"""One family of errors. Each says which boundary failed, which id, and what to do about it.

The command line prints `str(error)` and exits 1; a flow's state message is the same sentence.
Not covered: programming errors. They are not caught anywhere and surface as tracebacks.
Keep the classes picklable (positional arguments only), they cross process boundaries.
"""

from __future__ import annotations


class FlywheelError(Exception):
    """A refusal or failure with a sentence a person can act on. `boundary` names what was crossed."""

    boundary = "flywheel"


class ConfigError(FlywheelError, ValueError):
    """flywheel.toml or an argument says something impossible."""

    boundary = "config"


class WorkspaceError(FlywheelError, FileNotFoundError):
    """The folder is no workspace, or a part of it that a stage needs is missing."""

    boundary = "workspace"


class ObjectError(FlywheelError, OSError):
    """A store of objects can't be reached or refuses: infrastructure, so no object is quarantined for it."""

    boundary = "objects"


class ObjectUnread(ObjectError):
    """This one file or object can't be read; the others are no worse for it."""


class ObjectGone(ObjectUnread):
    """The object was listed, and is not there any more."""


class FormatError(FlywheelError, ValueError):
    """Bytes that no reader accepts, or that the named reader refuses."""

    boundary = "formats"


class LakeError(FlywheelError, RuntimeError):
    """The lake refused a write, or a snapshot that was asked for does not exist."""

    boundary = "lake"


class ValidationError(FlywheelError, ValueError):
    """A batch or curriculum failed its expectations and stays where it was."""

    boundary = "validate"


class ArtifactError(FlywheelError, RuntimeError):
    """An artefact is missing, unfinished, or differs from its manifest."""

    boundary = "artifacts"


class PolicyError(FlywheelError, RuntimeError):
    """A policy could not be opened or could not answer: infrastructure, never a wrong answer."""

    boundary = "policy"


class SandboxError(FlywheelError, RuntimeError):
    """The sandbox itself failed: infrastructure, so the verdict is None and never 0."""

    boundary = "sandbox"


class TrainingError(FlywheelError, RuntimeError):
    """A training run can't start or had to stop; names the rows or the step."""

    boundary = "train"


class GateError(FlywheelError, ValueError):
    """Two reports that can't be compared (other task set, other k, other policy)."""

    boundary = "gate"


class RegistryError(FlywheelError, RuntimeError):
    """git, DVC or GTO refused; the old stage assignment still holds."""

    boundary = "registry"
