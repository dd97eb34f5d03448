"""What detectors look at: one trajectory as a plain view, with the signs every detector needs computed once.

A `Trace` is head, messages, calls, outcomes and `acts`: each call with its identity (same tool, same arguments), its
observation without clock noise, and whether it failed or wrote. A `Label` is what a detector says. Pure: no I/O.

Not covered: gold actions, hidden tests, task budgets (those need the task's environment), and text in media parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flywheel.records import Outcome, Step, ToolCall, Trajectory, canonical_json

QUOTE_CHARS = 200

# Arguments that differ from call to call without meaning anything.
VOLATILE = frozenset({"timestamp", "request_id", "trace_id", "idempotency_key", "nonce", "security_risk"})
# First words of tool names that only look; any other tool is taken to write. Judgement: a harness seldom declares it.
READS = re.compile(
    r"(?:get|list|search|find|read|view|look|lookup|show|fetch|query|calculate|calc|think|check|describe|count|open|cat"
    r"|ls|grep|head|stat|wait|sleep|poll|status|verify|validate|compute)"
)
# Tools whose whole point is to be called again with the same arguments.
POLLING = re.compile(r"(?i)^(?:wait|sleep|poll|think)(?:_|$)|(?:^|_)(?:status|poll|progress|wait|think|heartbeat)$")

# methods.md section 2, anchored so that "Error rate is 2%" is a result and "Error: no such user" an error.
ERROR_TEXT = re.compile(
    r"\s*(?:Error\s*(?:[:(!\[]|$)|Error (?:in|at|while|when|executing|code|during)\b|Traceback \(most recent"
    r"|Unknown (?:action|tool|function)\b|[\w.]{0,80}(?:Exception|Error):"
    r"|\{\s*\"(?:error|exception)\"\s*:(?!\s*(?:null|\"\"|false|\[\])))"
)
EXIT_CODE = re.compile(r"(?i)\"?\b(?:exit[_ ]?(?:code|status)|return[_ ]?code)\"?\s*[:=]?\s*-?[1-9]\d*\b")
HTTP_ERROR = re.compile(r"(?i)(?:\"?(?:status_?code|http_?status)\"?\s*[:=]\s*\"?|\bHTTP(?:/[\d.]+)?\s+)[45]\d\d\b")
CLOCK_NOISE = re.compile(
    r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
    r"|(?:/[\w.+-]+){2,}/?|\b\d+(?:\.\d+)?\s?m?s\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One tool call as detectors compare it."""

    step_ix: int
    name: str
    key: str  # name + canonical arguments without volatile keys: the same key is the same action
    args: dict[str, Any] | None  # None: not a JSON object
    observation: str
    seen: str  # the observation without times, uuids and paths
    error: bool
    writes: bool
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One trajectory, in effective order; built by `view`."""

    trajectory: Trajectory
    steps: tuple[Step, ...]
    acts: tuple[Act, ...]
    outcomes: tuple[Outcome, ...]
    tools: dict[str, dict[str, Any]] | None  # offered tools by name; None: not recorded

    @property
    def final(self) -> Step | None:
        """The last assistant message."""
        return next((s for s in reversed(self.steps) if s.role == "assistant"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one detector found at one place. `detail` is the text whose normal form names the cluster."""

    code: str
    step_ix: int | None
    evidence: str  # at most 200 characters, quoted from the trace where there is something to quote
    owner: str  # infra|task|user|harness|agent
    severity: int  # 1 wasteful, 2 harmful, 3 decisive
    confidence: float
    detector: str
    detector_version: str
    tool: str | None = None
    detail: str = ""


def view(
    trajectory: Trajectory, steps: Iterable[Step], calls: Iterable[ToolCall], outcomes: Iterable[Outcome] = ()
) -> Trace:
    """The view of one trajectory. Rows of other trajectories must not be passed; order does not matter."""
    ordered = tuple(sorted((s for s in steps if not s.is_copied_context), key=lambda s: s.step_ix))
    content = {s.step_ix: s.content or "" for s in ordered}
    sorted_calls = sorted((c for c in calls if c.step_ix in content), key=lambda c: (c.step_ix, c.call_ix))
    return Trace(
        trajectory=trajectory,
        steps=ordered,
        acts=tuple(_act(call, content) for call in sorted_calls),
        outcomes=tuple(sorted(outcomes, key=lambda o: o.outcome_id)),
        tools=_offered(trajectory.tools),
    )


def quote(text: str | None) -> str:
    """At most 200 characters of the text, from its start."""
    cleaned = (text or "").strip()
    return cleaned if len(cleaned) <= QUOTE_CHARS else cleaned[: QUOTE_CHARS - 1] + "…"


def parse(text: str | None) -> Any:
    """The JSON value of a text, or None where it is not JSON (a text `null` is None too)."""
    try:
        return json.loads(text, parse_constant=str) if text else None
    except (ValueError, RecursionError):  # not JSON, or nested beyond reading: both are 'no value' to a detector
        return None


def is_error(call: ToolCall, observation: str) -> bool:
    """Does the result of this call say that it failed? Structured flags first, then text (methods.md section 2)."""
    if call.is_error or call.result_state in ("error", "rejected") or call.error_type:
        return True
    head = observation[:500]
    ends = head if len(observation) <= 800 else head + "\n" + observation[-300:]
    return bool(ERROR_TEXT.match(head) or EXIT_CODE.search(ends) or HTTP_ERROR.search(head[:300]))


def writes(name: str) -> bool:
    """Does a tool of this name change anything? By its first word; unknown words count as writing."""
    words = re.findall(r"[A-Za-z][a-z]*|[A-Z]+", name.split(".")[-1])
    return not words or not READS.fullmatch(words[0].lower())


def _act(call: ToolCall, content: dict[int, str]) -> Act:
    parsed = parse(call.args if call.args is not None else call.args_raw)
    args = parsed if isinstance(parsed, dict) else None
    name = call.name or ""
    stable = {k: v for k, v in args.items() if k not in VOLATILE} if args is not None else call.args_raw
    observation = call.result_text
    if observation is None and call.result_step_ix is not None:
        observation = content.get(call.result_step_ix)
    observation = observation or ""
    return Act(
        step_ix=call.step_ix,
        name=name,
        key=f"{name}({canonical_json(stable)})",
        args=args,
        observation=observation,
        seen=CLOCK_NOISE.sub("~", observation),
        error=is_error(call, observation),
        writes=writes(name),
        call=call,
    )


def _offered(tools: str | None) -> dict[str, dict[str, Any]] | None:
    """Tools by name with their parameter schema; both the nested and the flat OpenAI shape, and Anthropic's."""
    listed = parse(tools)
    if not isinstance(listed, list) or not listed:
        return None
    offered: dict[str, dict[str, Any]] = {}
    for tool in listed:
        nested = tool.get("function") if isinstance(tool, dict) else None
        function: Any = nested if isinstance(nested, dict) else tool
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            schema = function.get("parameters", function.get("input_schema"))
            offered[function["name"]] = schema if isinstance(schema, dict) else {}
    return offered or None


def windows(acts: Sequence[Act], n: int) -> Iterable[Sequence[Act]]:
    """Every run of n consecutive acts."""
    return (acts[i : i + n] for i in range(len(acts) - n + 1))
