"""`make ui` and `make deploy` as a person or a supervisor has them: what they register, refuse, run and leave."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import yaml
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelled, Pending, Scheduled
from prefect.types._datetime import now
from running_ui import ROOT, RunningUi, artifacts_of, asked, command, environment, finished, free_port, post
from turns import AT

from flywheel import config
from flywheel.config import load_config
from flywheel.traffic import serve_traffic
from flywheel.workspace import Workspace

pytestmark = pytest.mark.prefect

DECLARED: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
FORMS = {"ingest": "Ingest", "repair": "Repair", "curate": "Curate", "train": "Train", "evaluate": "Evaluate"} | {
    "promote": "Gate"
}


def test_the_server_has_what_prefect_yaml_says(ui: RunningUi) -> None:
    assert set(ui.deployments) == {declared["name"] for declared in DECLARED}
    for declared in DECLARED:
        there = ui.deployments[declared["name"]]
        assert {key: there[key] for key in ("description", "tags", "entrypoint")} == {
            key: declared[key] for key in ("description", "tags", "entrypoint")
        }
        assert there["work_pool_name"] == "local"
        assert there["global_concurrency_limit"]["limit"] == declared["concurrency_limit"]["limit"]
        strategy = there["concurrency_options"]["collision_strategy"]
        assert strategy == declared["concurrency_limit"]["collision_strategy"]
        schedules = [(s["schedule"]["cron"], s["schedule"]["timezone"], s["active"]) for s in there["schedules"]]
        assert schedules == [(s["cron"], s["timezone"], s["active"]) for s in declared.get("schedules", [])]


@pytest.mark.parametrize("name", [declared["name"] for declared in DECLARED])
def test_a_form_says_what_each_field_means_and_claims_no_value(ui: RunningUi, name: str) -> None:
    """Ids are asked for; every field of the section is there with its meaning, and empty: flywheel.toml holds it."""
    schema = ui.deployments[name]["parameter_openapi_schema"]
    assert all(parameter["description"] for parameter in schema["properties"].values())
    ids = set(schema["properties"]) - {"root", "settings"}
    assert set(schema.get("required", [])) == ids
    assert ("settings" in schema["properties"]) == (name in FORMS)
    if name in FORMS:
        section = getattr(config, FORMS[name])
        fields = schema["definitions"][FORMS[name]]["properties"]
        assert {key: field["description"] for key, field in fields.items()} == {
            key: field.description for key, field in section.model_fields.items()
        }
        assert not [key for key, field in fields.items() if "default" in field]


@pytest.mark.parametrize(
    ("name", "parameters", "reason"),
    [
        ("train", {"curriculum": "c", "settings": {"steps": -4}}, "'settings.steps'. Failure reason: -4 is less than"),
        ("train", {"curriculum": "c", "settings": {"recipe": "magic"}}, "'magic' is not one of ['sft', 'scripted']"),
        ("train", {"curriculum": "c", "settings": {"stepz": 4}}, "'stepz' was unexpected"),
        ("train", {}, "'curriculum' is a required property"),
        ("curate", {"settings": {"min_posterior": 1.5}}, "1.5 is greater than the maximum of 1"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_reason(
    ui: RunningUi, name: str, parameters: dict[str, Any], reason: str
) -> None:
    with asked() as client, pytest.raises(PrefectHTTPStatusError) as refused:
        client.create_flow_run_from_deployment(UUID(ui.deployments[name]["id"]), parameters=parameters)
    assert refused.value.response.status_code == 409
    assert reason in refused.value.response.json()["detail"]


@pytest.mark.parametrize(("name", "second"), [("turn", "Cancelled"), ("ingest", "AwaitingConcurrencySlot")])
def test_a_second_run_at_the_same_time(ui: RunningUi, name: str, second: str) -> None:
    """A second turn is cancelled, a second ingest waits. No worker takes part: the runs are due tomorrow."""
    with asked() as client:
        tomorrow = Scheduled(scheduled_time=now("UTC") + timedelta(days=1))
        deployment = UUID(ui.deployments[name]["id"])
        runs = [client.create_flow_run_from_deployment(deployment, state=tomorrow).id for _ in range(2)]
        for run in runs:
            client.set_flow_run_state(run, Pending())
        states = [client.read_flow_run(run).state_name for run in runs]
        for run in runs:
            client.set_flow_run_state(run, Cancelled(), force=True)
    assert states == ["Pending", second]


def test_a_run_over_the_api_reaches_the_lake_and_links_to_its_pages(ui: RunningUi) -> None:
    """New traffic, then `ingest` with nothing filled in: the worker finds workspace, code and configuration."""
    serve_traffic(ui.workspace, load_config(ui.workspace.config_file), taskset="online", at=AT + timedelta(days=1))
    with asked() as client:
        created = client.create_flow_run_from_deployment(UUID(ui.deployments["ingest"]["id"]))
    run = finished(created.id)
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    shown = artifacts_of(created.id)
    assert {key: artifact["type"] for key, artifact in shown.items()} == {
        "ingest-progress": "progress",
        "ingest-result": "table",
        "ingest-batches": "markdown",
    }
    link = shown["ingest-batches"]["data"].split("[Data Docs](", 1)[1].split(")", 1)[0]
    assert link.startswith(f"{ui.pages}/validation/batch-")
    with urllib.request.urlopen(link, timeout=10) as page:
        assert link.split("/")[-2] in page.read().decode()


@pytest.mark.parametrize(
    "path", ["", "reports", "reports/", "lake.duckdb", "reports/../lake.duckdb", "reports/%2e%2e/lake.duckdb", "%2fetc"]
)
def test_only_pages_are_served(ui: RunningUi, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{ui.pages}/{path}", timeout=10)


def refused(*arguments: str, **changes: str) -> str:
    """What `python -m flows.ui` says on its way out with exit code 1."""
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_taken_port_is_a_sentence(workspace: Workspace) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused("--port", str(port), FLYWHEEL_ROOT=str(workspace.root))
    assert f"port {port} can't be used" in said
    assert "PORT=" in said


def test_a_missing_workspace_is_a_sentence(tmp_path: Path) -> None:
    assert "make demo" in refused(FLYWHEEL_ROOT=str(tmp_path))


def test_deploying_to_no_server_is_a_sentence() -> None:
    assert "PREFECT_API_URL names no server" in refused("--deploy-only")
    assert "no Prefect server answers" in refused(
        "--deploy-only", PREFECT_API_URL=f"http://127.0.0.1:{free_port()}/api"
    )


def test_deploying_again_changes_the_same_deployments(ui: RunningUi, tmp_path: Path) -> None:
    """What `make deploy` does, on a server that has the deployments and whose pool a person has set up."""
    pool = {"concurrency_limit": 3}
    with asked() as client:
        client._client.patch("/work_pools/local", json=pool).raise_for_status()
    home = str(tmp_path / "prefect")
    changes = {"PREFECT_API_URL": f"{ui.address}/api", "PREFECT_HOME": home}
    subprocess.run(command("--deploy-only"), cwd=ROOT, env=environment(**changes), check=True, timeout=600)
    again = {deployment["name"]: deployment["id"] for deployment in post("/deployments/filter", {})}
    assert again == {name: deployment["id"] for name, deployment in ui.deployments.items()}
    with asked() as client:
        assert client.read_work_pool("local").concurrency_limit == 3


def test_stopping_in_the_middle_of_a_turn_leaves_nothing(ui: RunningUi, served_once: Workspace, tmp_path: Path) -> None:
    """SIGTERM while a flow run works: server, worker and run are gone, and so are their ports. Last: it ends `ui`."""
    folder = tmp_path / "w"
    shutil.copytree(served_once.root, folder, symlinks=True)
    with asked() as client:
        turn = UUID(ui.deployments["turn"]["id"])
        run = client.create_flow_run_from_deployment(turn, parameters={"root": str(folder)}).id
        deadline = time.monotonic() + 600
        while not (folder / "data" / "turns" / "current.json").exists():
            assert time.monotonic() < deadline, client.read_flow_run(run).state
            time.sleep(0.2)
    family = ui.stop()
    assert len(family) >= 4, "make ui, server, worker and the flow run"
    assert ui.process.returncode == 0
    assert "Traceback" not in ui.log.read_text(encoding="utf-8").rsplit("stopping", 1)[-1]
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    for port in (ui.port, ui.port + 1):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
