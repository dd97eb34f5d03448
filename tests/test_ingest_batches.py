"""Parts of one trajectory in several batches: the newest revision holds all of it, whatever came first."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.ingest import IngestResult, ingest
from flywheel.store.keys import key_file
from flywheel.store.lake import Lake
from flywheel.store.lake_known import Known
from flywheel.trajectory.redact import Redaction
from flywheel.workspace import Workspace

CONFIG = Config()
KEY = b"0" * 64
MAIL = "jane.doe@example.com"
TRACE = "5b8efff798038103d269b633813fc60c"
Files = Mapping[str, bytes]
Rows = dict[str, list[dict[str, Any]]]
# Of what a row says these tell where and when it was stored.
STORED = {"batch_id", "revision", "source_id", "source_record_ix"}
ORDER = {
    "trajectory": "trajectory_id",
    "step": "trajectory_id, step_ix",
    "tool_call": "trajectory_id, step_ix, call_ix",
    "outcome": "outcome_id",
}


def new_workspace(tmp_path: Path) -> Workspace:
    root = next(path for n in count() if not (path := tmp_path / f"w{n}").exists())
    root.mkdir()
    (root / "flywheel.toml").write_text("")
    key_file(Workspace(root)).parent.mkdir()
    key_file(Workspace(root)).write_bytes(KEY)
    return Workspace(root)


def add(workspace: Workspace, files: Files) -> IngestResult:
    """Ingest and publish the files as one batch."""
    folder = next(path for n in count() if not (path := workspace.root / f"in{n}").exists())
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    result = ingest(workspace, CONFIG, [folder])
    assert result.batch is not None
    assert result.quarantined == 0
    Lake(workspace).publish(result.batch)
    return result


def rows(workspace: Workspace) -> Rows:
    """What the lake's views show, but for where it was stored."""
    found = {table: Lake(workspace).query(f"FROM {table} ORDER BY {by}") for table, by in ORDER.items()}
    return {
        table: [{name: v for name, v in row.items() if name not in STORED} for row in of_table]
        for table, of_table in found.items()
    }


def revisions(workspace: Workspace) -> list[int]:
    return [row["revision"] for row in Lake(workspace).query("SELECT revision FROM trajectory ORDER BY trajectory_id")]


def ingested(tmp_path: Path, *batches: Files) -> Workspace:
    workspace = new_workspace(tmp_path)
    for files in batches:
        add(workspace, files)
    return workspace


def differing(some: Rows, others: Rows) -> list[tuple[str, int, str, Any, Any]]:
    """The cells that differ."""
    assert {table: len(found) for table, found in some.items()} == {
        table: len(found) for table, found in others.items()
    }
    return [
        (table, ix, column, value, other[column])
        for table, found in some.items()
        for ix, (row, other) in enumerate(zip(found, others[table], strict=True))
        for column, value in row.items()
        if value != other[column]
    ]


def in_every_order(tmp_path: Path, first: Files, second: Files) -> Rows:
    """The rows of both parts: the same in one batch and in two, either way. Parts that come again add nothing."""
    found = []
    for batches in ([{**first, **second}], [first, second], [second, first]):
        workspace = ingested(tmp_path, *batches)
        found.append(rows(workspace))
        before = revisions(workspace)
        padded = {name: data + b"\n" for name, data in first.items()}  # other bytes that say the same
        add(workspace, padded)
        assert differing(found[-1], rows(workspace)) == []
        assert revisions(workspace) == before
    assert differing(found[0], found[1]) == []
    assert differing(found[0], found[2]) == []
    return found[0]


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# --- traces ---


def attributes(values: Mapping[str, Any]) -> list[Any]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def span(span_id: str, at: int, parent: str = "", **values: str) -> dict[str, Any]:
    start = 1_796_062_483_000_000_000 + at * 10**9
    return {
        "traceId": TRACE, "spanId": span_id * 16, "parentSpanId": parent * 16, "name": f"span {span_id}",
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**8),
        "attributes": attributes({key.replace("__", "."): value for key, value in values.items()}), "status": {},
    }  # fmt: skip


def spans(*found: Any) -> Any:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "s"}, "spans": list(found)}]}]}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def chat(span_id: str, at: int, told: list[Any], answer: Any, parent: str = "a") -> dict[str, Any]:
    return span(
        span_id, at, parent, gen_ai__operation__name="chat", gen_ai__input__messages=json.dumps(told),
        gen_ai__output__messages=json.dumps([answer]),
    )  # fmt: skip


AGENT = span("a", 0, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="clerk", session__id="s-1",
             user__id="user_4711")  # fmt: skip
ASKED = said("user", f"Write to {MAIL}, I'm user_4711")
FIRST = chat("b", 1, [ASKED], said("assistant", f"To {MAIL}?"))
SECOND = chat(
    "c", 3, [ASKED, said("assistant", f"To {MAIL}?"), said("user", "yes")], said("assistant", f"Sent to {MAIL}")
)


def test_spans_that_come_an_hour_later_join_their_trace(tmp_path: Path) -> None:
    found = in_every_order(
        tmp_path, {"one.jsonl": lines(spans(AGENT, FIRST))}, {"two.jsonl": lines(spans({**AGENT}, SECOND))}
    )
    assert [step["role"] for step in found["step"]] == ["user", "assistant", "user", "assistant"]
    assert MAIL not in repr(found)
    assert "user_4711" not in repr(found)
    (head,) = found["trajectory"]
    assert head["session_id"] == "s-1"
    assert head["agent_name"] == "clerk"


def test_a_session_that_is_told_later_tears_no_conversation_apart(tmp_path: Path) -> None:
    workspace = ingested(tmp_path, {"one.jsonl": lines(spans(FIRST))}, {"two.jsonl": lines(spans(AGENT, SECOND))})
    found = rows(workspace)
    assert [step["parent_ix"] for step in found["step"]] == [None, 0, 1, 2]
    assert len(set(re.findall(r"\[EMAIL_[0-9a-f]{8}\]", repr(found["step"])))) == 1
    third = chat("d", 5, [ASKED, said("assistant", f"To {MAIL}?")], said("assistant", f"And {MAIL}?"))
    add(workspace, {"three.jsonl": lines(spans(third))})
    assert len(set(re.findall(r"\[EMAIL_[0-9a-f]{8}\]", repr(rows(workspace)["step"])))) == 1


def test_a_span_that_was_finished_later_is_whole_however_often_something_follows(tmp_path: Path) -> None:
    begun = {key: value for key, value in FIRST.items() if key != "endTimeUnixNano"}
    begun["attributes"] = begun["attributes"][:2]
    workspace = ingested(
        tmp_path,
        {"one.jsonl": lines(spans(AGENT, begun))},
        {"two.jsonl": lines(spans(FIRST))},
        {"three.jsonl": lines(spans(SECOND))},
    )
    assert [step["role"] for step in rows(workspace)["step"]] == ["user", "assistant", "user", "assistant"]
    assert revisions(workspace) == [2]


def test_subagents_keep_their_spans(tmp_path: Path) -> None:
    tool = span("d", 4, "a", gen_ai__operation__name="execute_tool", gen_ai__tool__name="helper")
    helper = span("e", 5, "d", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="helper")
    one = chat("f", 6, [said("user", "help")], said("assistant", "how?"), "e")
    two = chat(
        "1", 8, [said("user", "help"), said("assistant", "how?"), said("user", "so")], said("assistant", "ok"), "e"
    )
    found = in_every_order(
        tmp_path,
        {"one.jsonl": lines(spans(AGENT, FIRST, tool, helper, one))},
        {"two.jsonl": lines(spans(two, helper, tool))},
    )
    by_agent = {head["agent_name"]: head["n_llm_calls"] for head in found["trajectory"]}
    assert by_agent == {"clerk": 1, "helper": 2}


def test_traces_and_logs_apart(tmp_path: Path, samples: Path) -> None:
    folder = samples / "otlp"
    traces = {"traces.jsonl": (folder / "genai_openai_1.3b0_traces.otlp.jsonl").read_bytes()}
    logs = {"logs.jsonl": (folder / "genai_openai_1.3b0_logs.otlp.jsonl").read_bytes()}
    found = in_every_order(tmp_path, traces, logs)
    assert all(head["content_complete"] for head in found["trajectory"])


# --- Langfuse's legacy tables ---


def observation(name: str, at: int, kind: str, parent: str | None = "root", **fields: Any) -> dict[str, Any]:
    return {
        "id": name, "trace_id": "trace-00000000000000000001", "type": kind, "name": name,
        "parent_observation_id": parent, "start_time": f"2025-10-30T08:45:{at:02}.000Z",
        "end_time": f"2025-10-30T08:45:{at + 1:02}.500Z", "level": "DEFAULT", **fields,
    }  # fmt: skip


TRACE_ROW = {
    "id": "trace-00000000000000000001", "timestamp": "2025-10-30T08:45:00.000Z", "name": "weather", "project_id": "p",
    "user_id": "user_4711", "session_id": "session-1", "tags": ["prod"], "metadata": {"task_id": "task-7"},
    "input": "Weather?", "output": None, "release": "r1", "version": "v9",
}  # fmt: skip
SCORE = {
    "id": "score-1", "trace_id": "trace-00000000000000000001", "observation_id": None, "session_id": None,
    "name": "user-feedback", "value": 0, "string_value": None, "data_type": "NUMERIC", "source": "API",
    "comment": "wrong", "project_id": "p", "timestamp": "2025-10-31T08:00:00.000Z",
}  # fmt: skip


def test_tables_of_langfuse_apart(tmp_path: Path) -> None:
    observations = lines(
        observation("root", 0, "AGENT", None),
        observation("first", 1, "GENERATION", input=json.dumps([{"role": "user", "content": "Weather?"}]),
                    output=json.dumps({"role": "assistant", "content": "Sunny."}), model="gpt-5"),
    )  # fmt: skip
    tables = {"traces/1.jsonl": lines(TRACE_ROW), "scores/1.jsonl": lines(SCORE)}
    found = in_every_order(tmp_path, {"observations/1.jsonl": observations}, tables)
    (head,) = found["trajectory"]
    assert (head["task_id"], head["session_id"], head["success"], head["n_steps"]) == ("task-7", "session-1", False, 2)


# --- Harbor ---

TRIAL: dict[str, Any] = {
    "id": "0b6cbd3c-6b7e-4d5f-8e7f-000000000001", "task_name": "hello-world", "trial_name": "hello-world__AbCdEfG",
    "config": {"job_id": "job-1"}, "agent_info": {"name": "terminus-2", "version": "2"},
    "agent_result": {"n_input_tokens": 100}, "verifier_result": {"rewards": {"reward": 1.0}}, "exception_info": None,
    "started_at": "2026-04-01T10:00:00Z", "finished_at": "2026-04-01T10:05:00Z",
}  # fmt: skip
ATIF = {
    "schema_version": "ATIF-v1.6", "session_id": "s-1", "agent": {"name": "terminus-2", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": f"Write to {MAIL}."},
        {"step_id": 2, "source": "agent", "message": "Done."},
    ],
}  # fmt: skip


def test_the_result_of_a_trial_and_its_messages_apart(tmp_path: Path) -> None:
    trial, messages = "hello-world__AbCdEfG/result.json", "hello-world__AbCdEfG/agent/trajectory.json"
    both = [{trial: json.dumps(TRIAL).encode()}, {messages: json.dumps(ATIF).encode()}]
    found = []
    for batches in ([{**both[0], **both[1]}], both, both[::-1]):
        workspace = ingested(tmp_path, *batches)
        found.append(rows(workspace))
        (head,) = found[-1]["trajectory"]
        assert (head["success"], head["reward"], head["task_id"], head["n_steps"]) == (True, 1.0, "hello-world", 2)
        assert (head["content_complete"], head["quality_flags"]) == (True, None)
    for table in ("tool_call", "outcome"):
        assert found[0][table] == found[1][table] == found[2][table]
    assert len({one["trajectory"][0]["content_sha256"] for one in found}) == 1


# --- conversations ---


def call(
    n: int, messages: Sequence[dict[str, Any]], answer: str, conversation: str = "conversation-0001"
) -> dict[str, Any]:
    return {
        "conversation_id": conversation,
        "request": {"model": "gpt-5", "messages": list(messages)},
        "response": {
            "id": f"chatcmpl-{n:016d}", "object": "chat.completion", "created": 1_796_062_483 + n, "model": "gpt-5",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10 * n, "completion_tokens": n, "total_tokens": 11 * n},
        },
    }  # fmt: skip


USER = {"role": "user", "content": f"Order for {MAIL}"}
SAID = {"role": "assistant", "content": f"Noted {MAIL}"}
MORE = {"role": "user", "content": "And?"}


def test_the_next_call_of_a_conversation_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = call(1, [USER], str(SAID["content"])), call(2, [USER, SAID, MORE], "Shipped")
    found = in_every_order(tmp_path, {"one.jsonl": lines(first)}, {"two.jsonl": lines(second)})
    assert [step["role"] for step in found["step"]] == ["user", "assistant", "user", "assistant"]
    (head,) = found["trajectory"]
    assert (head["n_llm_calls"], head["input_tokens"], head["output_tokens"]) == (2, 30, 3)


def test_branches_are_numbered_in_time_whatever_came_first(tmp_path: Path) -> None:
    calls = [
        call(1, [USER], "no"),
        call(2, [USER], "yes"),
        call(3, [USER, {"role": "assistant", "content": "no"}, MORE], "!"),
    ]
    found = in_every_order(tmp_path, {"one.jsonl": lines(calls[0], calls[2])}, {"two.jsonl": lines(calls[1])})
    shape = [(step["content"], step["parent_ix"]) for step in found["step"]][1:]
    assert shape == [("no", 0), ("yes", 0), ("And?", 1), ("!", 3)]


def test_a_session_that_grew_is_one_trajectory(tmp_path: Path) -> None:
    def line(n: int, kind: str, content: Any) -> dict[str, Any]:
        return {
            "type": kind, "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "cwd": "/repo", "version": "2.1.0",
            "sessionId": "11111111-2222-4333-8444-555555555555", "isSidechain": False,
            "timestamp": f"2026-10-01T12:00:0{n}.000Z",
            "message": {"role": kind, "content": content, "id": f"m{n}"},
        }  # fmt: skip

    session = [
        line(0, "user", "hi"),
        line(1, "assistant", [{"type": "text", "text": "hello"}]),
        line(2, "user", "more"),
    ]
    workspace = ingested(tmp_path, {"s.jsonl": lines(*session[:2])}, {"s.jsonl": lines(*session)})
    assert [step["role"] for step in rows(workspace)["step"]] == ["user", "assistant", "user"]
    assert revisions(workspace) == [1]


def test_events_of_a_conversation_that_come_one_a_file(tmp_path: Path) -> None:
    def event(n: int, source: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {
            "id": f"e{n}", "timestamp": f"2026-06-16T05:39:0{n}.5", "source": source, "kind": "MessageEvent",
            "llm_message": {"role": "user" if source == "user" else "assistant", "content": content},
        }  # fmt: skip

    files = {
        f"e18b827d3440425a9ff7353c4a6d6a3a/events/event-0000{n}-{n}.json": json.dumps(
            event(n, who, f"{n} {MAIL}")
        ).encode()
        for n, who in enumerate(("user", "agent", "user", "agent"))
    }
    names = sorted(files)
    found = in_every_order(tmp_path, {n: files[n] for n in names[:2]}, {n: files[n] for n in names[2:]})
    assert [step["content"][0] for step in found["step"]] == ["0", "1", "2", "3"]


# --- what it costs, and what must not happen ---


def test_redaction_leaves_what_came_from_the_lake_as_it_is(tmp_path: Path, samples: Path) -> None:
    workspace = ingested(
        tmp_path,
        {"one.jsonl": lines(spans(AGENT, FIRST, SECOND)), "two.jsonl": lines(call(1, [USER], "x")),
         "three.jsonl": (samples / "otlp" / "genai_openai_1.3b0_traces.otlp.jsonl").read_bytes()},
    )  # fmt: skip
    redaction = Redaction(key=KEY)
    keys = [row["trajectory_id"] for row in Lake(workspace).query("SELECT trajectory_id FROM trajectory")]
    with Known(Lake(workspace)) as known:
        stored = dict(known.of([*keys, "trajectory-nowhere"]))
    assert stored.keys() == set(keys)
    for fragment in stored.values():
        assert redaction.fragment(fragment) == fragment
        assert fragment.spans or fragment.steps


def test_a_user_whom_only_the_lake_knows_is_not_named_by_what_comes_later(tmp_path: Path) -> None:
    named = [{"role": "user", "content": "I am user_4711."}]
    first, second = call(1, [USER], "a") | {"user_id": "user_4711"}, call(2, named, "Hello user_4711")
    workspace = ingested(tmp_path, {"one.jsonl": lines(first)}, {"two.jsonl": lines(second)})
    assert len(rows(workspace)["step"]) == 4
    late = chat("c", 3, [said("user", "I am user_4711.")], said("assistant", "Hello user_4711"))
    add(workspace, {"three.jsonl": lines(spans(AGENT, FIRST))})
    add(workspace, {"four.jsonl": lines(spans(late))})
    assert "user_4711" not in repr(rows(workspace))


def test_media_and_long_texts_are_compared_as_they_were(tmp_path: Path) -> None:
    long = {"role": "user", "content": "long " * 300_000}
    first, second = call(1, [long], "a"), call(2, [long, {"role": "assistant", "content": "a"}, MORE], "b")
    found = in_every_order(tmp_path, {"one.jsonl": lines(first)}, {"two.jsonl": lines(second)})
    assert [step["role"] for step in found["step"]] == ["user", "assistant", "user", "assistant"]
    assert found["step"][0]["content_state"] == "external"


def test_an_empty_lake_is_asked_nothing(tmp_path: Path) -> None:
    with Known(Lake(new_workspace(tmp_path))) as known:
        assert known.is_empty
        assert list(known.of(["x"])) == []
