"""The report page is one file: nothing is fetched, and what came from a trace is text, whatever it says."""

from __future__ import annotations

import re

from flywheel.page import render
from flywheel.report import Compared, Facts
from flywheel.statistics.intervals import Interval

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} $\\frac{1}{0}$ \u202e\x00\ud83d"


def facts(text: str = HOSTILE) -> Facts:
    rate = Interval(estimate=0.5, low=0.25, high=0.75, method="wilson", clusters=12)
    compared = Compared(name='{"fields":2}', tasks=12, before=rate, after=rate)
    return Facts(
        turn="turn-1",
        funnel=dict.fromkeys(("online", "failed", "labelled", "with_task", "tried", "repaired", "learnt_from"), 3),
        overall=compared,
        levels=(compared,),
        fixed=1,
        failing=2,
        broken=0,
        sources=[{"source": text, "kept": 1, "dropped": 2}],
        dropped=[{"reason": text, "rows": 2}],
        clusters=[{"title": text, "clusters": 1, "failures": 3, "taught": 1}],
        verdict="PROMOTE",
        checks=[{"name": text, "passed": True, "decides": True, "sentence": text}],
        version="v0.2.0",
        promoted=True,
        sentence=text,
        losses=((1, 0.5), (2, 0.25)),
        seconds={"train": 1.0},
    )


def test_what_came_from_a_trace_is_only_ever_text() -> None:
    page = render(facts())
    assert "<script" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;") == 6
    assert "49" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.S), "a template inside a trace was executed"


def test_the_page_fetches_nothing() -> None:
    page = render(facts("plain"))
    outside = re.findall(r"""(?:src|href|url\()\s*=?\s*["']?\s*(?!#)([a-z]+:|//)""", page)
    assert not outside
    assert "@import" not in page
    assert "<link" not in page


def test_equal_facts_are_equal_pages() -> None:
    assert render(facts()) == render(facts())
