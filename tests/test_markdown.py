"""Words from traces stay words in the UI, and links appear only where somebody serves the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from flywheel.markdown import PAGES_URL, Markdown, batches_page, decision_page, link, outcome_page, table, text
from flywheel.workspace import Workspace

PAGE = "data/validation/batch-1/index.html"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    (tmp_path / "flywheel.toml").touch()
    monkeypatch.setenv("FLYWHEEL_ROOT", str(tmp_path))
    return Workspace(tmp_path)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a | b", r"a \| b"),
        ("one\n# two", r"one \# two"),
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)\>"),
        ("[click](javascript:alert(1))", r"\[click\](javascript:alert(1))"),
        ("`code` *bold* \\|", r"\`code\` \*bold\* \\\|"),
    ],
)
def test_words_can_not_become_markup(hostile: str, shown: str) -> None:
    assert text(hostile) == shown
    assert table(("x",), [(hostile,)]).splitlines()[-1] == f"| {shown} |"


def test_markdown_of_our_own_stays() -> None:
    assert table(("a", "b"), [(1, Markdown("[x](y)"))]) == "| a | b |\n| -- | -- |\n| 1 | [x](y) |"


def test_a_page_is_linked_where_it_is_served(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert link("Data Docs", place, PAGE) == f"Data Docs `{place.root / PAGE}`"
    monkeypatch.setenv(PAGES_URL, "http://127.0.0.1:4201")
    assert link("Data Docs", place, PAGE) == "[Data Docs](http://127.0.0.1:4201/validation/batch-1/index.html)"


def test_what_is_not_served_is_not_linked(
    place: Workspace, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAGES_URL, "http://127.0.0.1:4201")
    other = Workspace(tmp_path_factory.mktemp("other"))
    assert link("Data Docs", other, PAGE) == f"Data Docs `{other.root / PAGE}`"
    assert "http" not in link("lake", place, "data/lake.duckdb")


def test_a_failed_batch_stands_with_its_reasons(place: Workspace) -> None:
    judged = {
        "batch": "batch-1",
        "state": "failed",
        "failed": ("3 rows | have no steps",),
        "warnings": ("1 row is long",),
        "data_docs": PAGE,
    }
    result = {"trajectories": 3, "files": 1, "quarantined": 2, "judged": [judged], "snapshot": None}
    page = batches_page(str(place.root), result)
    assert "3 trajectories from 1 files, 2 quarantined." in page
    assert r"| batch-1 | failed | 3 rows \| have no steps; 1 row is long |" in page
    assert "No batch was waiting" in batches_page(str(place.root), {**result, "judged": []})
    assert "Left out" not in page
    assert "- pipe\\|x is no file\n" in batches_page(str(place.root), {**result, "refused": ("pipe|x is no file",)})


def test_a_refused_promotion_says_what_is_missing() -> None:
    checks = [{"name": "groups", "passed": False, "sentence": "9 groups; 12 are needed."}]
    gate = {
        "verdict": "INCONCLUSIVE",
        "sentence": "Too little evidence.",
        "checks": checks,
        "decision_id": "decision-1",
    }
    page = decision_page(
        {"gate": gate, "sentence": "nothing moves", "run_id": "r", "stage": "production", "version": "v0"}
    )
    assert page.startswith("# INCONCLUSIVE\n\nToo little evidence. nothing moves.\n")
    assert "| groups | not passed | 9 groups; 12 are needed. |" in page


def test_nothing_to_do_says_why() -> None:
    assert outcome_page({"new": False, "why": "nothing new since the last turn"}) == (
        "# Nothing to do\n\nnothing new since the last turn.\n"
    )
