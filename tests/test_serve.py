"""The policy in production over real HTTP; what it answered comes back as traces. And verdicts, judged again."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flywheel.config import load_config
from flywheel.environment.domain import open_domain
from flywheel.errors import ObjectError
from flywheel.ingest import ingest
from flywheel.records import Verdict
from flywheel.reverify import reverify
from flywheel.serve import ROTATE, Recorder, Server, open_server
from flywheel.store.lake import Lake
from flywheel.store.objects_client import S3Place
from flywheel.store.objects_s3 import S3Store
from flywheel.store.tasks import load_tasks
from flywheel.workspace import Workspace


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Server]:
    running = open_server(workspace, load_config(workspace.config_file), port=0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def call(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_answers_are_recorded_and_land_as_traces(server: Server, workspace: Workspace) -> None:
    assert call(server, "/health")[1] == {"status": "ok", "version": "policy@v0.1.0"}
    tasks = list(load_tasks(workspace, "online").values())[:3]
    for task in tasks:
        messages = [dict(m) for m in open_domain(task.domain).prompt(task).messages]
        status, reply = call(
            server, "/v1/chat/completions", {"messages": messages, "metadata": {"task_id": task.task_id}}
        )
        assert status == 200
        assert reply["choices"][0]["message"]["role"] == "assistant"
    config = load_config(workspace.config_file)
    assert ingest(workspace, config).batch is None, "a file that still grows is not seen"
    server.recorder.land()
    staged = ingest(workspace, config)
    assert (staged.trajectories, staged.quarantined, staged.formats) == (3, 0, {"openai_chat": 1})
    assert staged.batch is not None
    rows = Lake(workspace).staged_rows(staged.batch)["trajectory"].to_pylist()
    assert {row["task_id"] for row in rows} == {task.task_id for task in tasks}
    assert {row["success"] for row in rows} == {None}, "nobody has said whether the answers were right"


@pytest.mark.parametrize(
    "body", [{}, {"messages": "hello"}, {"messages": []}, [1], {"messages": [{"role": "user", "content": "hi"}]}]
)
def test_a_request_that_cannot_be_answered_is_told_why(server: Server, body: Any) -> None:
    status, reply = call(server, "/v1/chat/completions", body)
    assert status == 400
    assert len(reply["error"]["message"]) > 20


def test_an_unknown_address_is_a_404(server: Server) -> None:
    assert call(server, "/v1/embeddings", {})[0] == 404
    assert call(server, "/nothing")[0] == 404


def test_exchanges_wait_while_the_landing_zone_can_not_be_reached(
    tmp_path: Path, aws: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    place = S3Place("bucket", "", "http://127.0.0.1:9")  # nobody listens there
    recorder = Recorder(S3Store(place, place.client()), tmp_path, "served")
    for number in range(ROTATE + 1):
        recorder.add({"number": number})
    assert "the exchanges wait in" in capsys.readouterr().err
    with pytest.raises(ObjectError, match="can't be reached"):
        recorder.land()
    (waiting,) = tmp_path.iterdir()
    assert len(waiting.read_text().splitlines()) == ROTATE + 1


def test_reverify_finds_the_one_verdict_that_was_changed(workspace: Workspace) -> None:
    from flywheel.environment.executor import LocalExecutor
    from flywheel.environment.rollout import run_rollouts
    from flywheel.records import Sampling
    from flywheel.repair import rows
    from flywheel.trainers import open_policy

    tasks = load_tasks(workspace, "online")
    some = list(tasks.values())[:6]
    rollouts = run_rollouts(
        open_policy(workspace.policy, tasks),
        some,
        k=1,
        sampling=Sampling(),
        executor=LocalExecutor(workspace.data / "x"),
    )
    verdict: Verdict = rollouts[0].verdicts[0]
    assert verdict.score is not None
    lie = replace(verdict, score=1.0 - verdict.score)
    told = [replace(rollouts[0], verdicts=(lie, *rollouts[0].verdicts[1:])), *rollouts[1:]]
    Lake(workspace).publish("repair-of-the-test", rows(told, {r.task_id: ["trace"] for r in rollouts}))
    result = reverify(workspace, load_config(workspace.config_file))
    assert result.differing == (rollouts[0].rollout_id,)
    assert (result.rollouts, result.without_task, result.new_verifiers) == (6, 0, ())
