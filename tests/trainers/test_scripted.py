"""Recipe `scripted`: the skill that comes out is the documented formula of the rows that went in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from flywheel.config import Train
from flywheel.curriculum.sft import SftRow
from flywheel.environment.policy import ScriptedPolicy
from flywheel.progress import silent
from flywheel.records import Task
from flywheel.trainers.recipe import Job, weights_sha256
from flywheel.trainers.scripted import TAU, TRANSFER, fit, trained_skills

BASE = ScriptedPolicy({}, default=0.1, families={"a": 0.2, "c": 0.9}, shots_bonus=0.4)


def job(root: Path, families: str, **settings: int) -> Job:
    """A row for each letter of `families`."""
    BASE.save(root / "base")
    tasks = {
        f"task-{ix}": Task(
            task_id=f"task-{ix}", domain="documents", family=family, split="train", group_id=family, prompt="[]",
            verifier_id="v1",
        )
        for ix, family in enumerate(families)
    }  # fmt: skip
    rows = [
        SftRow(
            row_id=f"row-{ix}", source="model", task_id=task_id, cluster_id=None, stage=0, weight=1.0, messages="[]",
            input_ids=(1, 2, 3), labels=(-100, 2, 3),
        )
        for ix, task_id in enumerate(tasks)
    ]  # fmt: skip
    return Job(
        base=root / "base",
        rows=rows,
        settings=Train.model_validate({"recipe": "scripted", "steps": 4, "batch": 3, **settings}),
        work=root / "work",
        out=root / "out",
        tasks=tasks,
    )


def test_skills_rise_by_the_formula(tmp_path: Path) -> None:
    fit(job(tmp_path, "aaaab"), silent)
    out = ScriptedPolicy.load(tmp_path / "out", {})
    assert out.default == pytest.approx(1 - 0.9 * math.exp(-TRANSFER * 5 / TAU))
    assert out.families == {
        "a": pytest.approx(1 - 0.8 * math.exp(-(4 + TRANSFER * 1) / TAU)),
        "b": pytest.approx(1 - 0.9 * math.exp(-(1 + TRANSFER * 4) / TAU)),
        "c": pytest.approx(1 - 0.1 * math.exp(-TRANSFER * 5 / TAU)),
    }
    assert out.shots_bonus == BASE.shots_bonus


def test_a_row_counts_once_and_only_if_a_step_saw_it(tmp_path: Path) -> None:
    fit(job(tmp_path / "once", "aaa", steps=1), silent)
    fit(job(tmp_path / "often", "aaa", steps=50), silent)
    fit(job(tmp_path / "part", "aaa", steps=1, batch=2), silent)
    once, often, part = (ScriptedPolicy.load(tmp_path / name / "out", {}) for name in ("once", "often", "part"))
    assert once == often
    assert BASE.families["a"] < part.families["a"] < once.families["a"]


def test_metrics_count_tokens_and_the_loss_falls(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    metrics = fit(job(tmp_path, "abababab"), lambda *args: told.append(args))
    assert [m.step for m in metrics] == [1, 2, 3, 4]
    assert [m.tokens for m in metrics] == [6, 12, 18, 24]
    assert metrics[0].loss > metrics[-1].loss
    assert told == [(m.step, 4, f"loss {m.loss:.3f}") for m in metrics]


def test_equal_jobs_give_equal_bytes_and_replace_what_was_there(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fit(job(tmp_path / name, "abc"), silent)
    (tmp_path / "two" / "out" / "left.over").write_bytes(b"")
    fit(job(tmp_path / "two", "abc"), silent)
    one, two = (sorted((tmp_path / name / "out").iterdir()) for name in ("one", "two"))
    assert [path.name for path in one] == [path.name for path in two] == ["skill.json"]
    assert one[0].read_bytes() == two[0].read_bytes()
    assert weights_sha256(tmp_path / "one" / "out") == ScriptedPolicy.load(tmp_path / "one" / "out", {}).identity


def test_no_rows_leave_every_skill_as_it_was() -> None:
    assert trained_skills(0.1, {"a": 0.2}, {}) == {"": pytest.approx(0.1), "a": pytest.approx(0.2)}
