"""Feedback that lands after (or before) its traces turns them into failures: ingest, validate, triage, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config
from flywheel.ingest import ingest
from flywheel.show import show
from flywheel.store.lake import Lake
from flywheel.triage import triage
from flywheel.validate import validate
from flywheel.workspace import Workspace

CONFIG = Config()
TRACES = [
    {
        "id": f"trace-{n:012d}-none",
        "messages": [{"role": "user", "content": f"What is the total of order {n}?"}],
        "response": {
            "id": f"chatcmpl-answer-{n:08d}",
            "choices": [{"message": {"role": "assistant", "content": f"It is {n}."}, "finish_reason": "stop"}],
        },
    }
    for n in range(3)
]
FEEDBACK = [
    {"response_id": "chatcmpl-answer-00000001", "thumbs": "down", "comment": "the total is wrong"},
    {"response_id": "chatcmpl-answer-00000002", "thumbs": "up"},
]


def landed(workspace: Workspace, folder: Path, name: str, records: list[dict[str, Any]]) -> None:
    """Ingest one file and judge its batch, as the command does."""
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    result = ingest(workspace, CONFIG, [path])
    assert result.batch is not None and result.quarantined == 0
    validate(workspace, CONFIG)
    assert Lake(workspace).published(result.batch) is not None


@pytest.mark.parametrize("order", ["traces first", "feedback first"])
def test_triage_finds_the_failure_once_its_feedback_is_there(workspace: Workspace, tmp_path: Path, order: str) -> None:
    files = {"traces.jsonl": TRACES, "feedback.jsonl": FEEDBACK}
    for name in sorted(files, reverse=order == "traces first"):
        landed(workspace, tmp_path, name, files[name])
        if name == "traces.jsonl" and order == "traces first":
            before = triage(workspace, CONFIG)
            assert (before.failures, before.unknown) == (0, 3)
    result = triage(workspace, CONFIG)
    assert (result.trajectories, result.unknown) == (1, 1)
    (head,) = Lake(workspace).query("select trajectory_id, native_id, success_source from trajectory where not success")
    (failure,) = Lake(workspace).query("select trajectory_id, code, evidence from failure where code = 'answer.wrong'")
    assert failure["trajectory_id"] == head["trajectory_id"]
    assert head["success_source"] == "human_user:feedback"
    assert triage(workspace, CONFIG).failures == 0
    shown = show(workspace, CONFIG, id_=head["trajectory_id"])
    (outcome,) = Lake(workspace).query(
        "select outcome_id, explanation from outcome where not coalesce(polarity > 0, false)"
    )
    assert outcome["explanation"] == "the total is wrong"
    assert shown.related["outcome_id"] == [outcome["outcome_id"]]
    assert show(workspace, CONFIG, id_=outcome["outcome_id"]).related["trajectory_id"] == [head["trajectory_id"]]
