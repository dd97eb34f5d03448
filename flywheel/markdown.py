"""What a flow leaves in the Prefect UI for a person to read: markdown, and one picture.

Pure text out of results and artefacts. Links work where `make ui` serves the workspace's pages (FLYWHEEL_PAGES_URL);
elsewhere the file's path stands in their place, for a browser does not follow a page of a server to a local file.
Not covered: the report itself (`page.py`), what the terminal shows (`terminal.py`, `outcome.py`).
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flywheel.page import level_name, rates_plot
from flywheel.report import Compared, collect
from flywheel.workspace import Workspace

PAGES_URL = "FLYWHEEL_PAGES_URL"
SERVED = ("reports", "validation")
"""Folders below data/ that `make ui` serves: pages that Flywheel wrote, no trace and no table."""

MARKUP = re.compile(r"[\\`*_\[\]<>|!#~]")
MARKS = {True: "passed", False: "not passed", None: "not judged"}


def batches_page(root: str, result: Mapping[str, Any]) -> str:
    """What `ingest` staged and what it left out, and each batch's verdict with a link to its Data Docs."""
    workspace = Workspace.find(root or None)
    staged = f"{result['trajectories']} trajectories from {result['files']} files, {result['quarantined']} quarantined"
    rows = [
        (
            judged["batch"],
            judged["state"],
            "; ".join((*judged["failed"], *judged["warnings"])) or "every expectation holds",
            link("Data Docs", workspace, judged["data_docs"]),
        )
        for judged in result["judged"]
    ]
    verdicts = table(("batch", "state", "found", "page"), rows) if rows else "No batch was waiting to be judged."
    left_out = "".join(f"- {text(sentence)}\n" for sentence in result.get("refused", ()))
    if left_out:
        verdicts += f"\n\nLeft out:\n\n{left_out}"
    return f"# Ingest\n\n{staged}.\n\n{verdicts}\n\nReaders see snapshot `{result['snapshot']}`.\n"


def decision_page(result: Mapping[str, Any]) -> str:
    """What the gate decided and why, and what is in production now."""
    gate = result["gate"]
    checks = [(check["name"], MARKS[check["passed"]], check["sentence"]) for check in gate["checks"]]
    return (
        f"# {gate['verdict']}\n\n{text(gate['sentence'])} {text(result['sentence'])}.\n\n"
        f"{table(('check', 'result', 'because'), checks)}\n\n"
        f"Decision `{gate['decision_id']}` on run `{result['run_id']}`; "
        f"in {result['stage']} now: {result['version']}.\n"
    )


def turn_page(root: str, result: Mapping[str, Any]) -> str:
    """The turn that `report` wrote its page about: decision, pass rates, what was fixed, where the page is."""
    workspace = Workspace.find(root or None)
    facts = collect(workspace)
    rates = [(level_name(c.name), c.tasks, rate(c, "before"), rate(c, "after")) for c in (facts.overall, *facts.levels)]
    sources = [(row["source"], row["kept"], row["dropped"]) for row in facts.sources]
    checks = [(check["name"], MARKS[check["passed"]], check["sentence"]) for check in facts.checks]
    return (
        f"# {facts.verdict}\n\n{text(facts.sentence)}\n\n"
        f"Fixed: {facts.fixed} held-out tasks went from never passing to passing every run; {facts.broken} the other "
        f"way; {facts.failing} still never pass.\n\n"
        f"## Pass rates\n\n{table(('held-out tasks', 'n', 'before [95%]', 'after [95%]'), rates)}\n\n"
        f"## Why\n\n{table(('check', 'result', 'because'), checks)}\n\n"
        f"## Learnt from\n\n{table(('source', 'rows kept', 'left out'), sources)}\n\n"
        f"The whole story: {link('report', workspace, Path(result['page']).relative_to(workspace.root).as_posix())}\n"
    )


def outcome_page(result: Mapping[str, Any]) -> str:
    """How a whole turn ended, in one sentence."""
    if not result["new"]:
        return f"# Nothing to do\n\n{text(result['why'])}.\n"
    return (
        f"# {result['verdict']}\n\nRun `{result['run']}` was judged; {result['version']} is in production.\n\n"
        "The subflow `report` has the pass rates and what was fixed; `flywheel show ID` follows any id.\n"
    )


def rates_picture(root: str) -> str:
    """Pass rates before and after as a picture that carries itself: a data: URI of an SVG."""
    facts = collect(Workspace.find(root or None))
    drawing = rates_plot((facts.overall, *facts.levels)).encode()
    return "data:image/svg+xml;base64," + base64.b64encode(drawing).decode("ascii")


class Markdown(str):
    """Text that is markdown already: `table` leaves it as it is."""

    __slots__ = ()


def link(words: str, workspace: Workspace, path: str) -> Markdown:
    """A link to a page of the workspace (`path` is relative to it), or its path where nobody serves it."""
    served = os.environ.get(PAGES_URL)
    folders = tuple(f"data/{folder}/" for folder in SERVED)
    if served and path.startswith(folders) and Workspace.find().root == workspace.root:
        return Markdown(f"[{words}]({served}/{quote(path.removeprefix('data/'))})")
    return Markdown(f"{words} `{workspace.root / path}`")


def rate(compared: Compared, side: str) -> str:
    """`0.417 [0.312, 0.531]`."""
    interval = getattr(compared, side)
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table; every cell is text, unless it is `Markdown`."""
    lines = [names, [Markdown("--")] * len(names), *rows]
    cells = [[cell if isinstance(cell, Markdown) else text(cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def text(value: Any) -> str:
    """One line of plain words: whatever stood in a trace can neither leave its cell nor become markup."""
    return MARKUP.sub(r"\\\g<0>", " ".join(str(value).split()))
