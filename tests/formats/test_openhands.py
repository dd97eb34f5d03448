"""OpenHands: both versions in every packing, duplicates after a resume, sums of tokens, refusals and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from sources import SOURCE, chunked, jsonl, read

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.sniff import Reading, open_readings
from flywheel.records import Fragment

FOLDER = "conversations/e18b827d3440425a9ff7353c4a6d6a3a"


def v1(kind: str, name: str, second: int, **rest: Any) -> dict[str, Any]:
    return {"id": name, "timestamp": f"2026-06-16T05:39:{second:02}.5", "source": "agent", "kind": kind, **rest}


def acts(name: str, second: int, call_id: str = "c1", response: str = "r1", **rest: Any) -> dict[str, Any]:
    call = {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}'}
    given = {"tool_name": "terminal", "tool_call_id": call_id, "tool_call": call, "llm_response_id": response, **rest}
    return v1("ActionEvent", name, second, thought=[{"type": "text", "text": "look"}], **given)


def sees(name: str, second: int, call_id: str = "c1", text: str = "ok", **rest: Any) -> dict[str, Any]:
    inner = {"content": [{"type": "text", "text": text}], "kind": "TerminalObservation", **rest}
    return v1(
        "ObservationEvent", name, second, tool_call_id=call_id, tool_name="terminal", observation=inner, action_id="a1"
    )


def stats(name: str, second: int, prompt: int, answer: int, cost: float) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": answer, "cache_read_tokens": 0}
    metrics = {"default": {"accumulated_cost": cost, "accumulated_token_usage": usage, "model_name": "m"}}
    return v1("ConversationStateUpdateEvent", name, second, key="stats", value={"usage_to_metrics": metrics})


ASKS = v1(
    "MessageEvent", "m1", 1, source="user", llm_message={"role": "user", "content": [{"type": "text", "text": "go"}]}
)


def test_version_1_out_of_order_with_duplicates() -> None:
    only = read(
        jsonl(
            ASKS,
            sees("o1", 5),
            acts("a1", 4),
            acts("a2", 4, call_id="c2"),
            acts("a1", 4),
            sees("o2", 6, call_id="c2", text="no", exit_code=1),
            sees("o3", 7, call_id="c2", text="no"),
        )
    ).only
    assert [step.role for step in only.steps] == ["user", "assistant", "tool", "tool", "tool"]
    assert only.steps[1].n_tool_calls == 2 and only.trajectory.n_llm_calls == 1
    told = [(call.call_id, call.result_state, call.error_type) for call in only.tool_calls]
    assert told == [("c1", "ok", None), ("c2", "duplicate", "exit_code_1")]
    assert only.trajectory.quality_flags == ("duplicate_result",)


def test_sums_of_tokens_become_tokens_of_answers() -> None:
    only = read(
        jsonl(
            ASKS,
            stats("s1", 2, 10, 1, 0.25),
            acts("a1", 3),
            sees("o1", 4),
            stats("s2", 5, 40, 6, 0.75),
            acts("a2", 6, "c2", "r2"),
        )
    ).only
    answers = [step for step in only.steps if step.role == "assistant"]
    assert [(s.input_tokens, s.output_tokens, s.cost_usd) for s in answers] == [
        (10, 1, Decimal("0.25")), (30, 5, Decimal("0.50")),
    ]  # fmt: skip
    t = only.trajectory
    assert (t.input_tokens, t.output_tokens, t.cost_usd, t.model) == (40, 6, Decimal("0.75"), "m")


def test_refusals_errors_and_ends_of_version_1() -> None:
    refused = v1("UserRejectObservation", "u1", 5, tool_call_id="c1", rejection_reason="too risky")
    only = read(jsonl(ASKS, acts("a1", 4), refused, v1("PauseEvent", "p", 6, source="user"))).only
    assert (only.tool_calls[0].result_state, only.tool_calls[0].result_text) == ("rejected", "too risky")
    assert only.trajectory.end_reason == "user_abort"
    broken = v1("AgentErrorEvent", "e1", 5, tool_call_id="c1", error="no such tool")
    dead = v1("ConversationErrorEvent", "e2", 6, code="MaxIterationsReached", detail="stopped at 500")
    only = read(jsonl(ASKS, acts("a1", 4), broken, dead)).only
    assert (only.tool_calls[0].is_error, only.tool_calls[0].error_type) == (True, "agent_error")
    t = only.trajectory
    assert (t.end_reason, t.error_type, t.error_message) == ("max_turns", "MaxIterationsReached", "stopped at 500")
    done = acts("a1", 4, action={"kind": "FinishAction", "message": "ok"}, tool_name="finish")
    assert read(jsonl(ASKS, done, sees("o1", 5))).only.trajectory.end_reason == "completed"


def test_one_event_a_file_is_one_conversation(samples: Path) -> None:
    events = [ASKS, acts("a1", 4), sees("o1", 5)]
    state = json.loads((samples / "openhands" / "v1_base_state.json").read_text(encoding="utf-8"))
    state["id"] = "e18b827d-3440-425a-9ff7-353c4a6d6a3a"
    files = {f"{FOLDER}/events/event-{ix:05}-{event['id']}.json": event for ix, event in enumerate(events)}
    files[f"{FOLDER}/base_state.json"] = state
    fragments = []
    for uri, value in reversed(files.items()):
        source = replace(SOURCE, uri=uri, source_id=uri)
        (reading,) = open_readings(chunked(json.dumps(value, indent=1).encode()), source)
        assert isinstance(reading, Reading)
        fragments += [item for item in reading.items() if isinstance(item, Fragment)]
    assert all(fragment.partial for fragment in fragments)
    (only,) = map(complete, assemble(fragments))
    assert [step.role for step in only.steps] == ["user", "assistant", "tool"]
    assert (only.trajectory.native_id, only.trajectory.model) == (FOLDER.split("/")[1], "gpt-4o-mini")
    assert only.tool_calls[0].result_state == "ok"


def v0(number: int, source: str, **rest: Any) -> dict[str, Any]:
    return {"id": number, "timestamp": f"2025-01-27T22:44:{number:02}.9", "source": source, "message": "", **rest}


def test_version_0_takes_a_response_once_however_many_events_carry_it() -> None:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "bash", "arguments": f'{{"n":{n}}}'}} for n in (1, 2)
    ]
    message = {"role": "assistant", "content": "both", "tool_calls": calls}
    response = {
        "id": "r1",
        "model": "m",
        "choices": [{"finish_reason": "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }

    def asked(n: int) -> dict[str, Any]:
        return {
            "tool_call_metadata": {
                "function_name": "bash",
                "tool_call_id": f"c{n}",
                "model_response": response,
                "total_calls_in_response": 2,
            }
        }

    extras = {"metadata": {"exit_code": 3}}
    only = read(
        json.dumps(
            [
                v0(0, "user", action="message", args={"content": "go"}),
                v0(1, "agent", action="run", args={"command": "1", "thought": "both"}, **asked(1)),
                v0(
                    2,
                    "agent",
                    observation="run",
                    content="one",
                    extras={"metadata": {"exit_code": 0}},
                    cause=1,
                    **asked(1),
                ),
                v0(3, "agent", action="run", args={"command": "2"}, **asked(2)),
                v0(4, "agent", observation="run", content="two", extras=extras, cause=3, **asked(2)),
            ]
        ).encode()
    ).only
    assert [step.role for step in only.steps] == ["user", "assistant", "tool", "tool"]
    assert [(call.args_raw, call.is_error, call.error_type) for call in only.tool_calls] == [
        ('{"n":1}', False, None), ('{"n":2}', True, "exit_code_3"),
    ]  # fmt: skip
    assert (only.trajectory.n_llm_calls, only.trajectory.input_tokens) == (1, 9)


def test_version_0_states_and_refusals() -> None:
    state = v0(
        3,
        "environment",
        observation="agent_state_changed",
        content="",
        extras={"agent_state": "error", "reason": "Agent reached maximum iteration"},
    )
    only = read(
        json.dumps(
            [
                v0(0, "user", action="message", args={"content": "go"}),
                v0(1, "agent", action="run", args={"command": "rm"}),
                v0(2, "agent", observation="user_rejected", content="no", extras={}, cause=1),
                state,
            ]
        ).encode()
    ).only
    assert only.tool_calls[0].result_state == "rejected"
    assert (only.trajectory.end_reason, only.trajectory.error_message) == (
        "max_turns",
        "Agent reached maximum iteration",
    )


def test_evaluations_have_their_outcome(samples: Path) -> None:
    history = [
        [
            {"action": "run", "args": {"command": "ls"}, "source": "agent"},
            {"observation": "run", "content": "x", "extras": {}, "source": "agent"},
        ]
    ]
    value = {
        "instance_id": "repo__repo-1",
        "instruction": "fix",
        "history": history,
        "metrics": {"accumulated_cost": 0.5},
        "test_result": {"git_patch": "diff", "report": {"resolved": False}},
        "error": "RuntimeError: Agent reached maximum iteration",
    }
    t = (only := read(jsonl(value)).only).trajectory
    assert (t.native_id, t.task_id, t.success, t.end_reason, float(t.cost_usd or 0)) == (
        "repo__repo-1",
        "repo__repo-1",
        False,
        "max_turns",
        0.5,
    )
    assert only.tool_calls[0].result_state == "ok"
    first, second = read((samples / "openhands" / "v0_resolver_output.jsonl").read_bytes()).fragments
    assert [o.source_kind for o in first.outcomes] == ["llm_judge"] and first.trajectory.success is True
    assert (len(second.tool_calls), second.trajectory.end_reason) == (22, "completed")


def test_the_samples(samples: Path) -> None:
    for path in sorted((samples / "openhands").iterdir()):
        outcome = read(path.read_bytes())
        assert (outcome.format, outcome.rejects) == ("openhands", []), path.name
        assert all(fragment.steps for fragment in outcome.fragments)


def test_a_fork_is_a_branch() -> None:
    again = {**ASKS, "id": "m2", "timestamp": "2026-06-16T05:39:09.5", "parent_id": "m1"}
    named = [
        ASKS,
        {**acts("a1", 4), "parent_id": "m1"},
        {**acts("a2", 4, "c2"), "parent_id": "a1"},
        sees("o1", 5),
        again,
    ]
    only = read(jsonl(*named)).only
    assert [step.parent_ix for step in only.steps] == [None, 0, 1, 0]


def test_openhands_runs_of_the_sdk_name_their_model() -> None:
    event = {
        "kind": "MessageEvent",
        "id": "00000000-0000-4000-8000-000000000001",
        "timestamp": "2025-11-10T10:00:01.123456",
        "source": "user",
        "llm_message": {"role": "user", "content": [{"type": "text", "text": "do"}]},
    }
    run = {"instance_id": "a__b-1", "instruction": "do", "metrics": {"accumulated_cost": 0.5}, "history": [event]}
    outcome = read(jsonl(run | {"metadata": {"llm": {"model": "litellm_proxy/claude"}}}))
    assert (outcome.version, outcome.only.trajectory.model) == ("1", "litellm_proxy/claude")
    assert read(jsonl(run | {"metrics": {"model_name": "other"}})).only.trajectory.model == "other"
