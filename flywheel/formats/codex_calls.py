"""How a call of Codex went: by the words of its result, and by the event that the client showed at its end.

Older versions wrapped a result as JSON `{output, metadata: {exit_code}}` or `{content, success}`; newer ones begin it
with the time and the exit code. The result's text stays as the model saw it.

Not covered: whether a command that ended well did what it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_int, first_text
from flywheel.formats.session import exit_code, failure

_STOPPED = (
    ("aborted", "interrupted"),
    ("exec command rejected by user", "user_rejected"),
    ("patch rejected by user", "user_rejected"),
    ("rejected by user", "user_rejected"),
    ("command timed out", "timeout"),
    ("failed to parse function arguments", "invalid_arguments"),
    ("unsupported call", "unknown_tool"),
)


def result_columns(text: str, output: Any) -> dict[str, Any]:
    """Columns of the call whose result has this text; `output` is what stood there."""
    detail = as_dict(getattr(try_loads(text), "value", None)) if text.startswith("{") else {}
    code = as_int(as_dict(detail.get("metadata")).get("exit_code"))
    columns = failure(exit_code(text) if code is None else code)
    succeeded = as_dict(output).get("success")
    if isinstance(succeeded, bool):
        columns["is_error"] = not succeeded
    stopped = next((kind for words, kind in _STOPPED if text.lower().startswith(words)), None)
    if stopped is not None:
        columns |= {"is_error": True, "error_type": stopped}
        columns |= {"result_state": "rejected"} if stopped == "user_rejected" else {}
    return columns


def ended_columns(event: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the call that an `exec_command_end`, `mcp_tool_call_end` or `patch_apply_end` is about."""
    columns = failure(as_int(event.get("exit_code")))
    succeeded, status = event.get("success"), first_text(event, "status")
    if isinstance(succeeded, bool):
        columns["is_error"] = not succeeded
    if as_dict(event.get("result")).get("Err") is not None:
        columns |= {"is_error": True, "error_type": "mcp_error"}
    if status in ("declined", "failed"):
        columns["is_error"] = True
        columns |= {"result_state": "rejected"} if status == "declined" else {}
    return columns
