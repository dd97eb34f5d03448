"""The head row of a trajectory that was made from spans: who, which model, when, how it ended.

The root's word counts before that of the spans below it. An error of a tool that the agent lived through is the tool's;
the trajectory has failed where its root says so, or where its last call of a model failed.

Not covered: the steps (`span_graph.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_text, first_text
from flywheel.formats.span_columns import error_of, span_times
from flywheel.formats.span_view import Found, View
from flywheel.formats.times import worst
from flywheel.formats.usage import money

Known = tuple[View, Found]
_FINISHED = {
    "stop": "completed", "end_turn": "completed", "stop_sequence": "completed", "completed": "completed",
    "length": "max_tokens", "max_tokens": "max_tokens", "content_filter": "model_error", "error": "model_error",
    "content-filter": "model_error", "refusal": "model_error",
}  # fmt: skip
_CAUSES = (
    (("context_length", "context window", "maximum context"), "context_overflow"),
    (("timeout", "timed out", "deadline"), "timeout"),
    (("cancel",), "cancelled"),
    (("keyboardinterrupt",), "user_abort"),
    (("maxturns", "max_turns", "recursionerror", "recursion limit", "max_iterations"), "max_turns"),
)


def head_columns(known: Sequence[Known], root: Known) -> dict[str, Any]:
    """Columns of the trajectory that these spans, in order of time, make; `root` is the topmost."""
    calls = [pair for pair in known if pair[1].kind == "llm"]
    conversation = _first(known, root, lambda found: found.conversation_id)
    session = _first(known, root, lambda found: found.session_id)
    metadata: dict[str, Any] = {}
    for _, found in (root, *known):
        metadata = {**(found.metadata or {}), **metadata}
    view = root[0]
    sampling = _first(known, root, lambda found: found.sampling)
    tools = _first(known, root, lambda found: found.tools)
    return {
        "conversation_id": conversation or session or view.row.trace_id,
        "session_id": session,
        "user_id": _first(known, root, lambda found: found.user_id) or first_text(metadata, "user_id"),
        "tenant": first_text(metadata, "tenant", "tenant_id") or _attribute(known, "tenant.id", "tenant"),
        "environment": _first(known, root, lambda found: found.environment)
        or first_text(view.resource, "deployment.environment.name", "deployment.environment"),
        "task_id": first_text(metadata, "task_id") or _attribute(known, "task_id", "metadata.task_id"),
        "agent_name": _first(known, root, lambda found: found.agent_name)
        or first_text(view.resource, "service.name")
        or next((its.row.name for its, found in known if found.kind == "agent"), None),
        "agent_version": _first(known, root, lambda found: found.agent_version)
        or first_text(view.resource, "service.version"),
        "model": _first(calls, None, lambda found: found.model),
        "provider": _first(calls, None, lambda found: found.provider),
        "sampling": dumps(sampling) if sampling else None,
        "tools": dumps(tools) if tools else None,
        "tags": _first(known, root, lambda found: found.tags),
        "metadata": dumps(metadata) if metadata else None,
        **_times(known, root),
        **_totals(known, root),
        **_ending(known, root, calls),
    }


def _first(known: Iterable[Known], root: Known | None, get: Callable[[Found], Any]) -> Any:
    pairs = known if root is None else (root, *known)
    return next((value for _, found in pairs if (value := get(found))), None)


def _attribute(known: Iterable[Known], *keys: str) -> str | None:
    return next((text for view, _ in known if (text := view.text(*keys)) is not None), None)


def _times(known: Sequence[Known], root: Known) -> dict[str, Any]:
    """From the root, else the earliest and the latest of all; the duration to the nanosecond where it has both."""
    start, end = span_times(root[0])
    times = [span_times(view) for view, _ in known]
    started = start.at or min((t[0].at for t in times if t[0].at is not None), default=None)
    ended = end.at or max((t[1].at for t in times if t[1].at is not None), default=None)
    first, last = root[0].row.start_ns, root[0].row.end_ns
    exact = start.at is not None and end.at is not None and first is not None and last is not None
    return {
        "started_at": started,
        "ended_at": ended,
        "duration_ms": (last - first) / 1e6 if exact and first is not None and last is not None else None,
        "time_quality": worst(start.quality for start, _ in times),
    }


def _totals(known: Sequence[Known], root: Known) -> dict[str, Any]:
    """Tokens and cost of the whole where no call says them (the sum over calls counts before these)."""
    counted = next((found.usage for _, found in (root, *known) if found.usage is not None), None)
    cost = money(root[1].cost) if root[1].cost is not None and root[1].kind != "llm" else None
    columns: dict[str, Any] = {}
    if counted is not None and not any(found.usage for _, found in known if found.kind in ("llm", "embedding")):
        columns = {name: getattr(counted, name) for name in counted.__slots__}
    if cost is not None and not any(found.cost is not None for _, found in known if found.kind == "llm"):
        columns |= {"cost_usd": cost, "cost_source": "recorded"}
    return columns


def _ending(known: Sequence[Known], root: Known, calls: Sequence[Known]) -> dict[str, Any]:
    error = error_of(root[0])
    if not error and calls:
        error = error_of(calls[-1][0])
    finish = calls[-1][1].finish_reason if calls else None
    said = [message for choice in (calls[-1][1].outputs or [] if calls else []) for message in choice]
    if finish is None:
        finish = next((text for message in said if (text := as_text(message.get("finish_reason")))), None)
    if not error:
        answered = bool(said) and not any(message.get("tool_calls") for message in said)
        unsaid = "completed" if finish is None and answered else None
        return {"end_reason": _FINISHED.get((finish or "").lower(), unsaid), "end_reason_raw": finish}
    return {"end_reason": _cause(known, error), "end_reason_raw": finish or error["error_type"], **error}


def _cause(known: Sequence[Known], error: dict[str, Any]) -> str:
    """Who ended it: told by the words of the error, else by the last span that failed with it."""
    words = f"{error['error_type']} {error['error_message'] or ''}".lower()
    for signs, reason in _CAUSES:
        if any(sign in words for sign in signs):
            return reason
    failed = [found.kind for view, found in known if found.kind in ("llm", "tool") and error_of(view)]
    return {"llm": "model_error", "tool": "tool_error"}.get((failed[-1] or "") if failed else "", "agent_error")
