"""MLflow on spans: `mlflow.spanType`, `mlflow.spanInputs`, `mlflow.spanOutputs`, ... each of them JSON as text.

They stand on spans of MLflow's own exports and on what its OTLP exporter sends. Older and foreign exporters encode a
value twice, or not at all; both are read, the former flagged.

Not covered: MLflow's files (`mlflow.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flywheel.formats.parse import Decoded, try_loads
from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.span_messages import Message, choices_of, messages_of
from flywheel.formats.span_view import NOTHING, Found, View, loosely, tokens
from flywheel.formats.usage import Usage, openai_usage

_KINDS = {
    "LLM": "llm", "CHAT_MODEL": "llm", "TOOL": "tool", "AGENT": "agent", "CHAIN": "chain", "RETRIEVER": "retriever",
    "EMBEDDING": "embedding", "RERANKER": "reranker", "WORKFLOW": "chain", "TASK": "chain", "PARSER": "chain",
    "MEMORY": "chain", "GUARDRAIL": "guardrail", "EVALUATOR": "evaluator", "UNKNOWN": "chain",
}  # fmt: skip
_NOT_SAMPLING = ("messages", "tools", "model", "input", "prompt", "functions", "instructions", "system", "contents")


def read(view: View) -> Found:
    """What MLflow says of a span; nothing where it has no type of its."""
    if not any(key.startswith("mlflow.span") for key in view.attributes):
        return NOTHING
    flags: list[str] = []

    def get(name: str) -> Any:
        return decoded(view.attributes.get(name), flags)

    kind = _KINDS.get(as_text(get("mlflow.spanType")) or "UNKNOWN", "chain")
    given, said = get("mlflow.spanInputs"), get("mlflow.spanOutputs")
    is_call = kind == "llm"
    request, response = as_dict(given), as_dict(said)
    sampling = {key: value for key, value in request.items() if key not in _NOT_SAMPLING and value is not None}
    return Found(
        kind=kind,
        inputs=messages_of(given, "user") if is_call else None,
        outputs=_outputs(said) if is_call else None,
        input=given,
        output=said,
        tools=get("mlflow.chat.tools") or (request.get("tools") if is_call else None),
        tool_name=view.row.name if kind == "tool" else None,
        tool_call_id=as_text(get("tool_call_id")),
        usage=_usage(get("mlflow.chat.tokenUsage"), response.get("usage")),
        cost=as_dict(get("mlflow.llm.cost")).get("total_cost"),
        model=as_text(get("mlflow.llm.model")) or as_text(response.get("model")) or as_text(request.get("model")),
        provider=as_text(get("mlflow.llm.provider")) or as_text(get("mlflow.message.format")),
        sampling=(sampling or None) if is_call else None,
        response_id=as_text(response.get("id")) if is_call else None,
        agent_name=view.row.name if kind == "agent" else None,
        documents=as_list(said) or None if kind == "retriever" else None,
        flags=tuple(dict.fromkeys(flags)),
    )


def decoded(value: Any, flags: list[str]) -> Any:
    """An attribute's value: JSON in a text, once as MLflow writes it; twice is flagged."""
    if not isinstance(value, str):
        return value
    found = try_loads(value)
    if not isinstance(found, Decoded):
        return value
    inner = loosely(found.value)
    if inner is not found.value:
        flags.append("double_encoded")
    return inner


def _outputs(said: Any) -> list[list[Message]] | None:
    choices = as_dict(said).get("choices")
    if isinstance(choices, list):
        return choices_of(choices) or None
    messages = messages_of(said, "assistant")
    return [messages] if messages else None


def _usage(recorded: Any, responded: Any) -> Usage | None:
    """MLflow's own counts, completed by those of the response that they were taken from."""
    own, response = as_dict(recorded), openai_usage(responded)
    usage = tokens(
        input=own.get("input_tokens"),
        output=own.get("output_tokens"),
        read=own.get("cache_read_input_tokens"),
        write=own.get("cache_creation_input_tokens"),
        total=own.get("total_tokens"),
    )
    if usage is None:
        return response if response.input_tokens is not None or response.output_tokens is not None else None
    return replace(usage, reasoning_tokens=response.reasoning_tokens)
