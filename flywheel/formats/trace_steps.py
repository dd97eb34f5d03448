"""The spans of one agent, in order of time, to its message graph.

Calls of models and tools make the conversation. Retrievals, rerankings and embeddings are events beside it. Where no
call tells what the agent was asked, the outermost span does; where there is no call at all, also what it answered.

Not covered: which spans belong to an agent (`traces.py`), the graph itself (`span_graph.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from flywheel.formats.messages import read_content
from flywheel.formats.parse import dumps
from flywheel.formats.span_columns import call_columns, error_of, times_of
from flywheel.formats.span_graph import Graph
from flywheel.formats.span_messages import messages_of
from flywheel.formats.span_view import Found, View
from flywheel.formats.trace_head import Known

_BESIDE = ("retriever", "reranker", "embedding")


def graph_of(known: Sequence[Known]) -> Graph:
    """The graph of the spans, complete."""
    graph = Graph()
    calls = [found for _, found in known if found.kind == "llm"]
    asked = not any(found.inputs for found in calls)
    if asked:
        _add_outer(graph, known, "input", "user")
    for view, found in known:
        if found.kind == "llm":
            graph.add_call(found, call_columns(view, found), error_of(view))
        elif found.kind == "tool":
            graph.add_tool(view, found)
        elif found.kind in _BESIDE:
            _add_beside(graph, view, found)
    graph.place_tools()
    if asked and not calls:
        _add_outer(graph, known, "output", "assistant")
    return graph


def _add_outer(graph: Graph, known: Sequence[Known], side: str, role: str) -> None:
    """What the outermost span was given or gave, where no call of a model tells."""
    for view, found in known:
        value = getattr(found, side)
        if value is None or found.kind in ("tool", "llm", *_BESIDE):
            continue
        messages = messages_of(value, role) or [{"role": role, "content": value}]
        for message in messages if side == "input" else messages[-1:]:
            own = {"span_id": view.row.span_id, **({} if message.get("role") != "assistant" else {"sampled": None})}
            graph.add_message(message, {**own, **(times_of(view) if side == "output" else {})})
        return


def _add_beside(graph: Graph, view: View, found: Found) -> None:
    content = read_content({"content": found.input})
    usage = call_columns(view, found)
    kept = ("span_id", "model", "ts", "ts_end", "ts_raw", "cost_usd")
    columns = {key: value for key, value in usage.items() if key in kept or key.endswith("_tokens")}
    documents = found.documents if found.documents is not None else found.output
    message = {"role": "event", "name": view.row.name, "content": content.text, "kind": found.kind}
    columns |= {"parts": dumps(documents) if documents is not None else None, **error_of(view)}
    graph.add_event(message, columns)
