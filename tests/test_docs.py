"""The documents are held against a workspace after a real turn: every query of docs/sql.md, every command of README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import duckdb
import pytest
from scripted import SCRIPTED
from turns import Turned

import flywheel
from flywheel.__main__ import cli
from flywheel.formats.sniff import READERS
from flywheel.ingest import ingest
from flywheel.triage import triage
from flywheel.validate import validate
from flywheel.workspace import Workspace

ROOT = Path(__file__).parents[1]
SQL = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
# (the question, its query)
QUESTIONS = re.findall(r"^([^\n]+)\n\n```sql\n(.*?)```", SQL, re.M | re.S)
# Documents answered by a single message make no tool calls, and nothing of this turn was refused.
WITHOUT_ROWS = {
    "Which tool calls had arguments that are no JSON object, verbatim?",
    "Which errors do tools answer with, alike messages together?",
    "Which agents ran in circles: the same call, the same arguments, nothing else between?",
}


def test_there_are_a_dozen_questions() -> None:
    assert len(QUESTIONS) == SQL.count("```sql") >= 12


@pytest.mark.parametrize(("question", "query"), QUESTIONS, ids=[q[:40] for q, _ in QUESTIONS])
def test_every_query_answers(turned_once: Turned, question: str, query: str) -> None:
    """Through flywheel.connect(), and the same through plain duckdb on the file, read-only and without extensions."""
    workspace = turned_once.workspace
    with flywheel.connect(workspace.root) as con:
        rows = con.sql(query).fetchall()
    assert bool(rows) != (question in WITHOUT_ROWS)
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(str(workspace.lake_file), read_only=True, config=settings) as con:
        con.execute("set TimeZone = 'UTC'")
        plain = con.sql(query).fetchall()
    assert sorted(map(repr, plain)) == sorted(map(repr, rows))


@pytest.fixture(scope="module")
def sample_lake(initialised: Workspace, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Real traces of other people's agents, labelled: what the turn's own lake has no rows of."""
    root = tmp_path_factory.mktemp("sampled") / "w"
    shutil.copytree(initialised.root, root, symlinks=True)
    workspace = Workspace(root)
    ingest(workspace, SCRIPTED, [samples / "tau_bench", samples / "malformed", samples / "openai_chat"])
    validate(workspace, SCRIPTED)
    triage(workspace, SCRIPTED)
    return workspace


def test_what_tools_answered_and_loops_in_real_traces(sample_lake: Workspace) -> None:
    """Every query of the page runs there too; those about tools find something."""
    with flywheel.connect(sample_lake.root) as con:
        found = {question: con.sql(query).fetchall() for question, query in QUESTIONS}
    assert all(found[question] for question in WITHOUT_ROWS)


def test_the_page_of_formats_names_every_reader() -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(reader.name for reader in READERS)


def test_the_notebook_runs(sample_lake: Workspace, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "notebooks" / "failures.py")]
    environment = {**os.environ, "FLYWHEEL_ROOT": str(sample_lake.root)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_file_opens_in_a_process_that_has_only_duckdb(turned_once: Turned, tmp_path: Path) -> None:
    script = (
        "import duckdb, sys\n"
        "con = duckdb.connect(sys.argv[1], read_only=True)\n"
        "print(con.sql('from failures_by_tool').fetchall())\n"
        "assert 'flywheel' not in sys.modules\n"
    )
    command = [sys.executable, "-c", script, str(turned_once.workspace.lake_file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "answer.wrong" in done.stdout


def test_every_command_in_the_documents_is_one() -> None:
    """`flywheel …` wherever a document shows it: known verbs, known options."""
    shown = re.findall(r"(?:`|^|^ +)flywheel +([^`\n]+)", README + SQL, re.M)
    assert len(shown) > 15
    for line in shown:
        words = shlex.split(line.split("   ")[0].replace("…", ""), comments=True)
        command: click.Command = cli
        while words:
            word = words.pop(0)
            options = {name for parameter in command.params for name in parameter.opts}
            if word.startswith("-"):
                assert word in options, f"flywheel {line}: {word}"
                if word == "--root":
                    words.pop(0)
            elif isinstance(command, click.Group):
                assert word in command.commands, f"flywheel {line}: {word}"
                command = command.commands[word]


def test_every_make_target_in_readme_is_one() -> None:
    targets = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    known = {name for line in targets for name in line.split()}
    shown = set(re.findall(r"(?:`|^)make ([a-z-]+)", README, re.M))
    assert shown
    assert shown <= known


def test_the_file_opens_in_a_duckdb_older_than_the_library(turned_once: Turned) -> None:
    """DuckDB refuses files of a newer storage version; 65 is that of DuckDB 1.2, which every later release reads."""
    header = turned_once.workspace.lake_file.read_bytes()[:20]
    assert header[8:12] == b"DUCK"
    assert int.from_bytes(header[12:20], "little") <= 65
