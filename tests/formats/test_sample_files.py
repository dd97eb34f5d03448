"""Every sample file loads: a trajectory or more and nothing refused, but for the files in `sample_table.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_table import EXPECTED, HELD
from sources import SOURCE, chunked, read_chunks

from flywheel.formats.reader import Source


def files(samples: Path, folder: str) -> list[Path]:
    return sorted(path for path in (samples / folder).rglob("*") if path.is_file())


@pytest.mark.parametrize("folder", HELD)
def test_every_file_loads_or_says_why_not(samples: Path, folder: str) -> None:
    wrong = []
    for path in files(samples, folder):
        name = path.relative_to(samples).as_posix()
        outcome = read_chunks(chunked(path.read_bytes()), source=Source(source_id=SOURCE.source_id, uri=name))
        codes = tuple(reject.code for reject in outcome.rejects)
        expected = EXPECTED.get(name, ((), ""))[0]
        if codes != expected or (name not in EXPECTED and not outcome.fragments):
            wrong.append(f"{name}: {outcome.format}, {len(outcome.fragments)} trajectories, refused {codes}")
    assert not wrong, "\n".join(wrong)


def test_the_table_names_files_that_there_are(samples: Path) -> None:
    assert sorted(HELD) == sorted(path.name for path in samples.iterdir() if path.is_dir())
    assert not [name for name in EXPECTED if not (samples / name).is_file()]
    assert all(codes or reason for codes, reason in EXPECTED.values())
