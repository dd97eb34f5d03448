"""The pages of a workspace (reports, Data Docs) over HTTP on this machine, so that the Prefect UI can link to them.

Read-only, loopback only, and only the folders of `markdown.SERVED`: no trace, no table, no listing of a folder.
Pages are told not to run or fetch anything, though Flywheel writes none that would.
"""

from __future__ import annotations

import threading
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from flywheel.markdown import SERVED
from flywheel.workspace import Workspace

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Pages(SimpleHTTPRequestHandler):
    """GET and HEAD of one file below a served folder; everything else is 404."""

    def send_head(self) -> BinaryIO | Any | None:
        parts = Path(unquote(urlsplit(self.path).path)).parts[1:]
        if not parts or parts[0] not in SERVED or ".." in parts or Path(self.translate_path(self.path)).is_dir():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the terminal is for the worker."""


def serve_pages(workspace: Workspace, port: int) -> ThreadingHTTPServer:
    """Serve in a thread until `shutdown()`. Errors: OSError if the port is taken."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Pages, directory=str(workspace.data)))
    threading.Thread(target=server.serve_forever, name="pages", daemon=True).start()
    return server
