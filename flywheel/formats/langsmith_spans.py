"""LangSmith's runs as steps: what each span row says, and halves of runs made whole before the trace is.

Runs of type `llm` are calls of a model with all they were told; `tool` runs are paired with the calls in its answers.
Usage includes its parts (cache, reasoning). Costs and tokens of other runs repeat the sums of what they called.

Not covered: reading of files (`langsmith.py`), shapes of messages (`observed_messages.py`), the graph (`traces.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flywheel.formats.langsmith import SCOPE
from flywheel.formats.observed_messages import said, told, unpacked
from flywheel.formats.openai_responses_call import responses_usage
from flywheel.formats.parse import dumps
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.span_scores import with_scores
from flywheel.formats.span_view import Found, View, decoded_object, loosely, tokens
from flywheel.formats.usage import Usage, openai_usage
from flywheel.records import Fragment, Span

_KINDS = {"llm": "llm", "tool": "tool", "retriever": "retriever", "embedding": "embedding"}
_SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "n", "stop", "seed", "frequency_penalty",
    "presence_penalty", "tool_choice", "response_format", "reasoning_effort", "parallel_tool_calls",
)  # fmt: skip
_RESULT = ("output", "result", "content")
_ERROR_TYPE = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Interrupt|Exit|Cancelled))\b")


def read(view: View) -> Found:
    """What a row that LangSmith's reader made says; nothing of other rows."""
    if view.row.scope != SCOPE:
        return Found()
    fields = view.attributes
    given, answer = unpacked(fields.get("inputs")), unpacked(fields.get("outputs"))
    kind = _KINDS.get(view.row.kind or "", "chain")
    who = _who(view)
    if kind == "tool":
        return _tool(view, given, answer, who)
    if kind != "llm":
        documents = as_dict(answer).get("documents", answer) if kind == "retriever" else None
        return Found(kind=kind, input=given or None, output=answer or None, documents=documents, **who)
    request, response = as_dict(given), as_dict(answer)
    invocation = as_dict(as_dict(loosely(fields.get("extra"))).get("invocation_params"))
    metadata = _metadata(fields)
    asked = {**invocation, **request}
    return Found(
        kind="llm",
        inputs=told(given),
        outputs=said(answer) if answer else None,
        tools=request.get("tools") or invocation.get("tools") or invocation.get("functions"),
        sampling={key: asked[key] for key in _SAMPLING if asked.get(key) is not None} or None,
        usage=_usage(fields, response),
        cost=fields.get("total_cost"),
        model=first_text(response, "model")
        or first_text(metadata, "ls_model_name")
        or first_text(asked, "model", "model_name"),
        provider=first_text(metadata, "ls_provider"),
        response_id=first_text(response, "id") or first_text(_message(response), "id"),
        **who,
    )


def _metadata(fields: Mapping[str, Any]) -> dict[str, Any]:
    extra = as_dict(loosely(fields.get("extra")))
    return {**as_dict(loosely(fields.get("custom_metadata"))), **as_dict(loosely(extra.get("metadata")))}


def _who(view: View) -> dict[str, Any]:
    metadata = _metadata(view.attributes)
    thread = first_text(metadata, "thread_id", "conversation_id")
    is_root = view.row.parent_span_id is None
    return {
        "session_id": first_text(metadata, "session_id") or thread,
        "conversation_id": thread,
        "user_id": first_text(metadata, "user_id", "ls_user_id"),
        "environment": first_text(metadata, "environment", "ls_environment"),
        "agent_version": first_text(metadata, "revision_id") if is_root else None,
        "metadata": (metadata if is_root else {key: metadata[key] for key in ("task_id",) if key in metadata}) or None,
        "tags": tuple(t for item in as_list(loosely(view.attributes.get("tags"))) if (t := as_text(item))) or None,
    }


def _tool(view: View, given: Any, answer: Any, who: Mapping[str, Any]) -> Found:
    output = answer
    body = as_dict(output)
    if len(body) == 1 and next(iter(body)) in _RESULT:
        output = unpacked(next(iter(body.values())))
    message = as_dict(output)
    message = as_dict(message.get("kwargs")) if "lc" in message else message
    call_id = first_text(message, "tool_call_id") or first_text(as_dict(given), "tool_call_id", "toolCallId")
    if "tool_call_id" in message:
        output = message.get("content")
    arguments = as_dict(given)
    if len(arguments) == 1 and next(iter(arguments)) in ("args", "input"):
        given = unpacked(next(iter(arguments.values())))
    return Found(kind="tool", input=given, output=output, tool_name=view.row.name, tool_call_id=call_id, **who)


def _message(response: Mapping[str, Any]) -> dict[str, Any]:
    """The LangChain message of the first generation."""
    generations = as_list(response.get("generations"))
    first = generations[0][0] if generations and isinstance(generations[0], list) and generations[0] else None
    message = as_dict(as_dict(first).get("message"))
    return as_dict(message.get("kwargs")) or as_dict(message.get("data")) or message


def _usage(fields: Mapping[str, Any], response: Mapping[str, Any]) -> Usage | None:
    """Usage metadata of the response or of its message; else the provider's own; else what the run counts."""
    message = _message(response)
    for place in (response, message, as_dict(response.get("message")), as_dict(as_dict(response.get("output")))):
        usage = as_dict(place.get("usage_metadata"))
        if usage:
            given, out = as_dict(usage.get("input_token_details")), as_dict(usage.get("output_token_details"))
            return tokens(
                input=usage.get("input_tokens"), output=usage.get("output_tokens"), read=given.get("cache_read"),
                write=given.get("cache_creation"), reasoning=out.get("reasoning"), total=usage.get("total_tokens"),
            )  # fmt: skip
    own = response.get("usage") or as_dict(response.get("llm_output")).get("token_usage")
    found = openai_usage(own)
    if found.input_tokens is not None or found.output_tokens is not None:
        return found
    anthropic = as_dict(own)
    if "input_tokens_details" in anthropic:
        return responses_usage(anthropic)
    return tokens(
        input=anthropic.get("input_tokens", fields.get("prompt_tokens")),
        output=anthropic.get("output_tokens", fields.get("completion_tokens")),
        read=anthropic.get("cache_read_input_tokens"),
        write=anthropic.get("cache_creation_input_tokens"),
    )


def merged(fragment: Fragment) -> Fragment:
    """The fragment with one row a run: what began it and what completed it came apart."""
    rows: dict[str | None, Span] = {}
    for row in sorted(fragment.spans, key=_completeness):
        held = rows.get(row.span_id)
        rows[row.span_id] = row if held is None else _joined(held, row)
    return replace(fragment, spans=tuple(rows.values()))


def _completeness(row: Span) -> tuple[bool, int, str]:
    return row.end_ns is not None, row.end_ns or 0, row.attributes or ""


def _joined(held: Span, later: Span) -> Span:
    """Two halves of a run; the later counts, except where it says nothing."""
    new = {key: value for key, value in decoded_object(later.attributes).items() if value not in ({}, [], "")}
    attributes = {**decoded_object(held.attributes), **new}
    gaps = {name: getattr(held, name) for name in held.__struct_fields__ if getattr(later, name) is None}
    begun = later.start_ns if held.start_ns is None else held.start_ns
    return replace(later, **{**gaps, "attributes": dumps(attributes), "start_ns": begun})


def completed(fragment: Fragment) -> Fragment:
    """A trajectory of a finished trace: its name, its scores, and the types of its errors."""
    root = next((row for row in fragment.spans if row.parent_span_id is None), None)
    head = fragment.trajectory
    steps = tuple(
        replace(step, error_type=_error_type(step.error_message)) if step.error_type == "error" else step
        for step in fragment.steps
    )
    calls = tuple(
        replace(call, error_type=next((s.error_type for s in steps if s.step_ix == call.result_step_ix), None))
        if call.error_type == "error"
        else call
        for call in fragment.tool_calls
    )
    trajectory = replace(
        head,
        agent_name=head.agent_name or (root.name if root is not None else None),
        error_type=_error_type(head.error_message) if head.error_type == "error" else head.error_type,
    )
    return with_scores(replace(fragment, trajectory=trajectory, steps=steps, tool_calls=calls))


def _error_type(message: str | None) -> str:
    found = _ERROR_TYPE.match(message or "")
    return "error" if found is None else found.group(1)
