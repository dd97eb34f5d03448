"""`make ui` as a process, for the tests: start it, ask its server, stop it and look for what is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_URL, temporary_settings

from flywheel.workspace import Workspace

ROOT = Path(__file__).parent.parent
READY = "Prefect UI: "
READY_SECONDS = 600
RUN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class RunningUi:
    """A server, a worker and the deployments, as `make ui` started them for one workspace."""

    process: subprocess.Popen[bytes]
    port: int
    workspace: Workspace
    log: Path
    deployments: dict[str, dict[str, Any]]
    """As the server had them at the start. Their schedules were paused then: a nightly run would be a second worker."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pages(self) -> str:
        return f"http://127.0.0.1:{self.port + 1}"

    def family(self) -> list[psutil.Process]:
        """The process and everything it started that is alive."""
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def stop(self) -> list[psutil.Process]:
        """SIGTERM, as a supervisor sends it. Returns what was alive before."""
        family = self.family()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)
        return family


def command(*arguments: str) -> list[str]:
    """`python -m flows.ui …`."""
    return [sys.executable, "-m", "flows.ui", *arguments]


def environment(**changes: str) -> dict[str, str]:
    """The environment of the tests, without a Prefect server of the person who runs them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {**kept, "OMP_NUM_THREADS": "1", "GX_ANALYTICS_ENABLED": "false", "DVC_NO_ANALYTICS": "1", **changes}


def free_port() -> int:
    """A port that is free, and so is the one after it."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


@contextmanager
def running(workspace: Workspace, home: Path) -> Iterator[RunningUi]:
    """`make ui` for the workspace, from the moment it prints its address until the end of the block."""
    port, log = free_port(), home / "ui.log"
    with log.open("wb") as words:
        process = subprocess.Popen(
            command("--port", str(port)),
            cwd=ROOT,
            env=environment(PREFECT_HOME=str(home / "prefect"), FLYWHEEL_ROOT=str(workspace.root)),
            stdout=words,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + READY_SECONDS
            while READY not in log.read_text(encoding="utf-8"):
                assert process.poll() is None, f"make ui ended:\n{log.read_text(encoding='utf-8')}"
                assert time.monotonic() < deadline, f"not ready in time:\n{log.read_text(encoding='utf-8')}"
                time.sleep(0.5)
            with temporary_settings(updates={PREFECT_API_URL: f"http://127.0.0.1:{port}/api"}):
                yield RunningUi(process, port, workspace, log, paused(registered()))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=120)


@contextmanager
def asked() -> Iterator[SyncPrefectClient]:
    """A client of the server that is running."""
    with get_client(sync_client=True) as client:
        yield client


def registered() -> dict[str, dict[str, Any]]:
    """The deployments that the server has, by name."""
    return {deployment["name"]: deployment for deployment in post("/deployments/filter", {})}


def paused(deployments: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same deployments, their schedules paused on the server."""
    with asked() as client:
        for deployment in deployments.values():
            for schedule in deployment["schedules"]:
                client.update_deployment_schedule(UUID(deployment["id"]), UUID(schedule["id"]), active=False)
    return deployments


def post(path: str, body: dict[str, Any]) -> Any:
    """What the server's API answers, as JSON."""
    with asked() as client:
        return client._client.post(path, json=body).raise_for_status().json()


def artifacts_of(flow_run_id: Any) -> dict[str, dict[str, Any]]:
    """The artifacts of one flow run, by key."""
    found = post("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [str(flow_run_id)]}}})
    return {artifact["key"]: artifact for artifact in found}


def subflows_of(flow_run_id: Any) -> dict[str, dict[str, Any]]:
    """The flow runs that this one started, by the name of their flow."""
    children = post("/flow_runs/filter", {"flow_runs": {"parent_flow_run_id": {"any_": [str(flow_run_id)]}}})
    with asked() as client:
        return {client.read_flow(child["flow_id"]).name: child for child in children}


def finished(flow_run_id: Any, seconds: float = RUN_SECONDS) -> dict[str, Any]:
    """The flow run, once it has ended."""
    deadline = time.monotonic() + seconds
    while True:
        with asked() as client:
            run = client.read_flow_run(flow_run_id)
        if run.state is not None and run.state.is_final():
            return run.model_dump(mode="json")
        assert time.monotonic() < deadline, f"{run.name} is still {run.state_name} after {seconds:.0f} s"
        time.sleep(0.5)
