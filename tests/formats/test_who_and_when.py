"""Who&When: the mistake is an outcome of the step it was made in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sources import jsonl, read

CASE: dict[str, Any] = {
    "is_correct": False,
    "question": "How many?",
    "question_ID": "q",
    "ground_truth": "8",
    "history": [
        {"content": "Task: how many?", "role": "assistant", "name": "Excel_Expert"},
        {"content": "exitcode: 0", "role": "user", "name": "Computer_terminal"},
        {"content": "It is 7.", "role": "user", "name": "Logic_Expert"},
    ],
    "mistake_agent": "Logic_Expert",
    "mistake_step": "2",
    "mistake_reason": "Miscounted.",
    "system_prompt": {"Excel_Expert": "You count."},
}


def test_the_mistake_stands_at_its_step() -> None:
    fragment = read(jsonl(CASE)).only
    assert [(s.role, s.name, s.role_raw) for s in fragment.steps] == [
        ("assistant", "Excel_Expert", "assistant"),
        ("tool", "Computer_terminal", "user"),
        ("assistant", "Logic_Expert", "user"),
    ]
    verdict, mistake = fragment.outcomes
    assert (verdict.value_bool, fragment.trajectory.success) == (False, False)
    assert (mistake.target_kind, mistake.step_ix, mistake.value_text) == ("step", 2, "Logic_Expert")
    assert (mistake.explanation, mistake.correction, mistake.source_kind) == ("Miscounted.", '"8"', "human_expert")


@pytest.mark.parametrize("step", ["99", "-1", "first", None, 1.5, "9" * 30])
def test_a_step_that_is_none_is_a_mistake_of_the_whole(step: Any) -> None:
    mistake = read(jsonl({**CASE, "mistake_step": step})).only.outcomes[-1]
    assert (mistake.target_kind, mistake.step_ix) == ("trajectory", None)
    assert json.loads(mistake.metadata or "") == {"mistake_step": step}


def test_the_hand_made_half_names_speakers_by_role() -> None:
    history = [
        {"role": "human", "content": "How many?"},
        {"role": "Orchestrator (thought)", "content": "Plan"},
        {"role": "WebSurfer", "content": "Clicked."},
    ]
    case = {key: value for key, value in CASE.items() if key != "is_correct"} | {"is_corrected": False}
    fragment = read(jsonl({**case, "history": history})).only
    assert [(s.role, s.name) for s in fragment.steps] == [
        ("user", None),
        ("assistant", "Orchestrator"),
        ("assistant", "WebSurfer"),
    ]
    assert fragment.trajectory.success is False


def test_every_file_is_one_failed_run_and_no_two_are_one(samples: Path) -> None:
    keys = []
    for path in sorted((samples / "who_and_when").rglob("*.json")):
        fragment = read(path.read_bytes()).only
        case = json.loads(path.read_text(encoding="utf-8"))
        assert [step.content for step in fragment.steps] == [message["content"] for message in case["history"]]
        mistake = fragment.outcomes[-1]
        assert (mistake.step_ix, fragment.trajectory.success) == (int(case["mistake_step"]), False)
        keys.append(fragment.key)
    assert len(set(keys)) == len(keys) == 64
