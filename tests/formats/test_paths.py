"""Requests that repeat their history become one graph: shared once, branches kept, calls with their results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sources import USER, answers, asks, call, jsonl, read

from flywheel.formats.assemble import assemble, complete
from flywheel.records import Fragment


def path(*messages: dict[str, Any], ix: int = 0, key: str = "k", **steps: dict[int, Any]) -> Fragment:
    """A path of these messages; `steps` are columns by name, each with values by step."""
    made = read(jsonl({"messages": list(messages)})).fragments[0]
    rows = [
        replace(step, **{name: values[step.step_ix] for name, values in steps.items() if step.step_ix in values})
        for step in made.steps
    ]
    head = replace(made.trajectory, source_record_ix=ix)
    return replace(
        made, key=key, record_ix=ix, is_path=True, partial=True, trajectory=head, steps=tuple(rows),
    )  # fmt: skip


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def asked(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def shape(whole: Fragment) -> list[tuple[str, str | None, int | None]]:
    return [(step.role, step.content, step.parent_ix) for step in whole.steps]


def test_a_growing_history_is_one_path_and_is_counted_once() -> None:
    tokens = {"input_tokens": {1: 5}, "output_tokens": {1: 2}}
    more = {"input_tokens": {3: 9}, "output_tokens": {3: 4}}
    paths = [path(USER, says("hi"), **tokens), path(USER, says("hi"), asked("more"), says("ok"), ix=1, **more)]
    (whole,) = map(complete, assemble(paths))
    assert shape(whole) == [
        ("user", USER["content"], None), ("assistant", "hi", 0), ("user", "more", 1), ("assistant", "ok", 2),
    ]  # fmt: skip
    assert (whole.trajectory.input_tokens, whole.trajectory.output_tokens, whole.trajectory.n_steps) == (14, 6, 4)
    assert [step.step_ix for step in whole.steps] == [0, 1, 2, 3]
    assert assemble(paths[:1])[0].steps == paths[0].steps


def test_where_paths_part_there_is_a_branch() -> None:
    (whole,) = assemble(
        [path(USER, says("a"), asked("x")), path(USER, says("b"), ix=1), path(USER, says("a"), asked("y"))]
    )
    assert shape(whole) == [
        ("user", USER["content"], None), ("assistant", "a", 0), ("user", "x", 1), ("assistant", "b", 0),
        ("user", "y", 1),
    ]  # fmt: skip


def test_a_corrected_record_of_a_response_takes_its_place() -> None:
    first = path(USER, says("a"), llm_call_id={1: "r1"})
    second = path(USER, says("b"), ix=1, llm_call_id={1: "r1"})
    (whole,) = assemble([first, second])
    assert shape(whole) == [("user", USER["content"], None), ("assistant", "b", 0)]


def test_what_either_path_knows_stays() -> None:
    first = path(USER, says("a"), reasoning={1: "why"}, quality_flags={1: ("f",)})
    second = path(USER, says("a"), ix=1, model={1: "m"}, quality_flags={1: ("g",)}, native_id={0: "n"})
    (whole,) = assemble([first, second])
    assert (whole.steps[1].reasoning, whole.steps[1].model, whole.steps[1].quality_flags) == ("why", "m", ("f", "g"))
    assert whole.steps[0].native_id == "n"


def test_calls_move_with_their_steps_and_get_the_result_that_a_later_path_has() -> None:
    alone = path(USER, asks(call("c1")))
    later = path(asked("other"), says("x"), ix=1)
    answered = path(USER, asks(call("c9")), answers("c9", "found"), says("done"), ix=2)
    retried = path(USER, asks(call("c9")), answers("c9", "lost"), ix=3)
    (whole,) = assemble([alone, later, answered, retried])
    assert shape(whole) == [
        ("user", USER["content"], None), ("assistant", None, 0), ("user", "other", None), ("assistant", "x", 2),
        ("tool", "found", 1), ("assistant", "done", 4), ("tool", "lost", 1),
    ]  # fmt: skip
    (made,) = whole.tool_calls
    assert (made.step_ix, made.call_ix, made.result_step_ix, made.result_text) == (1, 0, 4, "found")
    assert (made.call_id, made.result_state) == ("c9", "ok")


def test_no_content_is_empty_content_and_other_arguments_are_another_call() -> None:
    empty = {"role": "assistant", "content": "", "tool_calls": [call("c")]}
    other = {"role": "assistant", "content": None, "tool_calls": [call("c", '{"a":1}')]}
    (whole,) = assemble([path(USER, asks(call("c"))), path(USER, empty, ix=1), path(USER, other, ix=2)])
    assert [(step.role, step.parent_ix) for step in whole.steps] == [("user", None), ("assistant", 0), ("assistant", 0)]
    assert [(made.step_ix, made.args) for made in whole.tool_calls] == [(1, "{}"), (2, '{"a":1}')]


def test_outcomes_move_and_parts_of_other_kinds_join() -> None:
    said = read(jsonl({"messages": [USER], "feedback": [True]})).only.outcomes[0]
    first = path(asked("other"))
    second = replace(path(USER, says("a"), ix=1), outcomes=(replace(said, step_ix=1),))
    late = replace(path(ix=2), is_path=False, steps=(), tool_calls=(), outcomes=(replace(said, outcome_id="o2"),))
    (whole,) = assemble([first, second, late])
    assert {(outcome.outcome_id, outcome.step_ix) for outcome in whole.outcomes} == {(said.outcome_id, 2), ("o2", None)}
    assert len(whole.steps) == 3
