"""`make ui`: a Prefect server with its UI and one worker, on this machine, until Ctrl-C. `make deploy`: only register.

    python -m flows.ui [--port 4200]        server, work pool `local`, all deployments of prefect.yaml, worker
    python -m flows.ui --deploy-only        registers on the server that PREFECT_API_URL names

Server state lives under PREFECT_HOME (make sets it to ./.prefect, so a person's own profile is left alone).
Not covered: production set-ups (Postgres, other work pools); those are issue G.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent.parent
READY_SECONDS = 180
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
    environment = {**SETTINGS, **os.environ}
    if arguments.deploy_only:
        deploy(environment)
        return
    address = f"http://127.0.0.1:{arguments.port}"
    environment["PREFECT_API_URL"] = f"{address}/api"
    started = [start(environment, "server", "start", "--host", "127.0.0.1", "--port", str(arguments.port))]
    # SIGTERM (a supervisor, a test) has to stop the children as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        wait_until_ready(f"{address}/api/health", started[0])
        deploy(environment)
        started.append(start(environment, "worker", "start", "--pool", "local", "--type", "process"))
        sys.stdout.write(f"\nPrefect UI: {address}/deployments   (Ctrl-C stops server and worker)\n")
        sys.stdout.flush()
        started[0].wait()
    except KeyboardInterrupt:
        sys.stdout.write("stopping\n")
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=60)


def deploy(environment: dict[str, str]) -> None:
    """The work pool and every deployment of prefect.yaml, on the server of PREFECT_API_URL."""
    run(environment, "--no-prompt", "work-pool", "create", "local", "--type", "process", "--overwrite")
    run(environment, "--no-prompt", "deploy", "--all")


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """A prefect command in the background."""
    return subprocess.Popen([sys.executable, "-m", "prefect", *arguments], env=environment, cwd=HERE)


def run(environment: dict[str, str], *arguments: str) -> None:
    """A prefect command to its end; its output only if it fails."""
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, env=environment, cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`prefect {' '.join(arguments)}` failed:\n{done.stdout}{done.stderr}")


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers; exits with a sentence if it ended or took too long."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(
                f"the Prefect server ended with code {server.returncode}; is the port taken? try make ui PORT=4300"
            )
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)  # not up yet: that is what this function waits for
    sys.exit(f"the Prefect server did not answer at {url} within {READY_SECONDS} s")


if __name__ == "__main__":
    main()
