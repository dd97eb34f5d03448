"""Fragments with one key: parts join, later records replace, sources without an order let the longer one win."""

from __future__ import annotations

from dataclasses import replace

from sources import USER, answers, asks, call, jsonl, read

from flywheel.formats.assemble import assemble, complete
from flywheel.records import Fragment

LONG = read(jsonl({"messages": [USER, asks(call("c")), answers("c"), {"role": "assistant", "content": "done"}]})).only


def part(*steps: int, source: str = "s", **head: object) -> Fragment:
    return replace(
        LONG,
        trajectory=replace(LONG.trajectory, source_id=source, **head),  # type: ignore[arg-type]
        steps=tuple(LONG.steps[ix] for ix in steps),
        tool_calls=tuple(made for made in LONG.tool_calls if made.step_ix in steps),
    )


def test_parts_join_in_the_order_of_their_steps() -> None:
    (joined,) = assemble([part(2, 3, model=None), part(0, 1, model="m")])
    assert [step.step_ix for step in joined.steps] == [0, 1, 2, 3]
    assert joined.trajectory.model == "m"
    assert complete(joined).trajectory.content_sha256 == LONG.trajectory.content_sha256


def test_a_later_record_of_a_source_replaces_and_keeps_what_it_does_not_know() -> None:
    (joined,) = assemble([part(0, 1, 2, 3, task_id="t", model="old"), part(0, 1, task_id=None, model="new")])
    assert [step.step_ix for step in joined.steps] == [0, 1]
    assert (joined.trajectory.task_id, joined.trajectory.model) == ("t", "new")


def test_between_sources_the_longer_record_wins_whatever_the_order() -> None:
    long, short = part(0, 1, 2, 3, source="a"), part(0, 1, source="b")
    for order in ([long, short], [short, long]):
        (joined,) = assemble(order)
        assert (len(joined.steps), joined.trajectory.source_id) == (4, "a")


def test_feedback_alone_joins_its_trajectory() -> None:
    said = read(jsonl({"id": "x", "messages": [USER], "feedback": [True]})).only
    (joined,) = assemble([part(0, 1), replace(said, key=LONG.key, steps=(), tool_calls=())])
    assert len(joined.steps) == 2
    assert joined.outcomes == said.outcomes


def test_complete_counts_and_hashes_and_is_idempotent() -> None:
    assert complete(LONG) == LONG
    t = LONG.trajectory
    assert (t.n_steps, t.n_llm_calls, t.n_tool_calls, t.n_tool_errors, t.time_quality) == (4, 2, 1, 0, "missing")
    assert t.usage_quality == "missing"
    assert t.content_complete


def test_the_content_hash_sees_content_and_not_ids() -> None:
    def sha(call_id: str = "c", content: object = "found", arguments: object = "{}") -> str:
        messages = [USER, asks(call(call_id, arguments)), answers(call_id, content)]
        return read(jsonl({"messages": messages})).only.trajectory.content_sha256

    assert sha() == sha(call_id="other") == sha(arguments={})
    assert len({sha(), sha(content="lost"), sha(content=None), sha(content=""), sha(arguments='{"a":1}')}) == 5


def test_cut_content_makes_it_incomplete() -> None:
    cut = replace(LONG, steps=(replace(LONG.steps[0], content_state="truncated"), *LONG.steps[1:]))
    assert not complete(cut).trajectory.content_complete
