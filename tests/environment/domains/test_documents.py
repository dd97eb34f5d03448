"""Domain `documents`: repeatable, sides apart, two verifiers that the oracle passes and nothing else does."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from flywheel.environment.domain import open_domain
from flywheel.environment.domains import documents_text as text
from flywheel.environment.domains.documents import LEVELS, MIX, SPLITS, Documents, answer_text
from flywheel.environment.domains.documents_verify import EXACT, GROUNDED, read_answer
from flywheel.errors import ConfigError
from flywheel.records import Reply, Rollout, Task

DOCUMENTS = Documents()


def scores(task: Task, content: Any) -> tuple[float | None, float | None]:
    """What the two verifiers say of an answer."""
    message = content if isinstance(content, dict) else {"role": "assistant", "content": content}
    rollout = Rollout(
        rollout_id="r",
        task_id=task.task_id,
        policy="p",
        run_ix=0,
        messages=(),
        n_prompt=0,
        reply=Reply(message=message),
    )
    exact, grounded = DOCUMENTS.verify(task, rollout)
    assert (exact.verifier_id, grounded.verifier_id) == DOCUMENTS.verifiers == (EXACT, GROUNDED)
    assert exact.trajectory_id == grounded.trajectory_id == "r"
    return exact.score, grounded.score


def written(message: str, gold: dict[str, str]) -> Task:
    """A task with a message of the test's own."""
    task = DOCUMENTS.generate(0, {"fields": len(gold), "format": "plain", "distractors": 0}, "train")
    prompt = [json.loads(task.prompt)[0], {"role": "user", "content": message}]
    return replace(task, prompt=json.dumps(prompt), environment=json.dumps({"gold": gold}))


TASK = written(
    "Order #48213 of 3 March 2025, $1,234.50. My earlier order 55501 for $9.99 was fine.",
    {"order_id": "48213", "total": "1234.50", "date": "2025-03-03"},
)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_oracle_passes_and_null_fails_both_verifiers(level: dict[str, Any], split: str) -> None:
    for seed in range(40):
        task = DOCUMENTS.generate(seed, level, split)
        assert scores(task, DOCUMENTS.oracle(task)) == (1.0, 1.0)
        assert scores(task, DOCUMENTS.null(task)) == (0.0, 0.0)


def test_every_way_to_do_nothing_is_used() -> None:
    first = Counter(str(DOCUMENTS.null(task)["content"])[:6] for task in DOCUMENTS.sample(96, "train", 3))
    assert {"I'm so", "The or", "```jso", '{"orde'} <= set(first)


@pytest.mark.parametrize("split", SPLITS)
def test_one_changed_digit_fails_both_verifiers(split: str) -> None:
    rng = Random(5)
    for task in DOCUMENTS.sample(160, split, 11):
        right = str(DOCUMENTS.oracle(task)["content"])
        at = rng.choice([match.start() for match in re.finditer(r"\d", right)])
        digit = rng.choice([d for d in "123456789" if d != right[at]])
        assert scores(task, right[:at] + digit + right[at + 1 :]) == (0.0, 0.0), (task.prompt, right, at, digit)


def test_the_other_order_is_not_the_answer() -> None:
    assert scores(TASK, '{"order_id": "55501", "total": 1234.50, "date": "2025-03-03"}') == (0.0, 0.0)
    assert scores(TASK, '{"order_id": "48213", "total": 9.99, "date": "2025-03-03"}') == (0.0, 0.0)


@pytest.mark.parametrize(
    "answer",
    [
        '{"order_id": "48213", "total": 1234.50, "date": "2025-03-03"}',
        ' \n{"date":"2025-03-03","total":1234.5,"order_id":"48213"}\n',
        '{"order_id": "48213", "total": 1.2345e3, "date": "2025-03-03"}',
    ],
)
def test_other_spellings_of_the_same_json_pass(answer: str) -> None:
    assert scores(TASK, answer) == (1.0, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        "[]",
        "null",
        "48213",
        'Here it is: {"order_id": "48213", "total": 1234.50, "date": "2025-03-03"}',
        '```json\n{"order_id": "48213", "total": 1234.50, "date": "2025-03-03"}\n```',
        '{"order_id": "48213", "total": 1234.50, "date": "2025-03-03"} Anything else?',
        '{"order_id": "48213", "total": 1234.50}',
        '{"order_id": "48213", "total": 1234.50, "date": "2025-03-03", "currency": "USD"}',
        '{"order_id": "1", "order_id": "48213", "total": 1234.50, "date": "2025-03-03"}',
        '{"order_id": "#48213", "total": 1234.50, "date": "2025-03-03"}',
        '{"order_id": 48213, "total": 1234.50, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": "1234.50", "date": "2025-03-03"}',
        '{"order_id": "48213", "total": true, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": NaN, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": 1e400, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": 1e99999999999999999999, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": 1234.5000000000000001, "date": "2025-03-03"}',
        '{"order_id": "48213", "total": 1234.50, "date": "3 March 2025"}',
        '{"order_id": "48213", "total": 1234.50, "date": "2025-03-3"}',
        "[" * 100_000,
        '{"order_id": "\ud800", "total": 1234.50, "date": "2025-03-03"}',
    ],
    ids=lambda answer: str(answer)[:60].encode("unicode_escape").decode(),
)
def test_anything_else_fails_both(answer: str | None) -> None:
    assert scores(TASK, answer) == (0.0, 0.0)


def test_an_answer_without_text_fails() -> None:
    assert scores(TASK, {"role": "assistant", "tool_calls": []}) == (0.0, 0.0)


def test_the_verifiers_are_independent() -> None:
    wrong_gold = written("Order #48213, $1,234.50.", {"order_id": "48213", "total": "1234.05"})
    assert scores(wrong_gold, '{"order_id": "48213", "total": 1234.50}') == (0.0, 1.0)
    assert scores(wrong_gold, '{"order_id": "48213", "total": 1234.05}') == (1.0, 0.0)


def test_what_cannot_be_judged_has_no_score_but_an_owner() -> None:
    answer = Reply(message={"role": "assistant", "content": '{"order_id": "48213", "total": 12.00}'})
    rollout = Rollout(rollout_id="r", task_id="t", policy="p", run_ix=0, messages=(), n_prompt=0, reply=answer)
    unreadable = written("Order #48213, twelve dollars.", {"order_id": "48213", "total": "12.00"})
    exact, grounded = DOCUMENTS.verify(unreadable, rollout)
    assert exact.score == 1.0
    assert (grounded.score, grounded.owner) == (None, "verifier")
    assert "total" in str(grounded.evidence)
    exact, _ = DOCUMENTS.verify(replace(TASK, environment=None), rollout)
    assert (exact.score, exact.owner) == (None, "task")


def test_parts_name_the_wrong_field() -> None:
    reply = Reply(message={"role": "assistant", "content": '{"order_id": "48213", "total": 1, "date": "2025-03-03"}'})
    rollout = Rollout(rollout_id="r", task_id="t", policy="p", run_ix=0, messages=(), n_prompt=0, reply=reply)
    for verdict in DOCUMENTS.verify(TASK, rollout):
        parts = json.loads(verdict.parts or "")
        assert [name for name, good in parts.items() if not good] == ["total"]
        assert json.loads(verdict.evidence or "") == {"problem": "wrong: total"}


def test_read_answer_says_why() -> None:
    assert read_answer('{"a": 1, "a": 2}') == (None, "not one JSON object: a key stands twice")
    assert read_answer("[1]") == (None, "JSON, but a list")


def test_the_same_arguments_give_the_same_task() -> None:
    level = {"fields": 4, "format": "written", "distractors": 1}
    task = DOCUMENTS.generate(7, level, "train")
    assert task == open_domain("documents").generate(7, dict(reversed(level.items())), "train")
    assert task.task_id == "task-8b951fe315dd884d266b3f41"
    assert DOCUMENTS.sample(24, "eval", 1) == DOCUMENTS.sample(24, "eval", 1)


def test_a_sample_spreads_over_phrasings_and_levels() -> None:
    for n, split, phrasings in ((192, "train", 24), (48, "eval", 16), (48, "sibling", 12)):
        tasks = DOCUMENTS.sample(n, split, 20)
        assert len({task.task_id for task in tasks}) == n
        groups = Counter(task.group_id for task in tasks)
        assert len(groups) == phrasings
        assert set(groups.values()) == {n // phrasings}
        assert set(Counter(task.level for task in tasks).values()) == {n // len(MIX)}
        assert len({(task.group_id, task.level) for task in tasks}) >= phrasings * min(len(MIX), n // phrasings) * 0.9
    assert not {t.task_id for t in DOCUMENTS.sample(48, "eval", 1)} & {
        t.task_id for t in DOCUMENTS.sample(48, "eval", 2)
    }


def test_the_sides_share_no_sentence_and_no_way_of_writing() -> None:
    assert len(text.TRAIN) >= 24
    assert len(text.EVAL) >= 12
    assert len(text.SIBLING) >= 12
    for source in (text.PHRASINGS, text.ASIDES, text.SIGNATURES):
        sentences = [sentence for split in SPLITS for sentence in source[split]]
        assert len(set(sentences)) == len(sentences)
    shape = {split: set[str]() for split in SPLITS}
    for split in SPLITS:
        for task in DOCUMENTS.sample(400, split, 4):
            message = json.loads(task.prompt)[-1]["content"]
            for value in re.findall(r"[$€£]?\b[A-Z/#]*[\d.,/-]*\d{2}\b(?: (?:USD|EUR|euros|dollars))?", message):
                shape[split].add(re.sub(r"[A-Z]", "A", re.sub(r"\d", "9", value)))
    money = {split: {s for s in shape[split] if s[0] in "$€£" or s[-1].isalpha()} for split in SPLITS}
    assert money["train"]
    assert money["eval"]
    assert not money["train"] & (money["eval"] | money["sibling"])


def test_only_asides_hold_a_cue() -> None:
    for split in SPLITS:
        for sentence in (*text.PHRASINGS[split], *text.SIGNATURES[split]):
            assert not [cue for cue in text.ASIDE_CUES if cue in sentence.lower()], sentence
        for sentence in text.ASIDES[split]:
            assert [cue for cue in text.ASIDE_CUES if cue in sentence.lower()], sentence
            assert not re.search(r"[.!?]\s", sentence), f"more than one sentence: {sentence}"


def test_worked_examples_are_right_unlike_any_task_and_shared_by_a_level() -> None:
    tasks = DOCUMENTS.sample(192, "train", 20)
    questions = {json.loads(task.prompt)[-1]["content"] for task in tasks}
    prefixes: dict[str | None, set[str]] = {}
    for task in tasks:
        messages = DOCUMENTS.prompt(task, shots=4).messages
        assert [dict(m) for m in (messages[0], messages[-1])] == json.loads(task.prompt)
        assert len(messages) == 2 + 2 * 4
        examples = messages[1:-1]
        assert not {m["content"] for m in examples if m["role"] == "user"} & questions
        prefixes.setdefault(task.level, set()).add(json.dumps(examples))
        for question, answer in zip(examples[::2], examples[1::2], strict=True):
            gold = {name: str(value) for name, value in (read_answer(answer["content"])[0] or {}).items()}
            shown = replace(task, prompt=json.dumps([messages[0], question]), environment=json.dumps({"gold": gold}))
            assert scores(shown, answer["content"]) == (1.0, 1.0)
    assert {len(examples) for examples in prefixes.values()} == {1}


def test_without_shots_the_prompt_is_the_task_s() -> None:
    task = DOCUMENTS.generate(3, MIX[0], "eval")
    request = DOCUMENTS.prompt(task)
    assert [dict(message) for message in request.messages] == json.loads(task.prompt)
    assert (request.task_id, request.tools, DOCUMENTS.tools(task)) == (task.task_id, (), ())
    assert answer_text(json.loads(task.environment or "")["gold"]) not in task.prompt


def test_reinstance_keeps_the_problem_and_changes_the_values() -> None:
    for task in DOCUMENTS.sample(48, "eval", 2):
        other = DOCUMENTS.reinstance(task, 99)
        assert (other.family, other.level, other.split, other.stage) == (
            task.family,
            task.level,
            task.split,
            task.stage,
        )
        assert other.environment != task.environment
        assert scores(other, DOCUMENTS.oracle(other)) == (1.0, 1.0)
        assert scores(other, DOCUMENTS.oracle(task)) == (0.0, 0.0)


def test_unknown_levels_and_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="no split 'test'; it has train, eval, sibling"):
        DOCUMENTS.sample(1, "test", 0)
    with pytest.raises(ConfigError, match=r"no level .*'fields': 9"):
        DOCUMENTS.generate(0, {"fields": 9, "format": "plain", "distractors": 0}, "train")
