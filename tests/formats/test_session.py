"""Sessions of coding agents: their samples, and that no reader of them raises, whatever the data."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from sources import SOURCE, chunked, read
from test_samples import check_rows, swapped

from flywheel.formats.assemble import complete
from flywheel.formats.claude_code import ClaudeCode
from flywheel.formats.codex_cli import CodexCli
from flywheel.formats.copilot_cli import CopilotCli
from flywheel.formats.cursor import Cursor
from flywheel.formats.droid import Droid
from flywheel.formats.finish import finish
from flywheel.formats.gemini_cli import GeminiCli
from flywheel.formats.hermes_agent import HermesAgent
from flywheel.formats.mini_swe_agent import MiniSweAgent
from flywheel.formats.omp import Omp
from flywheel.formats.openclaw import OpenClaw
from flywheel.formats.opencode import OpenCode
from flywheel.formats.openhands import OpenHands
from flywheel.formats.pi_agent import PiAgent
from flywheel.formats.read import read_head, read_records
from flywheel.formats.reader import Reader, Record
from flywheel.formats.session import exit_code
from flywheel.formats.swe_agent import SweAgent
from flywheel.formats.swe_bench_results import SweBenchResults
from flywheel.records import Fragment, Reject

NAMES = {
    "copilot-cli": "copilot_cli", "cursor": "cursor", "droid": "droid", "gemini-cli": "gemini_cli",
    "hermes": "hermes_agent", "opencode": "opencode",
}  # fmt: skip


def test_the_samples(samples: Path) -> None:
    for agent, name in NAMES.items():
        for path in sorted((samples / "other_agents").glob(f"{agent}_*")):
            outcome = read(path.read_bytes())
            assert (outcome.format, len(outcome.fragments)) == (name, 1), path.name
            expected = ["invalid_json"] if path.name == "copilot-cli_cleanup_input.jsonl" else []
            assert [reject.code for reject in outcome.rejects] == expected
            failed = [call.result_state for call in outcome.only.tool_calls]
            assert ("error" in failed) == ("cleanup" in path.name and agent != "hermes"), path.name


def test_exit_codes_are_those_of_the_shell_and_not_of_what_a_command_printed() -> None:
    for text, code in (
        ("Chunk ID: a\nProcess exited with code 2\nOutput:\n", 2),
        ("Exit code 127\nnot found", 127),
        ("Exit code: 0\nWall time: 1s", 0),
        ("a\nb\n<exited with exit code 1>", 1),
        ("out\n\nCommand exited with code 3", 3),
        ("find_rows returned 5 rows", None),
        ("the child process said: Exit code 9", None),
        ("x\n" * 300 + "Exit code: 9\n" + "y\n" * 300, None),
        (None, None),
    ):
        assert exit_code(text) == code, text


# --- No reader raises -------------------------------------------------------------------------------------------

AGENTS: tuple[Reader, ...] = (
    ClaudeCode(), CodexCli(), CopilotCli(), Cursor(), Droid(), GeminiCli(), HermesAgent(), MiniSweAgent(), Omp(),
    OpenClaw(), OpenCode(), OpenHands(), PiAgent(), SweAgent(), SweBenchResults(),
)  # fmt: skip
FOLDERS = ("claude_code", "mini_swe_agent", "openhands", "other_agents", "swe_agent")


def seeds(samples: Path) -> list[tuple[Reader, list[Any]]]:
    """For each reader, the records of the small samples that are of its format."""
    found: list[tuple[Reader, list[Any]]] = []
    for path in sorted(file for folder in FOLDERS for file in (samples / folder).rglob("*") if file.is_file()):
        chunks = chunked(path.read_bytes())
        head = read_head(chunks)
        reader, match = max(
            ((reader, match) for reader in AGENTS if (match := reader.sniff(head)) is not None),
            key=lambda pair: pair[1].confidence,
        )
        records = [item.value for item in read_records(chunks, match.unit) if isinstance(item, Record)]
        if path.stat().st_size < 60_000:
            found.append((reader, records))
    return found


def test_no_reader_raises_on_odd_values(samples: Path) -> None:
    rng = random.Random("agents")
    of_reader = seeds(samples)
    assert {reader.name for reader, _ in of_reader} == {reader.name for reader in AGENTS}
    for _ in range(25):
        for reader, values in of_reader:
            records = [Record(ix=ix, offset=0, length=9, value=swapped(value, rng)) for ix, value in enumerate(values)]
            rng.shuffle(records) if rng.random() < 0.2 else None
            for item in reader.read(iter(records), SOURCE):
                if isinstance(item, Fragment):
                    for whole in finish(item):
                        check_rows(whole)
                        complete(whole)


def test_readers_refuse_what_is_of_no_agent() -> None:
    for reader in AGENTS:
        for value in (None, 1, "x", [], {}, {"v": 1}, [1], {"type": None}):
            record = Record(ix=0, offset=0, length=9, value=value)
            assert [type(item) for item in reader.read(iter([record]), SOURCE)] == [Reject], (reader.name, value)
