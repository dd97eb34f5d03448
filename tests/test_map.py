"""The map is held against the territory: README tree, verbs, layers, doors, flows and configuration keys.

A module in the wrong layer, a verb without a row, a flow without a deployment is a failing test, not a surprise.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

LAYERS: list[tuple[str, tuple[str, ...]]] = [
    ("L0", ("flywheel.records", "flywheel.ledger", "flywheel.errors", "flywheel.config", "flywheel.progress",
            "flywheel.saferegex",
            "flywheel.workspace")),
    ("L1", ("flywheel.formats", "flywheel.trajectory", "flywheel.curriculum", "flywheel.statistics")),
    ("L2", ("flywheel.store", "flywheel.environment")),
    ("L3", ("flywheel.trainers",)),
    ("L4", ("flywheel.init", "flywheel.tasksets", "flywheel.traffic", "flywheel.ingest", "flywheel.validate",
            "flywheel.ingest_source", "flywheel.ingest_pool", "flywheel.ingest_rejoin",
            "flywheel.datadocs", "flywheel.triage", "flywheel.repair", "flywheel.curate", "flywheel.train",
            "flywheel.evaluate", "flywheel.gate", "flywheel.promote", "flywheel.rollback", "flywheel.history",
            "flywheel.report", "flywheel.page", "flywheel.show", "flywheel.export", "flywheel.erase",
            "flywheel.maintain",
            "flywheel.champion", "flywheel.turn", "flywheel.serve", "flywheel.reverify")),
    ("L5", ("flywheel.stages", "flywheel.terminal", "flywheel.outcome", "flywheel.markdown")),
    ("L6", ("flows", "flywheel.demo", "flywheel.commands", "flywheel.__main__")),
]  # fmt: skip

# What one verb may use of another: helpers that are no verbs themselves.
BESIDE_VERBS = {
    "flywheel.ingest_source",
    "flywheel.ingest_pool",
    "flywheel.ingest_rejoin",
    "flywheel.page",
    "flywheel.datadocs",
    "flywheel.champion",
}

DOORS = {
    "prefect": ("flows/",),
    "torch": ("flywheel/trainers/",),
    "trl": ("flywheel/trainers/",),
    "transformers": ("flywheel/trainers/",),
    "peft": ("flywheel/trainers/",),
    "duckdb": ("flywheel/store/lake", "flywheel/__init__.py"),
    "deltalake": ("flywheel/store/lake",),
    "great_expectations": ("flywheel/validate.py",),
    "hyperscan": ("flywheel/trajectory/scan.py",),
    "re2": ("flywheel/saferegex.py",),
    "dvc": ("flywheel/store/registry",),
    "gto": ("flywheel/store/registry",),
    "boto3": ("flywheel/store/objects",),
    "botocore": ("flywheel/store/objects", "flywheel/store/lake_s3"),
}


def modules() -> list[Path]:
    return sorted(p for folder in ("flywheel", "flows") for p in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(imported module, only for type checking) for every import in the file, wherever it stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                known = (ROOT / full.replace(".", "/")).with_suffix(".py").exists()
                yield (full if known else node.module), id(node) in typing_only


def layer(module: str) -> int | None:
    best: tuple[int, int] | None = None
    for number, (_, prefixes) in enumerate(LAYERS):
        for prefix in prefixes:
            if module == prefix or module.startswith(prefix + "."):
                best = max(best or (0, 0), (len(prefix), number))
    return None if best is None else best[1]


def test_every_module_has_a_layer() -> None:
    homeless = [name_of(p) for p in modules() if name_of(p) != "flywheel" and layer(name_of(p)) is None]
    assert not homeless, f"give these modules a layer in LAYERS: {homeless}"


def test_imports_go_downward_only() -> None:
    wrong = []
    for path in modules():
        here = layer(name_of(path))
        if here is None:
            continue
        for target, typing_only in imports(path):
            there = layer(target)
            if there is not None and there > here and not typing_only:
                wrong.append(f"{name_of(path)} ({LAYERS[here][0]}) imports {target} ({LAYERS[there][0]})")
    assert not wrong, "\n".join(wrong)


def test_a_verb_never_imports_a_verb() -> None:
    verbs = set(dict(LAYERS)["L4"]) - BESIDE_VERBS
    wrong = [
        f"{name_of(path)} imports {target}"
        for path in modules()
        if name_of(path) in verbs
        for target, typing_only in imports(path)
        if target in verbs and target != name_of(path) and not typing_only
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(DOORS))
def test_one_door_per_library(library: str) -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in modules()
        for target, _ in imports(path)
        if target.split(".")[0] == library and not str(path.relative_to(ROOT)).startswith(DOORS[library])
    ]
    assert not wrong, f"{library} is imported outside {DOORS[library]}: {wrong}"


def test_readme_tree_names_every_folder_and_verb() -> None:
    block = README.split("## Layout", 1)[1].split("```")[1]
    named = set(re.findall(r"\b([a-z_0-9]+)(?:\.py\b|/)", block))
    folders = {p.name for p in (ROOT / "flywheel").iterdir() if p.is_dir() and not p.name.startswith("__")}
    files = {p.stem for p in (ROOT / "flywheel").glob("*.py") if not p.stem.startswith("__")}
    flows = {p.stem for p in (ROOT / "flows").glob("*.py") if not p.stem.startswith("__")}
    missing = {n for n in folders | files | flows if n not in named}
    assert not missing, f"README's tree does not name {sorted(missing)}"


def test_readme_tree_names_nothing_that_is_gone() -> None:
    block = README.split("## Layout", 1)[1].split("```")[1]
    names = re.findall(r"\b([a-z_0-9]+\.py\b|[a-z_0-9]+/)", block)
    gone = [name for name in names if not any(ROOT.glob(f"**/{name.rstrip('/')}"))]
    assert not gone, f"README's tree names {gone}, which do not exist"


def test_readme_lists_every_cli_verb_and_no_other() -> None:
    from flywheel.__main__ import cli

    table = README.split("## Commands", 1)[1].split("\n## ", 1)[0]
    listed = set(re.findall(r"^\| `flywheel ([a-z]+)", table, re.M))
    assert listed == set(cli.commands)


def test_configuration_file_has_exactly_the_keys_of_the_code() -> None:
    """`flywheel init` writes every key with its meaning; what it writes reads back as the defaults."""
    from flywheel.config import Config
    from flywheel.init import config_text

    text = config_text(Config())
    written = tomllib.loads(text)
    declared = {
        name: set(section.annotation.model_fields)  # type: ignore[union-attr]
        for name, section in Config.model_fields.items()
    }
    assert {name: set(keys) for name, keys in written.items()} == declared
    assert Config.model_validate(written) == Config()
    assert "None" not in text, "a field has no docstring"


def test_every_stage_has_a_flow_and_the_order_runs_them_all() -> None:
    from flywheel.stages import STAGES

    files = {p.stem for p in (ROOT / "flows").glob("*.py")} - {"__init__", "observed", "turn"}
    assert set(STAGES) <= files
    source = (ROOT / "flows" / "turn.py").read_text(encoding="utf-8")
    body = source.split("def order(", 1)[1].split("\n@flow", 1)[0]
    assert re.findall(r'turn\.run\("(\w+)"', body) == [stage for stage in STAGES if stage != "maintain"]


def test_readme_lists_every_deployment_with_its_trigger() -> None:
    section = README.split("## Deployments", 1)[1].split("\n## ", 1)[0]
    listed = {
        name: (trigger, re.findall(r"`([^`]+)`", trigger))
        for name, trigger in re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.M)
    }
    assert set(listed) == {deployment["name"] for deployment in DEPLOYMENTS}
    for deployment in DEPLOYMENTS:
        trigger, crons = listed[deployment["name"]]
        assert crons == [schedule["cron"] for schedule in deployment.get("schedules", [])]
        assert trigger.startswith("by hand") == (not crons)


def test_every_flow_is_deployed_under_its_own_name() -> None:
    from prefect import Flow

    for deployment in DEPLOYMENTS:
        path, function = deployment["entrypoint"].split(":")
        assert (ROOT / path).is_file(), deployment["entrypoint"]
        flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), function)
        assert isinstance(flow, Flow), deployment["entrypoint"]
        assert flow.name == function == deployment["name"]
    with_flows = {p.stem for p in (ROOT / "flows").glob("*.py") if re.search(r"^@flow\b", p.read_text("utf-8"), re.M)}
    assert with_flows == {deployment["name"] for deployment in DEPLOYMENTS}


def test_help_answers_at_once() -> None:
    """No slow import at start-up: none of the heavy libraries may be loaded by `--help`."""
    script = (
        "import sys\nfrom flywheel.__main__ import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'prefect', 'pyarrow', 'duckdb', 'pydantic', 'dvc', 'gto', 'great_expectations', 'numpy'}\n"
        "loaded = heavy & set(sys.modules)\nassert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
