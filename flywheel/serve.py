"""Serve: the policy in a stage of the registry, over HTTP as OpenAI's chat completions, and every exchange recorded.

    flywheel serve [--stage production] [--port 8000]

POST /v1/chat/completions answers; GET /v1/models and /health tell what is served. Put `task_id`, `user_id` or
`session_id` into the request's `metadata` and it comes back in the trace. Exchanges are written as OpenAI chat JSONL to
a file in `data/served`, which lands for `ingest` after every `ROTATE` exchanges and when the server stops, so a landing
object never changes after it was seen. The address is this machine's alone.

Not covered: throughput (one answer at a time; issue E puts vLLM here), streaming, tools, authentication, feedback.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flywheel.config import Config
from flywheel.environment.policy import Policy
from flywheel.errors import FlywheelError, ObjectError, PolicyError
from flywheel.records import Reply, Request, Sampling, content_id
from flywheel.store.objects import ObjectStore, open_store
from flywheel.store.registry import PRODUCTION, Registry
from flywheel.store.tasks import load_all_tasks
from flywheel.trainers import open_policy
from flywheel.workspace import Workspace

ROTATE = 100
MAX_BODY = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeResult:
    """What was served until it was stopped."""

    stage: str
    version: str
    answered: int
    landed: tuple[str, ...]  # keys in the landing zone


class Recorder:
    """Exchanges as lines of a file that is put into the landing zone when it is full or closed."""

    def __init__(self, landing: ObjectStore, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._landing, self._name = landing, name
        self._growing = folder / f"{name}-{os.getpid()}.jsonl"
        self._lines = 0
        self.landed: list[str] = []

    def add(self, exchange: Mapping[str, Any]) -> None:
        """Append one exchange; it is on disk when this returns."""
        with self._growing.open("a", encoding="utf-8") as file:
            file.write(json.dumps(exchange) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._lines += 1
        if self._lines % ROTATE == 0:
            try:
                self.land()
            except ObjectError as error:  # the answer is good; its trace lands with the next ones
                sys.stderr.write(f"flywheel: serve: {error}; the exchanges wait in {self._growing}\n")

    def land(self) -> None:
        """Make what was recorded visible to `ingest`. Errors: ObjectError if the landing zone can't be reached."""
        if self._lines:
            with self._growing.open("rb") as file:
                self.landed.append(self._landing.put(f"{self._name}-{time.time_ns()}.jsonl", file).key)
            self._growing.unlink()
            self._lines = 0


class Server(ThreadingHTTPServer):
    """One policy behind HTTP. Errors: OSError if the port is taken."""

    daemon_threads = True

    def __init__(self, port: int, policy: Policy, version: str, sampling: Sampling, recorder: Recorder) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.policy, self.version, self.sampling, self.recorder = policy, version, sampling, recorder
        self.turn = threading.Lock()  # one answer at a time: a model in process gains nothing from more
        self.answered = 0

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The completion of one request, recorded. Errors: PolicyError for a request the policy can't take."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise PolicyError("a request needs `messages`, a list of {role, content} objects")
        said = body.get("metadata")
        metadata: dict[str, Any] = said if isinstance(said, dict) else {}
        request = Request(
            messages=tuple(messages),
            tools=tuple(body.get("tools") or ()),
            seed=int(body.get("seed") or time.time_ns() % 2**31),
            task_id=metadata.get("task_id"),
        )
        sampling = Sampling(
            temperature=float(body.get("temperature", self.sampling.temperature)),
            top_p=float(body.get("top_p", 1.0)),
            max_tokens=int(body.get("max_tokens") or self.sampling.max_tokens),
        )
        with self.turn:
            (reply,) = self.policy.act([request], sampling)
            response = completion(reply, self.version, content_id("chatcmpl", time.time_ns(), request.seed))
            self.recorder.add({"request": dict(body), "response": response, "metadata": metadata})
            self.answered += 1
        return response


class Handler(BaseHTTPRequestHandler):
    """The three addresses."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {"status": "ok", "version": self.server.version})
        elif self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": self.server.version, "object": "model"}]})
        else:
            self._send(404, {"error": {"message": f"no such address: {self.path}"}})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if self.path != "/v1/chat/completions" or length > MAX_BODY:
            self.close_connection = True  # the body stays unread
            self._send(404, {"error": {"message": f"POST /v1/chat/completions, at most {MAX_BODY} bytes"}})
            return
        try:
            body = json.loads(self.rfile.read(length))
            if not isinstance(body, dict):
                raise PolicyError("a request is one JSON object")
            self._send(200, self.server.answer(body))
        except (ValueError, TypeError, FlywheelError) as error:
            self._send(400, {"error": {"message": str(error), "type": "invalid_request_error"}})

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are recorded as traces, not as log lines."""


def completion(reply: Reply, model: str, native_id: str) -> dict[str, Any]:
    """A reply as an OpenAI chat completion."""
    return {
        "id": native_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": dict(reply.message), "finish_reason": reply.finish_reason}],
        "usage": {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        },
    }


def open_server(workspace: Workspace, config: Config, *, stage: str = PRODUCTION, port: int = 8000) -> Server:
    """A server for the policy in that stage, listening but not yet answering."""
    registry = Registry(workspace)
    version = registry.find(stage).version
    policy = open_policy(registry.checked_out(stage), load_all_tasks(workspace))
    sampling = Sampling(temperature=config.evaluate.temperature, max_tokens=config.evaluate.max_tokens)
    recorder = Recorder(open_store(workspace, config), workspace.data / "served", f"served-{version}")
    try:
        return Server(port, policy, f"policy@{version}", sampling, recorder)
    except OSError as error:
        raise PolicyError(f"can't listen on 127.0.0.1:{port} ({error.strerror}): choose another --port") from error


def serve(workspace: Workspace, config: Config, *, stage: str = PRODUCTION, port: int = 8000) -> ServeResult:
    """Answer until Ctrl-C , then land what was recorded."""
    server = open_server(workspace, config, stage=stage, port=port)
    sys.stderr.write(f"serving {server.version} on http://127.0.0.1:{server.server_port}/v1 until Ctrl-C\n")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass  # the way to stop it
    finally:
        server.recorder.land()
        server.server_close()
    return ServeResult(
        stage=stage, version=server.version, answered=server.answered, landed=tuple(server.recorder.landed)
    )
