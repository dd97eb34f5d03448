"""Every extra resolves: what is installed here satisfies its own; the two that live apart do so in an empty place."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
APART = {"serve": [], "ray": ["-c", str(ROOT / "constraints.txt")]}


def resolved(python: str, *arguments: str) -> list[str]:
    """Names that pip would install. Fails with pip's own words if nothing fits."""
    command = [python, "-m", "pip", "install", "--dry-run", "--quiet", "--no-build-isolation", "--report", "-"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(item["metadata"]["name"].lower() for item in json.loads(done.stdout)["install"])


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - set(APART)))
def test_what_is_installed_satisfies_the_extra(extra: str) -> None:
    assert resolved(sys.executable, "-c", "constraints.txt", f".[{extra}]") == ["flywheel"]


@pytest.mark.parametrize("extra", sorted(APART))
def test_an_extra_with_an_environment_of_its_own_resolves_alone(extra: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "apart")], check=True)
    names = resolved(
        str(tmp_path / "apart" / "bin" / "python"), *APART[extra], *PROJECT["dependencies"], *EXTRAS[extra]
    )
    assert {requirement.split(">")[0] for requirement in EXTRAS[extra]} <= set(names)
