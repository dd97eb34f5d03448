"""Evaluation logs with anything in any place: no reader raises, no exporter either, and every record is answered."""

from __future__ import annotations

import random
from typing import Any

import pytest
from test_atof import ASK, END, SAYS, START, event
from test_harbor_job import RUN as TERMINAL_RUN
from test_harbor_job import TRIAL
from test_inspect_log import HEADER, sample
from test_samples import check_rows, swapped
from test_tau2_bench import RESULTS
from test_tau2_bench import RUN as TAU2_RUN
from test_verifiers import trace
from test_who_and_when import CASE

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.exporters import EXPORTERS, exported
from flywheel.formats.reader import Record, Source
from flywheel.formats.sniff import reader_named
from flywheel.records import Attachment, Fragment, Reject

CALL = {
    "event": "model",
    "model": "m",
    "span_id": "s",
    "timestamp": "2026-01-01T00:00:00Z",
    "input_refs": [[0, 1]],
    "output": {
        "choices": [{"message": {"id": "m2", "role": "assistant", "content": "2"}, "stop_reason": "stop"}],
        "usage": {"input_tokens": 9, "input_tokens_cache_read": 1, "output_tokens": 3},
    },
}
TOOL = {
    "id": "m3",
    "role": "tool",
    "tool_call_id": "c",
    "function": "f",
    "content": "attachment://h",
    "error": {"type": "t", "message": "m"},
}
ASKING = {
    "id": "m4",
    "role": "assistant",
    "content": [{"type": "reasoning", "reasoning": "hm", "redacted": True}, {"type": "text", "text": "x"}],
    "tool_calls": [{"id": "c", "function": "f", "arguments": {"a": 1}, "parse_error": "e"}],
}
FULL_SAMPLE = sample(
    events=[CALL],
    events_data={"messages": [ASK]},
    attachments={"h": "text"},
    scores={"s": {"value": {"a": "C"}, "explanation": "e"}},
    limit={"type": "time"},
    error={"message": "E('x')"},
    model_usage={"m": {"input_tokens": 1, "total_cost": 0.1}},
    metadata={"a": 1},
)
FULL_SAMPLE["messages"] = [*FULL_SAMPLE["messages"], ASKING, TOOL]
ROW = {
    "example_id": 1,
    "prompt": [ASK],
    "completion": [{"role": "assistant", "content": "2", "tool_calls": ['{"id":"c","name":"f","arguments":"{}"}']}],
    "reward": 0.5,
    "metrics": {"m": 1},
    "trajectory": [{"prompt": [ASK], "completion": [], "response": SAYS, "tokens": {"completion_ids": [1]}}],
    "token_usage": {"input_tokens": 1.0},
    "timing": {"start_time": 1796063258.3, "total": 1.0},
}
JUDGED = {
    "benchmark_name": "tau2-bench",
    "task_name": "t",
    "model_path": "m",
    "messages": TAU2_RUN["messages"],
    "eval_result": {"score": 1.0, "db_match": True},
    "meta": {"id": "i", "is_correct": True, "finish_reason": "user_stop", "agent_cost": 0.1},
}
SPOKEN = {
    **{key: item for key, item in TAU2_RUN.items() if key != "messages"},
    "ticks": [
        {"user_chunk": {"contains_speech": True, "content": "a"}, "agent_tool_calls": [{"id": "c", "name": "f"}]}
    ],
}
FULL: dict[str, list[Any]] = {
    "inspect_log": [
        {**HEADER, "samples": [FULL_SAMPLE], "results": {"scores": [{"name": "s", "metrics": {"m": {"value": 1}}}]}},
        FULL_SAMPLE,
        {"events": [{"event": "span_begin", "id": "s", "parent_id": None}, CALL], "message_pool": [ASK]},
    ],
    "verifiers": [{"id": "e", "env": {"id": "v"}, "traces": [trace(rewards={"r": {"score": 1, "weight": 1}})]}, ROW],
    "tau2_bench": [RESULTS, TAU2_RUN, JUDGED, SPOKEN],
    "tau_bench": [{**JUDGED, "benchmark_name": "taubench"}, {"messages_display": "user: a\nassistant: b"}],
    "terminal_bench": [TERMINAL_RUN],
    "harbor_job": [TRIAL, {"id": "j", "n_total_trials": 1, "stats": {}, "trial_results": [TRIAL]}],
    "who_and_when": [CASE],
    "atof": [START, event("llm", "start", "l", data={"messages": [ASK]}), event("llm", "end", "l", data=SAYS), END],
}


@pytest.mark.parametrize("name", sorted(FULL))
def test_no_reader_raises_and_what_it_made_can_be_exported(name: str) -> None:
    rng = random.Random(f"odd {name}")
    reader = reader_named(name)
    exports = 0
    for turn in range(500):
        values = (
            [swapped(value, rng) for value in FULL[name]] if name == "atof" else [swapped(rng.choice(FULL[name]), rng)]
        )
        records = [Record(ix=ix, offset=0, length=9, value=value) for ix, value in enumerate(values)]
        items = list(reader.read(iter(records), Source(source_id="s", uri="a/b__c/agent/trajectory.json")))
        assert items or name == "inspect_log", values
        for item in items:
            if isinstance(item, Fragment):
                check_rows(item)
            else:
                assert isinstance(item, (Attachment, Reject))
        for whole in assemble(item for item in items if isinstance(item, Fragment)):
            complete(whole)
            if turn % 5 == 0:
                for format_name in EXPORTERS:
                    made = exported(whole, format_name)
                    assert made.copy is not None
                    exports += 1
    assert exports > 20
