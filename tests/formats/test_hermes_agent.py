"""Hermes: rows in the order of their ids, branches, calls without ids."""

from __future__ import annotations

import json
from pathlib import Path

from sources import read


def test_hermes_order_branches_and_ids(samples: Path) -> None:
    only = read((samples / "other_agents" / "hermes_cleanup_input.json").read_bytes()).only
    assert [step.native_id for step in only.steps] == [str(n) for n in range(201, 209)]
    taken_back = only.steps[4]
    assert (taken_back.trainable, taken_back.parent_ix, only.steps[6].parent_ix) == (False, 3, 5)
    assert (only.tool_calls[0].call_id, only.tool_calls[0].result_step_ix) == ("call_adopted_1", 2)
    assert json.loads(only.steps[0].parts or "")[1]["type"] == "image_url"
