"""One registered version of the policy: its origin, which travels in its git tag, and its place among the others.

Not covered: making and finding them (`store/registry.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flywheel.errors import RegistryError

FIRST_VERSION = "v0.1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a version came from; it travels as the message of the version's tag."""

    run_id: str | None  # None: the base policy
    decision_id: str | None
    weights_sha256: str  # identity of the policy
    content_sha256: str  # of the whole folder, see `folder_sha256`
    forced_by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One registered version: the commit that holds it, its origin, and the stages it stands in now."""

    version: str
    git_rev: str
    registered_at: datetime
    entry: Entry
    stages: tuple[str, ...] = ()


def version_of(row: dict[str, Any]) -> Version:
    """GTO's row of a version as ours. Errors: RegistryError if the tag was made by other hands, without an entry."""
    registration = row["registrations"][0]
    _, _, text = registration["message"].partition("\n\n")
    try:
        entry = Entry(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise RegistryError(
            f"tag {registration['tag']} was not made by flywheel (its message holds no origin: {error}): "
            f"delete it here and on the remote, then promote that run again"
        ) from error
    return Version(
        version=row["version"],
        git_rev=row["commit_hexsha"],
        registered_at=utc(registration["created_at"]),
        entry=entry,
        stages=tuple(sorted({stage["stage"] for stage in row["stages"]})),
    )


def utc(moment: datetime) -> datetime:
    """The moment in UTC: a tag carries the time zone of whoever made it."""
    return moment.astimezone(UTC)


def semver(version: str) -> tuple[int, ...]:
    """`v0.10.0` as numbers, which sort as versions do."""
    return tuple(int(part) for part in version.removeprefix("v").split("."))


def bump(version: str) -> str:
    """The version after this one: a promotion is a minor step."""
    major, minor, _ = semver(version)
    return f"v{major}.{minor + 1}.0"
