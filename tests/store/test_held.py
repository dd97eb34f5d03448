"""What waits for the batch's end comes back key by key, in order, whatever the budget, and leaves nothing on disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from flywheel.records import Fragment, Trajectory
from flywheel.store.held import Held, packed

HEAD = Trajectory(
    trajectory_id="t",
    content_sha256="",
    source_id="s",
    source_record_ix=0,
    format="f",
    n_steps=0,
    content_complete=True,
)


def fragment(key: str, ix: int, size: int) -> Fragment:
    return Fragment(key=key, record_ix=ix, trajectory=replace(HEAD, extra="x" * size), partial=True)


@pytest.mark.parametrize("budget", [1 << 30, 20_000, 1_000, 1])
def test_groups_are_whole_and_in_order_whatever_the_budget(tmp_path: Path, budget: int) -> None:
    rng = random.Random(budget)
    wanted: dict[str, list[int]] = {}
    with Held(tmp_path / "spill", budget) as held:
        for ix in range(1500):
            key = f"key-{rng.randrange(40)}"
            wanted.setdefault(key, []).append(ix)
            held.add(packed(fragment(key, ix, rng.randrange(200))))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []  # spilled files have no name
        assert bool(list(tmp_path.iterdir())) == (budget < 1 << 30)
        found = [[(one.key, one.record_ix) for one in group] for group in held.groups()]
    assert {group[0][0]: [ix for _, ix in group] for group in found} == wanted
    assert len(found) == len(wanted)
