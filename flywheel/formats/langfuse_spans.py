"""Langfuse's observations as steps: what each span row says, and what becomes of a trace when all of it is there.

Generations are calls of a model, each with the whole history it was given. Usage comes in buckets that are disjoint,
named `input...` and `output...`; where an application filled in totals and parts of them, the recorded total tells.
A span is a tool's if it is called so, or if a tool's message came out of it.

Not covered: reading of files (`langfuse.py`), span rows (`langfuse_rows.py`), the message graph (`traces.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.langfuse_rows import SCOPE, TRACE, spelled
from flywheel.formats.observed_messages import is_cut, said, told, unpacked
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.span_messages import Message
from flywheel.formats.span_scores import with_scores
from flywheel.formats.span_view import Found, View, decoded_object, loosely, tokens
from flywheel.formats.usage import Usage, count, money
from flywheel.records import Fragment, Span

_KINDS = {
    "GENERATION": "llm", "TOOL": "tool", "AGENT": "agent", "CHAIN": "chain", "RETRIEVER": "retriever",
    "EMBEDDING": "embedding", "EVALUATOR": "evaluator", "GUARDRAIL": "guardrail", "SPAN": "chain", "EVENT": "chain",
    TRACE: "chain",
}  # fmt: skip
CHATML = "CHATML"
_TOOL_NAME = re.compile(r"^(?:running tool: |execute_tool |tool[.:] ?)")


def read(view: View) -> Found:
    """What a row that Langfuse's reader made says; nothing of other rows."""
    if view.row.scope != SCOPE:
        return Found()
    fields = spelled(view.attributes)
    given, answer = fields.get("input"), fields.get("output")
    if view.row.kind == CHATML:
        return _chatml(given, answer)
    tool = _tool(view, given, answer)
    kind = "tool" if tool is not None else _KINDS.get(view.row.kind or "", "chain")
    flags = ("truncated_attribute",) if is_cut(given) or is_cut(answer) else ()
    common = {**_who(view, fields), "flags": flags}
    if tool is not None:
        return replace(tool, **common)
    if kind != "llm":
        return Found(
            kind=kind,
            input=unpacked(given) or None,
            output=unpacked(answer) or None,
            **_counted(fields, kind),
            **common,
        )
    return Found(
        kind="llm",
        inputs=_instructed(told(given), unpacked(answer)),
        outputs=_with_calls(said(answer), fields),
        tools=_tools(fields, unpacked(given)),
        sampling=as_dict(loosely(fields.get("model_parameters"))) or None,
        response_id=first_text(as_dict(unpacked(answer)), "id"),
        **_counted(fields, kind),
        **common,
    )


def _chatml(given: Any, answer: Any) -> Found:
    """One entry of a ChatML dump: Langfuse's own reading of an observation, or why it could not be read."""
    inputs, outputs = (as_dict(side).get("data") for side in (given, answer))
    spoke = [item for item in as_list(outputs) if {"role", "tool_calls"} & set(as_dict(item))]
    if not spoke and not as_list(inputs):
        return Found(kind="chain", output=outputs)
    return Found(kind="llm", inputs=told(inputs), outputs=said(spoke or None))


def _tool(view: View, given: Any, answer: Any) -> Found | None:
    """A tool's span, by its type, by its name, or by the tool's message that came out of it."""
    body = as_dict(unpacked(answer))
    message = as_dict(body.get("kwargs")) if as_list(body.get("id"))[-1:] == ["ToolMessage"] else body
    call_id = first_text(message, "tool_call_id") if message is not body or body.get("type") == "tool" else None
    kind = view.text("openinference.span.kind", "gen_ai.operation.name", "traceloop.span.kind") or ""
    named = view.text("gen_ai.tool.name", "tool.name")
    spoke = view.text("gen_ai.tool.name") is not None and not (given is None and answer is None)
    is_tool = call_id or spoke or kind.lower() in ("tool", "execute_tool")
    if view.row.kind != "TOOL" and not (view.row.kind == "SPAN" and is_tool):
        return None
    output = message.get("content") if call_id else answer
    if not call_id and set(body) == {"content"} and isinstance(body["content"], list):
        output = body["content"]
    if isinstance(output, str) and output.startswith('"'):
        output = unpacked(output)
    return Found(
        kind="tool",
        input=unpacked(given) if isinstance(given, str) and given.startswith('"') else given,
        output=output,
        tool_name=named or _TOOL_NAME.sub("", view.row.name or "") or None,
        tool_call_id=call_id,
    )


def _who(view: View, fields: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key: loosely(value) for key, value in as_dict(loosely(fields.get("metadata"))).items() if key != "scope"
    }
    if view.row.kind != TRACE and view.row.parent_span_id is not None:
        metadata = {key: value for key, value in metadata.items() if key == "task_id"}
    tags = tuple(tag for item in as_list(loosely(fields.get("tags"))) if (tag := as_text(item)))
    return {
        "session_id": as_text(fields.get("session_id")),
        "user_id": as_text(fields.get("user_id")),
        "environment": as_text(fields.get("environment")),
        "metadata": metadata or None,
        "tags": tags or None,
    }


def _counted(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Model, tokens and cost. Only calls of models have costs of their own: outer spans repeat sums."""
    if kind not in ("llm", "embedding"):
        return {}
    details = as_dict(loosely(fields.get("cost_details")))
    costs = (fields.get("total_cost"), details.get("total"), fields.get("calculated_total_cost"))
    cost = next((value for value in costs if money(value) is not None), None)
    return {
        "model": first_text(fields, "provided_model_name", "model"),
        "usage": buckets(as_dict(loosely(fields.get("usage_details")))) or _older(fields),
        "cost": cost if details or (cost is not None and money(cost)) else None,
    }


def buckets(usage: Mapping[str, Any]) -> Usage | None:
    """Disjoint buckets in the normal form; their recorded `total` tells where they are not disjoint after all."""
    sums: dict[str, int | None] = dict.fromkeys(("input", "output", "read", "write", "reasoning"))
    for key, value in usage.items():
        number = count(value if not isinstance(value, str) or not value.isdecimal() else int(value))
        if number is None or key == "total" or key.startswith("total_"):
            continue
        side = "output" if key.startswith(("output", "completion")) else "input" if _is_input(key) else None
        parts = ("reasoning",) if "reasoning" in key else _cache_part(key)
        for name in (*((side,) if side else ()), *parts):
            sums[name] = (sums[name] or 0) + number
    whole, total = (sums["input"] or 0) + (sums["output"] or 0), count(usage.get("total"))
    plain = {side: count(usage.get(side)) for side in ("input", "output")}
    if total is not None and whole != total and sum(number or 0 for number in plain.values()) == total:
        sums |= plain  # the parts are inside the plain ones
    return tokens(
        input=sums["input"], output=sums["output"], read=sums["read"], write=sums["write"],
        reasoning=sums["reasoning"], total=(sums["input"] or 0) + (sums["output"] or 0),
    )  # fmt: skip


def _is_input(key: str) -> bool:
    return key.startswith(("input", "prompt", "cache_"))


def _cache_part(key: str) -> tuple[str, ...]:
    if "cache" not in key:
        return ()
    return ("write",) if "creation" in key or "write" in key else ("read",)


def _older(fields: Mapping[str, Any]) -> Usage | None:
    """`usage` and `promptTokens` of the API before usage details, `inputUsage` of the UI's tables."""
    usage = as_dict(loosely(fields.get("usage")))
    told = (usage.get("input"), usage.get("promptTokens"), fields.get("prompt_tokens"), fields.get("input_usage"))
    said = (
        usage.get("output"),
        usage.get("completionTokens"),
        fields.get("completion_tokens"),
        fields.get("output_usage"),
    )
    given, out = (next((value for value in values if value is not None), None) for values in (told, said))
    return tokens(input=given, output=out, total=usage.get("total", usage.get("totalTokens")))


def _instructed(inputs: list[Message] | None, answer: Any) -> list[Message] | None:
    """What was told, with the instructions that only the response of OpenAI's Responses API repeats."""
    text = as_text(as_dict(answer).get("instructions"))
    if text is None or inputs is None or inputs[0].get("role") in ("system", "developer"):
        return inputs
    return [{"role": "system", "content": text}, *inputs]


def _with_calls(outputs: list[list[Message]] | None, fields: Mapping[str, Any]) -> list[list[Message]] | None:
    """The answer with the calls that only a column of their own has."""
    calls = [as_dict(unpacked(call)) for call in as_list(loosely(fields.get("tool_calls")))]
    calls = [call for call in calls if call]
    spoken = any(message.get("tool_calls") for choice in outputs or [] for message in choice)
    if not calls or spoken:
        return outputs
    first, *others = outputs or [[{"role": "assistant", "content": None}]]
    *before, last = first
    return [[*before, {**last, "tool_calls": calls}], *others]


def _tools(fields: Mapping[str, Any], given: Any) -> Any:
    defined = loosely(fields.get("tool_definitions"))
    if isinstance(defined, dict) and defined:
        bodies = {name: loosely(text) for name, text in defined.items()}
        return [
            {"name": name, **body} if isinstance(body, dict) else {"name": name, "definition": body}
            for name, body in bodies.items()
        ]
    request = as_dict(given)
    return request.get("tools") or as_dict(request.get("config")).get("tools") or defined or None


def completed(fragment: Fragment) -> Fragment:
    """A trajectory of a finished trace, with its scores on the steps they are about, its name and its version."""
    head = fragment.trajectory
    trace = next((row for row in fragment.spans if row.kind == TRACE), None)
    fields = spelled(decoded_object(trace.attributes)) if trace is not None else {}
    trajectory = replace(
        head,
        agent_name=_agent(fragment) or (trace.name if trace is not None else None) or _trace_name(fragment),
        agent_version=first_text(fields, "version", "release") or head.agent_version,
        content_complete=head.content_complete and bool(fragment.steps),
    )
    return with_scores(replace(fragment, trajectory=trajectory))


def _agent(fragment: Fragment) -> str | None:
    """The name of the agent that the first call of a model stands in."""
    rows = {row.span_id: row for row in fragment.spans if row.span_id is not None}
    first = min((r for r in rows.values() if r.kind == "GENERATION"), key=_when, default=None)
    seen: set[str] = set()
    at = first.parent_span_id if first is not None else None
    while at is not None and at in rows and at not in seen:
        if rows[at].kind == "AGENT":
            return rows[at].name
        seen.add(at)
        at = rows[at].parent_span_id
    return None


def _when(row: Span) -> tuple[int, str]:
    return row.start_ns or 0, row.span_id or ""


def _trace_name(fragment: Fragment) -> str | None:
    """The name that enriched observations repeat of their trace."""
    names = (first_text(spelled(decoded_object(row.attributes)), "trace_name") for row in fragment.spans)
    return next((name for name in names if name), None)
