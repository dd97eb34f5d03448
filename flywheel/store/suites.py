"""Expectation suites as files: one YAML a lake table, packaged here, overridden by a workspace's own file.

`flywheel/expectations/<table>.yaml` hold the defaults; `<workspace>/expectations/<table>.yaml` replaces one of them.
How a check is written stands at the head of `source_file.yaml`. Not covered: judging (`flywheel/validate.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flywheel.errors import ConfigError
from flywheel.store.tables import TABLES

PACKAGED = Path(__file__).parent.parent / "expectations"
SEVERITIES = ("fail", "warn")
_KINDS = ("expect", "offenders", "value")
_KEYS = {"says", "severity", "column", "with", "min", "max", *_KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: an expectation on a column, SQL that finds offending rows, or SQL that gives one number."""

    says: str
    severity: str  # fail|warn
    column: str | None = None
    expect: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    offenders: str | None = None
    value: str | None = None
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The checks of one table; `sha256` is of the file's bytes."""

    table: str
    path: Path
    sha256: str
    checks: tuple[Check, ...]


def load_suites(workspace_folder: Path) -> list[Suite]:
    """The suite of each table: the workspace's own file where there is one. Errors: ConfigError naming the check."""
    files = {path.stem: path for folder in (PACKAGED, workspace_folder) for path in sorted(folder.glob("*.yaml"))}
    return [read_suite(path) for _, path in sorted(files.items())]


def read_suite(path: Path) -> Suite:
    """One suite file. Errors: ConfigError naming the file, the check and what it lacks."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    raw = path.read_bytes()
    try:
        read = YAML(typ="safe").load(raw.decode())
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(read, dict) or read.get("table") != path.stem or path.stem not in TABLES:
        raise ConfigError(f"{path} must say `table: {path.stem}`, and {path.stem} must be a table of the lake")
    checks = read.get("checks")
    if not isinstance(checks, list) or not checks:
        raise ConfigError(f"{path} has no list of `checks`; delete the file to get the packaged ones back")
    return Suite(
        table=path.stem,
        path=path,
        sha256=hashlib.sha256(raw).hexdigest(),
        checks=tuple(_check(path, place, check) for place, check in enumerate(checks, start=1)),
    )


def _check(path: Path, place: int, read: object) -> Check:
    where = f"{path}, check {place}"
    if not isinstance(read, dict) or not isinstance(read.get("says"), str):
        raise ConfigError(f"{where}: `says` is missing, the sentence that must hold")
    where = f"{where} ({read['says']!r})"
    unknown = sorted(set(map(str, read)) - _KEYS)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}")
    if read.get("severity") not in SEVERITIES:
        raise ConfigError(f"{where}: `severity` must be fail or warn, not {read.get('severity')!r}")
    if sum(kind in read for kind in _KINDS) != 1 or ("expect" in read) != ("column" in read):
        raise ConfigError(f"{where}: give either `column` and `expect`, or `offenders`, or `value`")
    if "column" in read and read["column"] not in TABLES[path.stem].schema.names:
        raise ConfigError(f"{where}: the table {path.stem} has no column {read['column']!r}")
    if "value" in read and read.get("min") is None and read.get("max") is None:
        raise ConfigError(f"{where}: a `value` needs `min`, `max` or both")
    return Check(
        says=read["says"],
        severity=read["severity"],
        column=read.get("column"),
        expect=read.get("expect"),
        arguments=read.get("with") or {},
        offenders=read.get("offenders"),
        value=read.get("value"),
        min=read.get("min"),
        max=read.get("max", 0 if "offenders" in read else None),
    )
