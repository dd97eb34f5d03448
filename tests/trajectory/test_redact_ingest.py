"""Nothing personal gets through ingest: planted in every text of real traces, in file names, late scores and ruins."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from test_ingest import make_workspace, staged, write

from flywheel.config import Config, RedactionSection
from flywheel.ingest import IngestResult, ingest
from flywheel.store.lake import Lake

MAIL, CARD, KEY = "jane.planted@corp-mail.example", "4929 1234 5678 9015", "ghp_planted" + "a1" * 15
NEEDLES = ("planted@", "ghp_planted", "5678 9015")
FILES = [
    "openai_chat/multimodal_messages.json", "tau_bench/gpt-4o-airline.json", "atif", "langfuse", "langsmith", "otlp",
    "openinference", "claude_code", "inspect", "anthropic_messages", "openai_responses", "mini_swe_agent", "verifiers",
]  # fmt: skip
MOST = 150_000  # bytes of a file: larger ones say nothing more


def plant(value: Any, key: str = "") -> Any:
    """Every text that somebody wrote, with something planted in it; types and ids stay, or nothing reads it."""
    if isinstance(value, dict):
        planted = {name: plant(item, name) for name, item in value.items()}
        return {**planted, f"note of {MAIL}": CARD} if key in ("metadata", "extra", "attributes") else planted
    if isinstance(value, list):
        return [plant(item, key) for item in value]
    if isinstance(value, str) and " " in value and not value.lstrip().startswith(("{", "[")):
        return f"{value} {MAIL}, {CARD} {KEY}"
    return value


def planted_files(samples: Path, to: Path) -> list[Path]:
    """JSON and JSONL files of many formats, planted; each once more cut in the middle, for the quarantine."""
    found = []
    for name in FILES:
        root = samples / name
        for path in sorted(root.rglob("*.json*")) if root.is_dir() else [root]:
            data = path.read_bytes()
            if len(data) > MOST and root.is_dir():
                continue
            try:
                records = [json.loads(data)]
            except ValueError:
                try:
                    records = [json.loads(line) for line in data.splitlines() if line.strip()]
                except ValueError:
                    continue
            if path.name.startswith("gpt-4o"):
                records = [records[0][:3]]
            place = to / f"{len(found)} of {MAIL}{path.suffix}"
            found.append(write(place, *(plant(record) for record in records)))
            cut = place.read_bytes()
            found.append(write(to / f"cut {place.name}", cut[: len(cut) // 2]))
    return found


def test_nothing_planted_in_any_column_of_any_format_is_stored(
    samples: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    workspace = make_workspace(tmp_path / "w")
    files = planted_files(samples, tmp_path / "in")
    scores = {
        "id": "score-1",
        "traceId": "t-1",
        "name": "angry",
        "value": 0,
        "comment": f"{MAIL} is angry",
        "source": "API",
    }
    files.append(write(tmp_path / "in" / "scores.jsonl", scores, f'{{"broken {MAIL}": "{CARD}'.encode()))
    result = ingest(workspace, Config(), files)
    assert len(result.formats) >= 8, result.formats
    assert result.trajectories > 40
    assert result.quarantined > 5
    tables = staged(workspace, result)
    for name in ("trajectory", "step", "tool_call", "quarantine", "source_file", "span", "outcome"):
        assert tables[name], f"nothing in {name}: the test shows less than it says"
    for name, rows in tables.items():
        for row in rows:
            for column, value in row.items():
                assert not any(needle in _plain(value) for needle in NEEDLES), (name, column, value)
    said = capsys.readouterr()
    assert not any(needle in caplog.text + said.out + said.err + repr(result) for needle in NEEDLES)
    counted = _counted(tables)
    assert min(counted["redacted EMAIL"], counted["redacted CARD"], counted["redacted API_KEY"]) > 100


def _plain(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _counted(tables: dict[str, list[dict[str, Any]]]) -> Counter[str]:
    counted = Counter[str]()
    for source in tables["source_file"]:
        counted.update({k: n for k, n in json.loads(source["loss_report"] or "{}").items() if k != "redaction"})
    return counted


def test_off_is_in_the_manifest_and_makes_another_batch(tmp_path: Path) -> None:
    results: list[IngestResult] = []
    record = {"id": "trace-000000000001", "messages": [{"role": "user", "content": f"I am {MAIL}"}]}
    for mode in ("on", "off"):
        workspace = make_workspace(tmp_path / mode)
        config = Config(redaction=RedactionSection(mode=mode))
        results.append(ingest(workspace, config, [write(tmp_path / "in.jsonl", record)]))
        rows = staged(workspace, results[-1])
        assert (MAIL in rows["step"][0]["content"]) == (mode == "off")
        manifest = (workspace.staging / (results[-1].batch or "") / "manifest.json").read_text()
        assert ('"mode": "off"' in manifest or '"mode":"off"' in manifest) == (mode == "off")
        assert Lake(workspace).staged() == [results[-1].batch]
    assert results[0].batch != results[1].batch
