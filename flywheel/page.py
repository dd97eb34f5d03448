"""The report page: facts in, one self-contained HTML string out. Pure; nothing is fetched, everything is escaped.

Plots are SVG by matplotlib, inlined. Not covered: interaction; the page has no script at all.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flywheel.report import Compared, Facts

BEFORE, AFTER = "#9aa4b2", "#1f6feb"
FUNNEL_NAMES = {
    "online": "online traces",
    "failed": "failed",
    "labelled": "labelled with a cause",
    "with_task": "name a task that can be tried",
    "tried": "tasks tried again",
    "repaired": "solved and verified twice",
    "learnt_from": "rows learnt from",
}


def render(facts: Facts) -> str:
    """The page of one turn."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader("flywheel"), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}%"
    environment.filters["level"] = level_name
    return environment.get_template("report.html").render(
        facts=facts,
        funnel=[(FUNNEL_NAMES[name], n) for name, n in facts.funnel.items()],
        rates_plot=rates_plot((facts.overall, *facts.levels)),
        loss_plot=loss_plot(facts.losses) if facts.losses else "",
        funnel_top=max(facts.funnel.values(), default=1) or 1,
    )


def level_name(level: str) -> str:
    """`{"fields":2,"format":"plain"}` as `fields 2, format plain`; anything else as it is."""
    if not level.startswith("{"):
        return level
    return ", ".join(f"{k} {v}" for k, v in json.loads(level).items())


def rates_plot(compared: tuple[Compared, ...]) -> str:
    """Pass rate before and after with 95% intervals, one row a level."""
    figure, axes = _figure(0.42 * len(compared) + 0.9)
    for row, item in enumerate(reversed(compared)):
        for interval, colour, offset in ((item.before, BEFORE, 0.16), (item.after, AFTER, -0.16)):
            y = row + offset
            axes.plot([interval.low, interval.high], [y, y], color=colour, linewidth=2)
            axes.plot(interval.estimate, y, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(compared)), [level_name(item.name) for item in reversed(compared)])
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("pass rate (grey: in production before, blue: candidate)")
    return _svg(figure)


def loss_plot(losses: tuple[tuple[int, float], ...]) -> str:
    """Training loss by step."""
    figure, axes = _figure(2.4)
    axes.plot([step for step, _ in losses], [loss for _, loss in losses], color=AFTER, marker="o", markersize=3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    return _svg(figure)


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e8eb")
    return figure, axes


def _svg(figure: Any) -> str:
    """The figure as an <svg> element that scales with the page; without matplotlib's date, so equal facts are equal."""
    import matplotlib as mpl
    from markupsafe import Markup

    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "flywheel", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return Markup(text[text.index("<svg") :])  # matplotlib has escaped its text
