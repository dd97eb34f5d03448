"""Failure detectors over tool calls: loops, repeats, errors, unknown tools, bad or ungrounded arguments.

Definitions and thresholds are those of methods.md section 2; where a threshold is a judgement the line says so. Each
function takes a `Trace` and yields findings `(step_ix, evidence, tool, detail)`; `detectors.py` turns them into labels.

Not covered: detectors that need gold actions or a goal predicate (stop.premature, write.unneeded, stop.unaware),
`parallel.dependent`, and JSON-schema keywords beyond required, type, enum, properties, additionalProperties and items.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from flywheel.trajectory.trace import POLLING, Act, Trace, quote, windows

Finding = tuple[int | None, str, str | None, str]

SAME, SAME_ERROR, ALTERNATING = 4, 3, 6  # OpenHands stuck_detector.py
REPEATS, REPEAT_SHARE, REPEAT_MIN = 3, 0.3, 6
# Judgement: what an agent says when it believes it is done.
SUCCESS_CLAIM = re.compile(
    r"(?i)\b(?:(?:has|have|is|are|was|were)(?: now)?(?: been)? (?:successfully|completed|booked|cancel+ed|updated|"
    r"processed|confirmed|fixed|refunded|changed|added|issued|done)|successfully|all set"
    r"|task (?:is )?(?:done|complete))"
)
UNKNOWN_TOOL = re.compile(
    r"(?i)^\W*(?:error\W+)?(?:unknown|no such|invalid|unrecogni[sz]ed) (?:action|tool|function)\b"
)
ID_LIKE = re.compile(r"(?=.*[\d_])[A-Za-z0-9_#@.:/-]{5,80}")
# A model may rewrite a date, a time or an amount; that is no invention of an id.
REWRITABLE = re.compile(r"\d{4}-\d\d(?:-\d\d)?(?:T[\d:.Z+-]+)?|\d{1,2}[/.:]\d\d(?:[/.:]\d{2,4})?|[-+]?[\d.,]+%?")


def loop_same(trace: Trace) -> Iterator[Finding]:
    """Four equal calls in a row with equal observations."""
    for window in windows(trace.acts, SAME):
        if len({(a.key, a.seen) for a in window}) == 1 and not POLLING.search(window[0].name):
            yield _at(window[-1], f"{SAME} times: {_call(window[-1])}", window[-1].name if window[-1].error else "")
            return


def loop_error(trace: Trace) -> Iterator[Finding]:
    """Three equal calls in a row, each failing."""
    for window in windows(trace.acts, SAME_ERROR):
        if len({a.key for a in window}) == 1 and all(a.error for a in window):
            yield _at(window[-1], window[-1].observation, window[-1].observation)
            return


def loop_alternate(trace: Trace) -> Iterator[Finding]:
    """Six calls in a row that go back and forth between two."""
    for window in windows(trace.acts, ALTERNATING):
        pairs = [(a.key, a.seen) for a in window]
        if pairs[:-2] == pairs[2:] and pairs[0] != pairs[1]:
            both = sorted({a.name for a in window})
            yield window[-1].step_ix, quote(f"{_call(window[-2])} / {_call(window[-1])}"), " / ".join(both), ""
            return


def repeat(trace: Trace) -> Iterator[Finding]:
    """The same call three times, or 30% of at least six calls repeated; counted anew after each successful write."""
    counts: Counter[str] = Counter()
    for act in trace.acts:
        if act.writes and not act.error:
            counts.clear()
            continue
        if POLLING.search(act.name):
            continue
        counts[act.key] += 1
        total = counts.total()
        share = 1 - len(counts) / total
        if counts[act.key] >= REPEATS or (counts[act.key] > 1 and total >= REPEAT_MIN and share >= REPEAT_SHARE):
            yield _at(act, f"{counts[act.key]} times: {_call(act)}", "")
            return


def retry_same(trace: Trace) -> Iterator[Finding]:
    """A call that failed is issued again unchanged, whatever happened in between."""
    failed: dict[str, Act] = {}
    for act in trace.acts:
        if act.key in failed and not POLLING.search(act.name):
            yield _at(act, failed[act.key].observation, failed[act.key].observation)
            return
        if act.error:
            failed[act.key] = act


def error_ignored(trace: Trace) -> Iterator[Finding]:
    """A tool fails, never succeeds afterwards, and the final answer claims success."""
    final = trace.final
    claim = SUCCESS_CLAIM.search(final.content or "") if final else None
    if final is None or claim is None:
        return
    for index, act in enumerate(trace.acts):
        solved = any(later.name == act.name and not later.error for later in trace.acts[index + 1 :])
        if act.error and not solved:
            said = (final.content or "")[max(0, claim.start() - 40) : claim.end() + 60]
            yield _at(act, f"{act.observation[:100]} … {said.strip()}", act.observation)
            return


def unknown_tool(trace: Trace) -> Iterator[Finding]:
    """A call to a tool that was not offered, or that the harness says it does not have."""
    for act in trace.acts:
        unoffered = trace.tools is not None and act.name not in trace.tools and act.call.kind in (None, "function")
        if unoffered or UNKNOWN_TOOL.match(act.observation[:200]):
            yield _at(act, _call(act), "")


def invalid_args(trace: Trace) -> Iterator[Finding]:
    """Arguments that break the offered schema (BFCL's error codes)."""
    for act in trace.acts:
        schema = (trace.tools or {}).get(act.name)
        if schema is not None and act.args is not None:
            problem = next(schema_errors(act.args, schema), None)
            if problem:
                yield _at(act, f"{problem}: {_call(act)}", problem)


def ungrounded_args(trace: Trace) -> Iterator[Finding]:
    """An id-like argument that occurs in no earlier system, user or tool text (case and punctuation apart)."""
    known = [trace.trajectory.tools or ""]
    pending = iter(trace.steps)
    step = next(pending, None)
    plain = _plain(known[0])
    for act in trace.acts:
        while step is not None and step.step_ix < act.step_ix:
            if step.role != "assistant":
                known.append((step.content or "").lower())
                plain += "\0" + _plain(step.content or "")
            step = next(pending, None)
        for path, value in _strings(act.args or {}):
            seen = _plain(value) in plain or any(value.lower() in text for text in known)
            if ID_LIKE.fullmatch(value) and not REWRITABLE.fullmatch(value) and not seen:
                yield _at(act, f"{path}={value}: {_call(act)}", path)
                break


def schema_errors(value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Each way a JSON value breaks a JSON schema, as `code: path`. Keywords beyond the common six are not checked."""
    where = path or "arguments"
    kinds = schema.get("type")
    if kinds is not None and not any(_is_type(value, k) for k in (kinds if isinstance(kinds, list) else [kinds])):
        yield f"type: {where}"
        return
    if isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        yield f"enum: {where}"
    if isinstance(value, dict):
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        for name in required if isinstance(required, list) else []:
            if name not in value:
                yield f"missing_required: {_join(path, name)}"
        for name, inner in value.items():
            if isinstance(properties.get(name), dict):
                yield from schema_errors(inner, properties[name], _join(path, name))
            elif name not in properties and schema.get("additionalProperties") is False:
                yield f"unexpected_param: {_join(path, name)}"
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            yield from schema_errors(inner, schema["items"], f"{path}[]")


def _is_type(value: Any, kind: Any) -> bool:
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    named = {"string": str, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    return isinstance(value, named[kind]) if kind in named else True  # an unknown type name checks nothing


def _strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(inner, _join(path, str(name)))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, f"{path}[]")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _call(act: Act) -> str:
    return f"{act.name}({act.call.args_raw or ''})"


def _at(act: Act, evidence: str, detail: str) -> Finding:
    return act.step_ix, quote(evidence), act.name or None, detail
