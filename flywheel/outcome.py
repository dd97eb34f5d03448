"""The demo's last words: what the turn did, as a table in the terminal, and three commands to try next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flywheel.page import FUNNEL_NAMES, level_name
from flywheel.report import Compared, Facts, collect
from flywheel.statistics.intervals import Interval
from flywheel.workspace import Workspace


def print_outcome(workspace: Workspace, result: dict[str, Any], seconds: float, to_stderr: bool = False) -> None:
    """Print the outcome of `demo` to stdout, or to stderr where stdout is for a program."""
    from rich.console import Console

    console = Console(stderr=to_stderr)
    if not result["new"]:
        console.print(f"\nNothing to do: {result['why']}. ({seconds:.0f} s)")
        console.print("`make demo-traffic` lands new messages, answered by the policy in production, and turns again.")
        return
    facts = collect(workspace)
    console.print(rates_table(facts))
    console.print(rows_table(facts))
    console.print(
        f"Fixed: {facts.fixed} held-out tasks went from never passing to passing every run; "
        f"{facts.broken} the other way; {facts.failing} still never pass."
    )
    console.print(f"\n[bold]{facts.verdict}[/bold]  {facts.sentence}", highlight=False)
    for check in facts.checks:
        mark = {True: "passed", False: "not passed", None: "told"}[check["passed"] if check["decides"] else None]
        console.print(f"  {mark:<10} {check['name']}: {check['sentence']}", highlight=False, markup=False)
    stages = ", ".join(f"{stage} {took:.0f} s" for stage, took in facts.seconds.items())
    console.print(f"\nWall time {seconds / 60:.1f} min: {stages}", highlight=False)
    console.print(f"Report: {result['page']}", highlight=False, soft_wrap=True)
    print_next(console, workspace.root)


def rates_table(facts: Facts) -> Any:
    """Pass rates before and after, overall and by level."""
    from rich.table import Table

    table = Table(title="Pass rate on held-out tasks [95% interval]", title_justify="left")
    table.add_column("level")
    for name in ("tasks", "before", "after"):
        table.add_column(name, justify="right")
    for compared in (facts.overall, *facts.levels):
        table.add_row(level_name(compared.name), str(compared.tasks), *_both(compared))
    return table


def rows_table(facts: Facts) -> Any:
    """The funnel and the curriculum's rows per source."""
    from rich.table import Table

    table = Table(title="From traffic to curriculum", title_justify="left")
    table.add_column("what")
    table.add_column("n", justify="right")
    for name, n in facts.funnel.items():
        table.add_row(FUNNEL_NAMES[name], str(n))
    for row in facts.sources:
        table.add_row(f"  source {row['source']}: kept / left out", f"{row['kept']} / {row['dropped']}")
    return table


def print_next(console: Any, root: Path) -> None:
    """Three commands that work from here."""
    where = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
    console.print("\nTry next:", highlight=False)
    for line in (
        f'.venv/bin/flywheel --root {where} sql "from failures_by_tool"',
        f".venv/bin/dvc artifacts get {where} policy --stage production -o out   # the weights, ready to load",
        "make ui                                            # the same loop in the Prefect UI",
    ):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def _both(compared: Compared) -> tuple[str, str]:
    return _text(compared.before), _text(compared.after)


def _text(interval: Interval) -> str:
    return f"{interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}]".replace("[", "\\[")
