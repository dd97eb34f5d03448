"""Jobs of Harbor and runs of terminal-bench: the outcome stands in one file, the messages in another."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from sources import chunked, read, read_chunks

from flywheel.formats.assemble import assemble, complete
from flywheel.formats.reader import Source
from flywheel.formats.sniff import Reading, open_readings
from flywheel.records import Fragment

TRIAL: dict[str, Any] = {
    "id": "0b6cbd3c-6b7e-4d5f-8e7f-000000000001",
    "task_name": "hello-world",
    "trial_name": "hello-world__AbCdEfG",
    "trial_uri": "file:///jobs/hello-world__AbCdEfG",
    "task_id": {"path": "tasks/hello-world"},
    "source": "terminal-bench",
    "task_checksum": "abc",
    "config": {"job_id": "job-1", "timeout_multiplier": 1.0},
    "agent_info": {"name": "terminus-2", "version": "2", "model_info": {"name": "gpt-5", "provider": "openai"}},
    "agent_result": {"n_input_tokens": 100, "n_cache_tokens": 60, "n_output_tokens": 7, "cost_usd": 0.01},
    "verifier_result": {"rewards": {"reward": 0.0}},
    "exception_info": None,
    "started_at": "2026-04-01T10:00:00Z",
    "finished_at": "2026-04-01T10:05:00Z",
}
ATIF = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s-1",
    "agent": {"name": "terminus-2", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Write hello."},
        {"step_id": 2, "source": "agent", "message": "Done."},
    ],
}


def job(files: dict[str, Any]) -> list[Fragment]:
    """The trajectories of a folder, its files read in the order given."""
    items: list[Any] = []
    for uri, value in files.items():
        data = json.dumps(value).encode()
        for opened in open_readings(chunked(data), Source(source_id=uri, uri=uri)):
            assert isinstance(opened, Reading)
            items += opened.items()
    return [complete(f) for f in assemble(item for item in items if isinstance(item, Fragment))]


FOLDER = {
    "run/hello-world__AbCdEfG/result.json": TRIAL,
    "run/hello-world__AbCdEfG/agent/trajectory.json": ATIF,
}


@pytest.mark.parametrize("order", list(itertools.permutations(FOLDER)))
def test_a_result_joins_the_messages_of_its_trial(order: tuple[str, ...]) -> None:
    (whole,) = job({uri: FOLDER[uri] for uri in order})
    t = whole.trajectory
    assert [step.content for step in whole.steps] == ["Write hello.", "Done."]
    assert (t.task_id, t.success, t.reward, t.end_reason) == ("hello-world", False, 0.0, "completed")
    assert (t.format, t.input_tokens, t.cache_read_tokens, t.model) == ("harbor_job", 100, 60, "gpt-5")
    assert t.content_complete is True
    assert {o.trajectory_id for o in whole.outcomes} == {t.trajectory_id}


def test_a_result_without_messages_says_so_and_messages_elsewhere_stay_atif() -> None:
    (alone,) = job({"run/hello-world__AbCdEfG/result.json": TRIAL})
    assert (alone.trajectory.content_complete, alone.trajectory.quality_flags) == (False, ("no_messages",))
    (other,) = job({"somewhere/agent/trajectory.json": ATIF})
    assert other.trajectory.format == "atif"


@pytest.mark.parametrize(
    ("kind", "end"),
    [("AgentTimeoutError", "timeout"), ("VerifierTimeoutError", "env_error"), ("SomethingNew", "env_error")],
)
def test_what_broke_off_has_no_verdict(kind: str, end: str) -> None:
    error = {"exception_type": kind, "exception_message": "m", "exception_traceback": "tb"}
    (made,) = job({"r/hello-world__AbCdEfG/result.json": {**TRIAL, "exception_info": error}})
    t = made.trajectory
    assert (t.end_reason, t.end_reason_raw, t.error_type, t.error_message, t.success) == (end, kind, kind, "m", None)
    assert json.loads(t.metadata or "")["exception_info"] == {"exception_traceback": "tb"}


def test_a_job_says_what_it_knows() -> None:
    value = {"id": "job-1", "n_total_trials": 1, "stats": {"n_errors": 0}, "trial_results": [TRIAL]}
    outcome = read(json.dumps(value).encode())
    assert (outcome.format, len(outcome.fragments)) == ("harbor_job", 1)
    assert outcome.only.trajectory.session_id == outcome.attachments[0].outcomes[0].session_id == "job-1"


RUN = {
    "id": "run-1",
    "accuracy": 0.5,
    "pass_at_k": {"2": None},
    "results": [
        {
            "id": f"0b6cbd3c-6b7e-4d5f-8e7f-{n:012}",
            "trial_name": f"hello-world.{n}-of-2.run-1",
            "task_id": "hello-world",
            "instruction": "Write hello.",
            "is_resolved": resolved,
            "failure_mode": mode,
            "parser_results": {"test_a": "passed", "test_b": "passed" if resolved else "failed"},
            "recording_path": f"run-1/hello-world/{n}/sessions/agent.cast",
            "total_input_tokens": 10,
            "total_output_tokens": 2,
            "trial_started_at": "2026-04-01T10:00:00+00:00",
            "trial_ended_at": "2026-04-01T10:01:00+00:00",
        }
        for n, resolved, mode in ((1, True, "none"), (2, False, "agent_timeout"))
    ],
}


def test_runs_of_terminal_bench() -> None:
    outcome = read(json.dumps(RUN).encode())
    good, bad = outcome.fragments
    assert outcome.format == "terminal_bench"
    assert (good.trajectory.success, good.trajectory.end_reason) == (True, "completed")
    assert (bad.trajectory.success, bad.trajectory.end_reason, bad.trajectory.error_type) == (
        False,
        "timeout",
        "agent_timeout",
    )
    assert [(o.name, o.polarity) for o in bad.outcomes] == [
        ("is_resolved", -1),
        ("test/test_a", 1),
        ("test/test_b", -1),
    ]
    assert json.loads(bad.trajectory.metadata or "")["recording_path"].endswith("agent.cast")
    assert (bad.trajectory.content_complete, bad.trajectory.n_steps, bad.trajectory.input_tokens) == (False, 0, 10)
    values = {o.name: o.value_num for o in outcome.attachments[0].outcomes}
    assert values["accuracy"] == 0.5


def test_a_trial_of_terminal_bench_alone_is_the_same_trial() -> None:
    alone = read(json.dumps(RUN["results"][0]).encode())  # type: ignore[index]
    assert alone.only.key == read(json.dumps(RUN).encode()).fragments[0].key
    assert read_chunks(chunked(json.dumps(RUN).encode(), 7)).fragments[0].key == alone.only.key
