"""ShareGPT, Alpaca, preference pairs and TensorZero: no ids, odd tags, invalid JSON, two sides of one question."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sources import USER, jsonl, read


def turn(tag: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"from": tag, "value": value, **more}


def test_a_conversation_with_calls_in_full() -> None:
    first = '{"name": "f", "arguments": {"a": 1}}'
    record = {
        "id": "conversation-0123456789",
        "system": "s",
        "tools": '[{"name": "f"}]',
        "conversations": [
            turn("human", "q"),
            turn("function_call", first, weight=1),
            turn("observation", '{"r": 1}'),
            turn("gpt", "a", loss=False),
            turn("gpt", "b", weight=0.5, mood="glad"),
        ],
        "source": "x",
    }
    outcome = read(jsonl(record))
    assert (outcome.format, outcome.rejects) == ("sharegpt", [])
    whole = outcome.only
    assert [(s.role, s.content, s.trainable) for s in whole.steps] == [
        ("system", "s", None),
        ("user", "q", None),
        ("assistant", first, True),
        ("tool", '{"r": 1}', None),
        ("assistant", "a", False),
        ("assistant", "b", None),
    ]
    assert json.loads(whole.steps[5].extra or "") == {"weight": 0.5, "mood": "glad"}
    (made,) = whole.tool_calls
    assert (made.name, made.args, made.call_id_generated, made.paired_by) == ("f", '{"a":1}', True, "order")
    assert (made.result_text, made.result_state) == ('{"r": 1}', "ok")
    assert whole.trajectory.tools == '[{"name": "f"}]', "text of the user's stays as it was typed"
    assert json.loads(whole.trajectory.extra or "") == {"source": "x"}


@pytest.mark.parametrize(
    ("value", "names", "states"),
    [
        ('[{"name": "f", "arguments": {}}, {"name": "g", "arguments": "{}"}]', ["f", "g"], ["ok", "ok"]),
        ('{"name": "f", "arguments": \'{"a": "b"}\'}', ["f"], ["ok"]),
        ('{"name": "f", "arguments": {"a": 1}', [None], ["invalid_json"]),
        ("call f please", [None], ["invalid_json"]),
        ('{"function": {"name": "f", "arguments": "{\\"a\\": 1"}}', ["f"], ["invalid_json"]),
        ('{"name": "f"}', ["f"], ["null"]),
        (None, [None], ["null"]),
    ],
)
def test_calls_that_are_text(value: Any, names: list[str | None], states: list[str]) -> None:
    whole = read(jsonl({"conversations": [turn("human", "q"), turn("function-call", value), turn("tool", "r")]})).only
    assert [made.name for made in whole.tool_calls] == names
    assert [made.args_state for made in whole.tool_calls] == states
    assert whole.tool_calls[0].result_text == "r"
    assert whole.steps[1].content == value, "what the model said is there as it was"


def test_roles_that_do_not_alternate_and_tags_that_nobody_knows() -> None:
    turns = [
        turn("human", "a"),
        turn("human", "b"),
        turn("narrator", "c"),
        turn("GPT", ""),
        turn("gpt", None),
        {"from": "gpt"},
        "x",
    ]
    whole = read(jsonl({"conversations": turns})).only
    assert [(s.role, s.role_raw, s.content_state) for s in whole.steps] == [
        ("user", "human", "present"),
        ("user", "human", "present"),
        ("event", "narrator", "present"),
        ("assistant", "GPT", "present"),
        ("assistant", "gpt", "null"),
        ("assistant", "gpt", "missing"),
        ("event", None, "missing"),
    ]
    assert whole.steps[2].content == "c"


def test_turns_of_openais_shape() -> None:
    turns = [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
    ]
    outcome = read(jsonl({"conversations": turns}, {"conversations": [USER]}))
    assert outcome.format == "sharegpt"
    assert [made.name for made in outcome.fragments[0].tool_calls] == ["f"]


def test_alpaca() -> None:
    record = {"instruction": "Translate.", "input": "Hallo", "output": "Hello", "system": "s", "history": [["q", "a"]]}
    outcome = read(jsonl(record))
    assert (outcome.format, outcome.only.trajectory.format_version) == ("sharegpt", "alpaca")
    assert [s.content for s in outcome.only.steps] == ["s", "q", "a", "Translate.\n\nHallo", "Hello"]


# --- Preference pairs ----------------------------------------------------------------------------------------


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    "record",
    [
        {
            "input": {"messages": [USER], "tools": []},
            "preferred_output": [said("A")],
            "non_preferred_output": [said("B")],
        },
        {"prompt": USER["content"], "chosen": "A", "rejected": "B"},
        {"prompt": [USER], "chosen": [said("A")], "rejected": [said("B")]},
        {"chosen": [USER, said("A")], "rejected": [USER, said("B")]},
        {"prompt": USER["content"], "chosen": [USER, said("A")], "rejected": [USER, said("B")]},
        {"conversations": [turn("human", USER["content"])], "chosen": turn("gpt", "A"), "rejected": turn("gpt", "B")},
        {"instruction": USER["content"], "input": "", "chosen": "A", "rejected": "B"},
    ],
)
def test_each_side_is_a_trajectory_and_the_other_branches_off(record: dict[str, Any]) -> None:
    outcome = read(jsonl(record))
    assert (outcome.format, outcome.rejects) == ("preference_pairs", [])
    liked, other = outcome.fragments
    assert [[s.content for s in f.steps] for f in (liked, other)] == [[USER["content"], "A"], [USER["content"], "B"]]
    assert [(o.name, o.value_bool, o.polarity) for f in (liked, other) for o in f.outcomes] == [
        ("preferred", True, 1),
        ("preferred", False, -1),
    ]
    assert other.trajectory.parent_trajectory_id == liked.key
    assert (liked.trajectory.parent_trajectory_id, other.trajectory.parent_step_ix) == (None, 0)
    assert liked.trajectory.conversation_id == other.trajectory.conversation_id
    assert {f.trajectory.success for f in (liked, other)} == {None}, "being preferred is no success"


def test_labels_of_llama_factory() -> None:
    turns = [turn("human", "q"), turn("gpt", "a")]
    outcome = read(jsonl({"conversations": turns, "kto_tag": True}, {"conversations": turns, "kto_tag": False}))
    assert [(o.name, o.polarity) for f in outcome.fragments for o in f.outcomes] == [
        ("preferred", 1),
        ("preferred", -1),
    ]
    assert {f.trajectory.success for f in outcome.fragments} == {None}


def test_scores_of_pairs_and_labels_of_single_answers() -> None:
    pair = {"prompt": "q", "chosen": "A", "rejected": "B", "score_chosen": 8.5, "score_rejected": 3, "source": "u"}
    assert [f.trajectory.reward for f in read(jsonl(pair)).fragments] == [8.5, 3.0]
    outcome = read(
        jsonl({"prompt": "q", "completion": "A", "label": True}, {"prompt": "q", "completion": "B", "label": False})
    )
    assert [(f.outcomes[0].value_bool, f.steps[-1].content) for f in outcome.fragments] == [(True, "A"), (False, "B")]


# --- TensorZero ----------------------------------------------------------------------------------------------


def test_a_datapoint_of_tensorzero() -> None:
    blocks = [{"type": "template", "name": "user", "arguments": {"topic": "sea"}}, {"type": "text", "text": "Go."}]
    used = [
        {
            "type": "tool_call",
            "id": "c",
            "name": "f",
            "arguments": '{"a": 1}',
            "raw_name": "f",
            "raw_arguments": '{"a":1}',
        }
    ]
    asked = {
        "system": {"style": "haiku"},
        "messages": [
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": used},
            {"role": "user", "content": [{"type": "tool_result", "id": "c", "name": "f", "result": "r"}]},
        ],
    }
    row = {
        "dataset_name": "d", "function_name": "write", "id": "0195", "episode_id": "e-1", "input": json.dumps(asked),
        "output": json.dumps([{"type": "thought", "text": "hm", "signature": "s"}, {"type": "text", "text": "Waves"}]),
        "tags": {"k": "v"}, "updated_at": "2025-03-10 20:14:21.000000",
    }  # fmt: skip
    outcome = read(jsonl(row, {**row, "dataset_name": "other"}))
    assert (outcome.format, len(outcome.fragments)) == ("tensorzero", 2)
    whole = outcome.fragments[0]
    assert [(s.role, s.content) for s in whole.steps] == [
        ("system", '{"style":"haiku"}'),
        ("user", '{"topic":"sea"}\nGo.'),
        ("assistant", None),
        ("tool", "r"),
        ("assistant", "Waves"),
    ]
    assert (whole.steps[4].reasoning, whole.steps[4].sampled) == ("hm", True)
    assert (whole.tool_calls[0].args_raw, whole.tool_calls[0].result_text) == ('{"a":1}', "r")
    t = whole.trajectory
    assert (t.session_id, t.agent_name, t.time_quality) == ("e-1", "write", "naive_assumed_utc")
    json_function = {**row, "id": "0196", "output": json.dumps({"raw": '{"a":1}', "parsed": {"a": 1}})}
    assert read(jsonl(json_function)).only.steps[-1].content == '{"a":1}'
    assert len(read(jsonl({**row, "output": None})).only.steps) == 4
