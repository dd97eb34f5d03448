"""kill -9 in each verb of a scripted turn, then restart: in the end there is what an undisturbed turn leaves.

FLYWHEEL_KILL_ROUNDS=n adds n rounds of kills at random moments (up to 10 a round).
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from kills import SIGNS, Kill, kill_in, remains
from turns import Turned, comparable, flywheel, run

from flywheel.workspace import Workspace

ROUNDS = 1 + int(os.environ.get("FLYWHEEL_KILL_ROUNDS", "0"))
# The stage that a verb belongs to, and about which share of its time.
SHARES = {
    "ingest": ("ingest", 0.1), "validate": ("ingest", 0.9), "triage": ("repair", 0.3), "repair": ("repair", 0.7),
    "curate": ("curate", 1.0), "train": ("train", 1.0), "evaluate": ("evaluate", 1.0), "gate": ("promote", 0.1),
    "promote": ("promote", 0.9), "report": ("report", 1.0),
}  # fmt: skip


@pytest.fixture(scope="session")
def undisturbed(turned_once: Turned) -> dict[str, Any]:
    return remains(turned_once.workspace)


def test_killed_at_the_start_of_every_verb_a_turn_ends_the_same(
    served: Workspace, turned_once: Turned, undisturbed: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    kills = [kill_in(served, verb, 0.0) for verb in SIGNS]
    show(kills, capsys)
    assert [kill.hit for kill in kills] == list(SIGNS)
    ends_the_same(served, turned_once, undisturbed)
    verified = run("flywheel", "lake", "verify", "--root", str(served.root))
    assert verified.returncode == 0, verified.stderr


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_at_random_moments_a_turn_ends_the_same(
    served: Workspace, turned_once: Turned, undisturbed: dict[str, Any], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aimed at each verb that the kill before has not passed already, some way into it."""
    chance, took = random.Random(seed), turned_once.result["seconds"]
    kills = []
    for verb, (stage, share) in SHARES.items():
        after_s = chance.uniform(0.1, 0.9) * share * took[stage]
        if not SIGNS[verb](served):
            kills.append(kill_in(served, verb, after_s))
    show(kills, capsys)
    assert len({kill.hit for kill in kills} - {None}) > len(SHARES) / 2
    ends_the_same(served, turned_once, undisturbed)


def ends_the_same(workspace: Workspace, turned_once: Turned, undisturbed: dict[str, Any]) -> None:
    """The turn goes on to its end and leaves what the undisturbed one left, and says the same of it."""
    result = flywheel("turn", "--plain", "--root", workspace.root)
    if result["new"]:  # else the last kill came after the end
        assert comparable(result) == comparable(turned_once.result)
    left = remains(workspace)
    for what, expected in undisturbed.items():
        assert left[what] == expected, what


def show(kills: list[Kill], capsys: pytest.CaptureFixture[str]) -> None:
    """The table of kills, for whoever reads the log."""
    with capsys.disabled():
        print("\n\n  aimed at   after s   killed in")
        for kill in kills:
            print(f"  {kill.aimed:<10} {kill.after_s:7.2f}   {kill.hit or '(had ended)'}")
