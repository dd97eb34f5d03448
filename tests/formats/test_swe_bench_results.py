"""Predictions and reports of SWE-bench: outcomes that wait for their trajectory."""

from __future__ import annotations

import json
from pathlib import Path

from sources import read


def test_predictions_in_every_shape(samples: Path) -> None:
    for path in (samples / "swe_agent" / "v0_all_preds.jsonl", samples / "mini_swe_agent" / "results.json"):
        outcome = read(path.read_bytes())
        assert (outcome.format, outcome.fragments, outcome.rejects) == ("swe_bench_results", [], [])
        (row,) = outcome.attachments[0].outcomes
        assert (row.name, row.polarity, row.trajectory_id) == ("prediction", None, None)
        assert row.native_target_id and (row.value_text or "").strip().startswith("diff --git")
    several = [{"instance_id": "a__a-1", "model_patch": None}, {"instance_id": "a__a-2", "model_patch": "x"}]
    rows = [attachment.outcomes[0] for attachment in read(json.dumps(several).encode()).attachments]
    assert [(row.native_target_id, row.value_type) for row in rows] == [("a__a-1", "null"), ("a__a-2", "text")]


def test_reports() -> None:
    one = {"a__a-1": {"patch_exists": True, "resolved": False, "tests_status": {"FAIL_TO_PASS": {"failure": ["t"]}}}}
    (row,) = read(json.dumps(one).encode()).attachments[0].outcomes
    assert (row.name, row.value_bool, row.polarity, row.source_kind) == ("resolved", False, -1, "verifier")
    assert json.loads(row.metadata or "")["tests_status"] == {"FAIL_TO_PASS": {"failure": ["t"]}}
    run = {
        "total_instances": 3,
        "resolved_ids": ["a"],
        "unresolved_ids": ["b"],
        "error_ids": ["c"],
        "schema_version": 2,
    }
    rows = read(json.dumps(run).encode()).attachments[0].outcomes
    assert [(r.native_target_id, r.value_bool, r.polarity) for r in rows] == [
        ("a", True, 1),
        ("b", False, -1),
        ("c", None, None),
    ]
