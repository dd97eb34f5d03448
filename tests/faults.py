"""A network that fails on order: an HTTP proxy in front of a real S3 server, that refuses or breaks off."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests whose line holds `matching`."""

    matching: str
    times: int = 1
    status: int | None = None  # answered in the server's place
    code: str = "InternalError"
    cut_after: int | None = None  # bytes of the body, then the connection breaks
    first: Callable[[], None] | None = None  # done before the request goes on
    then: Callable[[], None] | None = None  # done before the connection breaks


@dataclass(slots=True)
class Proxy:
    """The proxy: `requests` are method, path with query, and Range header, in order."""

    port: int
    target: int
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lists(self) -> int:
        """LIST requests so far."""
        return sum("list-type=2" in path for _, path, _ in self.requests)

    def gets(self) -> list[str]:
        """Range headers ('' for none) of the GETs of objects so far."""
        return [asked for method, path, asked in self.requests if method == "GET" and "list-type" not in path]

    def fault(self, method: str, path: str, asked: str) -> Fault | None:
        """Note the request; the fault that is due, if one is."""
        with self.lock:
            self.requests.append((method, path, asked))
            for fault in self.faults:
                if fault.matching in f"{method} {path}" and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


@contextmanager
def proxied(target: int) -> Iterator[Proxy]:
    """A proxy to a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            fault = proxy.fault(self.command, self.path, self.headers.get("Range", ""))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if fault is not None and fault.first is not None:
                fault.first()
            if fault is not None and fault.status is not None:
                self._answer(fault.status, f"<Error><Code>{fault.code}</Code></Error>".encode())
                return
            try:
                self._forward(body, fault)
            except (ConnectionError, http.client.HTTPException):
                self._break()

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

        def _forward(self, body: bytes, fault: Fault | None) -> None:
            upstream = http.client.HTTPConnection("127.0.0.1", proxy.target, timeout=30)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            if answer.length is None:
                self._answer(answer.status, answer.read())
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            left = answer.length if fault is None or fault.cut_after is None else fault.cut_after
            while left and (chunk := answer.read(min(left, 1 << 16))):
                self.wfile.write(chunk)
                left -= len(chunk)
            if fault is not None and fault.cut_after is not None:
                if fault.then is not None:
                    fault.then()
                self._break()
            upstream.close()

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _break(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are in `Proxy.requests`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Proxy(server.server_port, target)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
