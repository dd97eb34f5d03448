"""What may become a row: every reason has a candidate that is left out for it, and only for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from curriculum.test_masks import decode, encode
from flywheel.config import Curate
from flywheel.curriculum.sft import REASONS, Candidate, HeldOut, choose, refusal, true_success
from flywheel.errors import ValidationError
from flywheel.records import Task, canonical_json


def task(number: int, split: str = "train", group: str | None = None) -> Task:
    return Task(
        task_id=f"task-{number}",
        domain="documents",
        family=f"family-{number % 3}",
        stage=number % 2,
        split=split,
        group_id=group or f"group-{split}-{number}",
        prompt=canonical_json([{"role": "user", "content": f"Question {number} of {split}"}]),
        verifier_id="v1",
    )


EVAL = task(1000, split="eval")
HELD_OUT = HeldOut.of([EVAL])


def repair(number: int, answer: str = "good answer", **change: Any) -> Candidate:
    candidate = Candidate(
        source="model",
        task=task(number),
        task_id=f"task-{number}",
        parents=(f"failed-{number}", f"rollout-{number}-{answer}"),
        messages=(
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": f"Question {number} of train"},
            {"role": "assistant", "content": answer},
        ),
        cluster_id="cluster-a",
        selecting="v1",
        verdicts={"v1": 1.0, "v2": 1.0},
        runs=4,
        passed=2,
    )
    return replace(candidate, **change)


def success(number: int, answer: str = "good answer") -> Candidate:
    return repair(
        number, answer, source="real", parents=(f"online-{number}-{answer}",), selecting=None, verdicts=None,
        runs=0, passed=0, cluster_id=None,
    )  # fmt: skip


def chosen(candidates: Sequence[Candidate], **settings: Any) -> tuple[list[Any], list[Any]]:
    return choose(candidates, HELD_OUT, Curate(**settings), encode, decode)


def with_content(role: str, content: str | None) -> tuple[dict[str, Any], ...]:
    return tuple({**m, "content": content} if m["role"] == role else dict(m) for m in repair(1).messages)


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("no_task", {"task": None}),
        ("not_train_split", {"task": task(1, split="sibling", group="only here")}),
        ("eval_group", {"task": task(1, group=EVAL.group_id)}),
        ("eval_prompt", {"messages": with_content("user", "  question 1000\n of EVAL ")}),
        ("incomplete", {"complete": False}),
        ("incomplete", {"messages": repair(1).messages[:2]}),
        ("unsupported_roles", {"messages": (*repair(1).messages, {"role": "tool", "content": "x"},
                                            {"role": "assistant", "content": "y"})}),
        ("unsupported_roles", {"messages": tuple({**m, "tool_calls": 1} for m in repair(1).messages)}),
        ("unverified", {"verdicts": {}}),
        ("unverified", {"verdicts": {"v1": 1.0}}),
        ("unverified", {"verdicts": {"v1": None, "v2": 1.0}}),
        ("unverified", {"verdicts": {"v1": 1.0, "v2": None}}),
        ("unverified", {"selecting": None}),
        ("failed_verifier", {"verdicts": {"v1": 0.5, "v2": 1.0}}),
        ("second_verifier", {"verdicts": {"v1": 1.0, "v2": 0.0}}),
        ("low_posterior", {"runs": 64, "passed": 1}),
        ("too_long", {"messages": with_content("assistant", "x" * 600)}),
        ("nothing_to_learn", {"messages": with_content("assistant", " \n")}),
        ("nothing_to_learn", {"messages": with_content("assistant", None)}),
        ("mask_mismatch", {"messages": ({"role": "assistant", "content": None}, *repair(1).messages)}),
    ],
)  # fmt: skip
def test_each_reason_keeps_its_candidate_out(reason: str, change: dict[str, Any]) -> None:
    good, bad = repair(2), repair(1, **change)
    rows, dropped = choose([good, bad], HELD_OUT, Curate(), encode_or_break, decode)
    assert [row.row_id for row in rows] == [good.row_id]
    assert [(item.row_id, item.reason, item.parents) for item in dropped] == [(bad.row_id, reason, bad.parents)]
    assert reason in REASONS


def encode_or_break(messages: Sequence[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """As `encode`, but a template that writes None for null content, as real ones do (bugs.md 59)."""
    return encode([{**m, "content": "None" if m["content"] is None else m["content"]} for m in messages])


def test_a_leaking_row_stays_out_whatever_its_source() -> None:
    leaky = task(7, group=EVAL.group_id)
    for source in (repair(7, task=leaky), replace(success(7), task=leaky)):
        rows, dropped = chosen([source])
        assert rows == [] and [item.reason for item in dropped] == ["eval_group"]


def test_the_row_trains_the_answer_on_the_traces_own_prompt() -> None:
    (row,), _ = chosen([repair(3)])
    assert row.messages == canonical_json([dict(m) for m in repair(3).messages])
    assert decode([label for label in row.labels if label != -100]) == "good answer"
    assert (row.source, row.task_id, row.cluster_id, row.stage) == ("model", "task-3", "cluster-a", 1)
    assert row.posterior == true_success(2, 4)


def test_posterior_falls_with_the_tasks_pass_rate() -> None:
    assert true_success(2, 4) > true_success(1, 4) > true_success(1, 16) > 0.95 > true_success(1, 64)
    # By hand: p = 2/6; .98 * .95 = .931 true, .02 * .10 = .002 false.
    assert true_success(1, 4) == pytest.approx((1 / 3 * 0.931) / (1 / 3 * 0.931 + 2 / 3 * 0.002))


def test_equal_answers_are_one_row_and_the_shortest_different_one_wins() -> None:
    same = [repair(1, "the answer", parents=("failed-1", f"rollout-{ix}")) for ix in range(3)]
    other = repair(1, "a longer answer")
    rows, dropped = chosen([*same, other])
    assert [decode([x for x in row.labels if x != -100]) for row in rows] == ["the answer"]
    assert sorted(item.reason for item in dropped) == ["duplicate", "duplicate", "per_task"]
    both, _ = chosen([*same, other], per_task=2)
    assert len(both) == 2 and [row.weight for row in both] == [pytest.approx(2**-0.5)] * 2


def test_a_repair_takes_precedence_over_an_online_success_of_its_task() -> None:
    rows, dropped = chosen([success(1, "short"), repair(1)], real_share=1.0)
    assert [row.source for row in rows] == ["model"]
    assert [item.reason for item in dropped] == ["per_task"]


def test_real_rows_are_capped_by_share_and_drawn_by_lot() -> None:
    candidates = [repair(ix) for ix in range(6)] + [success(100 + ix) for ix in range(20)]
    rows, dropped = chosen(candidates, real_share=0.25)
    assert sum(row.source == "real" for row in rows) == 2
    assert {item.reason for item in dropped} == {"real_share"} and len(dropped) == 18
    others, _ = chosen(candidates, real_share=0.25, seed=1)
    assert {row.row_id for row in rows} != {row.row_id for row in others}


def test_successes_alone_are_no_curriculum() -> None:
    rows, dropped = chosen([success(ix) for ix in range(5)])
    assert rows == [] and {item.reason for item in dropped} == {"real_share"}


def test_the_result_does_not_depend_on_the_order_of_the_candidates() -> None:
    candidates = [repair(ix, f"answer {ix % 4}") for ix in range(12)] + [success(ix) for ix in range(8, 20)]
    candidates += [repair(ix, verdicts={"v1": 0.0, "v2": 0.0}) for ix in range(3)]
    assert chosen(candidates) == chosen(candidates[::-1])
    rows, _ = chosen(candidates)
    assert [row.stage for row in rows] == sorted(row.stage for row in rows)


def test_a_template_that_masks_every_row_wrongly_is_an_error_and_not_an_empty_curriculum() -> None:
    def everything_trained(messages: Sequence[dict[str, Any]]) -> tuple[list[int], list[int]]:
        input_ids, _ = encode(messages)
        return input_ids, list(input_ids)

    with pytest.raises(ValidationError, match="chat template"):
        choose([repair(1)], HELD_OUT, Curate(), everything_trained, decode)


def test_refusal_is_none_for_what_may_train() -> None:
    assert refusal(repair(1), HELD_OUT, 0.95) is None
    assert refusal(success(1), HELD_OUT, 0.95) is None
