"""`make ui`: a Prefect server with its UI and one worker, on this machine, until Ctrl-C. `make deploy`: only register.

    python -m flows.ui [--port 4200]        server, work pool `local`, all deployments of prefect.yaml, worker
    python -m flows.ui --deploy-only        registers on the server that PREFECT_API_URL names

The worker's flows work in the workspace of FLYWHEEL_ROOT. The port after the UI's serves the workspace's pages, so
that artifacts can link to them. Server state lives under PREFECT_HOME (make sets it to ./.prefect: a person's own
profile is left alone). Ctrl-C and SIGTERM end a flow run that is under way; a turn goes on where it stopped.

Not covered: production set-ups (Postgres, other work pools); those are issue G.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil

from flows.pages import serve_pages
from flywheel.errors import WorkspaceError
from flywheel.markdown import PAGES_URL
from flywheel.workspace import Workspace

HERE = Path(__file__).parent.parent
POOL = "local"
READY_SECONDS = 600
STOP_SECONDS = 20
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_UI_API_URL": "/api",  # the UI asks the server it came from, on whatever port that is
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "DO_NOT_TRACK": "1",
}


def main() -> None:
    """Start everything, print the address, wait for Ctrl-C, stop everything."""
    parser = argparse.ArgumentParser(description="Prefect server, deployments and one worker")
    parser.add_argument("--port", type=int, default=4200)
    parser.add_argument("--deploy-only", action="store_true")
    arguments = parser.parse_args()
    # Before anything imports prefect, which reads its settings from the environment once.
    os.environ.update({**SETTINGS, **os.environ})
    if arguments.deploy_only:
        deploy_elsewhere()
    else:
        serve(arguments.port)


def serve(port: int) -> None:
    """Server, pages, deployments and worker, until Ctrl-C, SIGTERM or the end of one of them."""
    try:
        workspace = Workspace.find()
    except WorkspaceError as error:
        sys.exit(f"{error} (`make demo` makes ./demo)")
    refuse_taken(port)
    refuse_taken(port + 1)
    address = f"http://127.0.0.1:{port}"
    os.environ["PREFECT_API_URL"] = f"{address}/api"
    os.environ["FLYWHEEL_ROOT"] = str(workspace.root)
    os.environ[PAGES_URL] = f"http://127.0.0.1:{port + 1}"
    # A supervisor and a closed terminal stop the children as Ctrl-C does; a background job was started deaf to Ctrl-C.
    for number in STOPS:
        signal.signal(number, signal.default_int_handler)
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        serve_pages(workspace, port + 1)
        started["server"] = start("server", "start", "--host", "127.0.0.1", "--port", str(port))
        wait_until_ready(f"{address}/api/health", started["server"])
        deploy()
        started["worker"] = start("worker", "start", "--pool", POOL, "--type", "process")
        say(f"\nPrefect UI: {address}   workspace: {workspace.root}   (Ctrl-C stops server and worker)\n")
        while all(process.poll() is None for process in started.values()):
            time.sleep(0.5)
        ended = next(name for name, process in started.items() if process.poll() is not None)
        sys.exit(f"the Prefect {ended} ended with code {started[ended].returncode}; its own words are above")
    except KeyboardInterrupt:
        say("stopping\n")
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)
        for process in reversed(started.values()):
            stop(process)


def deploy_elsewhere() -> None:
    """Register on the server that PREFECT_API_URL names; a sentence if there is none."""
    url = os.environ.get("PREFECT_API_URL")
    if not url:
        sys.exit(
            "PREFECT_API_URL names no server to deploy to: `make ui` starts one, which has the deployments already"
        )
    try:
        urllib.request.urlopen(f"{url}/health", timeout=30).close()
    except (urllib.error.URLError, TimeoutError) as error:
        sys.exit(f"no Prefect server answers at {url} ({error}): check PREFECT_API_URL")
    deploy()


def deploy() -> None:
    """The work pool and every deployment of prefect.yaml. A pool that is there stays as it is."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=POOL, type=ProcessWorker.type, base_job_template=template)
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(pool)
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`prefect deploy --all` failed:\n{done.stdout}{done.stderr}")


def refuse_taken(port: int) -> None:
    """Exit with a sentence if somebody listens on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            sys.exit(
                f"port {port} can't be used ({error.strerror}): is another `make ui` running? try make ui PORT=4300"
            )


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """A prefect command in the background, in a session of its own: Ctrl-C reaches it through `stop` alone."""
    return subprocess.Popen([sys.executable, "-m", "prefect", *arguments], cwd=HERE, start_new_session=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all its descendants: a word first, so that flow runs can tell the server, then by force.

    A worker that is told to stop waits for its flow runs instead of ending them, so each of them is told as well.
    """
    family: set[psutil.Process] = set()
    alive: list[psutil.Process] = []
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        found = set(family_of(process.pid)) - family
        for member in found:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        family |= found
        _, alive = psutil.wait_procs(family, timeout=0.2)
        if not alive:
            return
    for member in alive:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(alive, timeout=STOP_SECONDS)


def family_of(pid: int) -> list[psutil.Process]:
    """The process and all its descendants, as far as they are alive."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers; exits with a sentence if it ended or took too long."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the Prefect server ended with code {server.returncode}; its own words are above")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)  # not up yet: that is what this function waits for
    sys.exit(f"the Prefect server did not answer at {url} within {READY_SECONDS} s")


def say(words: str) -> None:
    """Words for the person at the terminal, at once."""
    sys.stdout.write(words)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
