"""Spans of one trace to trajectories: the same rows whatever the order, files and batches the spans came in.

    trace -> its spans, each with its log events -> agents -> the calls of each in order of time -> a message graph

One trace is one trajectory. A subagent (an agent called by a tool, or by an agent of another name) is a trajectory of
its own: `parent_trajectory_id` and `parent_step_ix` say who called it, the parent's tool call names it. Tokens count on
calls of a model that have no call of a model below them: agents and outer layers repeat the sums of what they called.
Rows of spans that came twice (retried exports, one run exported in two encodings) count once.

Not covered: reading of files (`otlp.py`, `openinference.py`, `mlflow.py`), joining several traces of one conversation
(the rows share `conversation_id`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from flywheel.formats import (
    feedback,
    genai,
    langfuse_spans,
    langsmith_spans,
    mlflow_spans,
    openinference_spans,
    vendor_spans,
)
from flywheel.formats.messages import Conversation
from flywheel.formats.span_columns import error_of
from flywheel.formats.span_outcomes import evaluations
from flywheel.formats.span_view import NOTHING, Found, View, view_of
from flywheel.formats.spans import LOG
from flywheel.formats.trace_head import Known, head_columns
from flywheel.formats.trace_steps import graph_of
from flywheel.records import Fragment, Span, ToolCall, content_id

DIALECTS = (
    langfuse_spans.read,
    langsmith_spans.read,
    openinference_spans.read,
    mlflow_spans.read,
    genai.read,
    vendor_spans.read,
)


def finish_trace(fragment: Fragment) -> Iterator[Fragment]:
    """The trajectories of a joined trace: of its main agent first, with the key it had, then of its subagents."""
    rows = _distinct(fragment.spans)
    trace = _Trace(rows)
    made: dict[str | None, _Agent] = {}
    for agent in trace.agents():
        made[agent.top] = _Agent(fragment, trace, agent)
    for top, maker in made.items():
        yield maker.fragment({child: made[child].key for child in made if child is not None and child != top}, made)


def _distinct(rows: Iterable[Span]) -> list[Span]:
    """Each row once, in order of time, whatever source it came from."""
    seen: dict[Span, Span] = {}
    for row in rows:
        seen.setdefault(replace(row, source_id=None, trajectory_id=None), row)
    return sorted(seen.values(), key=lambda row: (row.start_ns or 0, row.kind == LOG, row.span_id or ""))


class _Part:
    """The spans of one agent. `top`: the id of the span it begins with; None for the main agent."""

    def __init__(self, top: str | None) -> None:
        self.top = top
        self.known: list[Known] = []
        self.rows: list[Span] = []


class _Trace:
    """The spans of a trace as a tree, and which of them are calls of models."""

    def __init__(self, rows: Sequence[Span]) -> None:
        logs: dict[str | None, list[Span]] = {}
        best: dict[str, Span] = {}
        loose: list[Span] = []
        for row in rows:
            if row.kind == LOG:
                logs.setdefault(row.parent_span_id, []).append(row)
            elif row.span_id is None:
                loose.append(row)
            elif row.span_id not in best or _weight(row) > _weight(best[row.span_id]):
                best[row.span_id] = row  # of an unfinished and a finished one: the finished
        self.rows = rows
        self.loose_logs = logs.pop(None, [])
        views = [view_of(row, logs.pop(row.span_id or "", [])) for row in (*best.values(), *loose)]
        views += [view_of(None, events) for events in logs.values()]
        views.sort(key=lambda view: (view.row.start_ns or 0, -(view.row.end_ns or 0), view.row.span_id or ""))
        self.known = [(view, _found(view)) for view in views]
        self.by_id = {view.row.span_id: (view, found) for view, found in self.known if view.row.span_id}
        self._demote()

    def above(self, view: View) -> Iterator[Known]:
        """The spans above one, from its parent up; a circle ends where it closes."""
        seen = {view.row.span_id}
        at = view.row.parent_span_id
        while at is not None and at not in seen and at in self.by_id:
            seen.add(at)
            yield self.by_id[at]
            at = self.by_id[at][0].row.parent_span_id

    def _demote(self) -> None:
        """Calls of models that have one below them are layers around it, except across a tool."""
        outer: set[str | None] = set()
        for view, found in self.known:
            if found.kind != "llm":
                continue
            for above, its in self.above(view):
                if its.kind == "tool":
                    break
                if its.kind == "llm":
                    outer.add(above.row.span_id)
        self.known = [
            (view, replace(found, kind="chain") if found.kind == "llm" and view.row.span_id in outer else found)
            for view, found in self.known
        ]
        self.by_id = {view.row.span_id: (view, found) for view, found in self.known if view.row.span_id}

    def agents(self) -> list[_Part]:
        """The main agent and the subagents, each with its spans in order of time."""
        speaking = {self._top_of(view, found) for view, found in self.known if found.kind in ("llm", "tool")}
        parts: dict[str | None, _Part] = {None: _Part(None)}
        of_span: dict[str | None, str | None] = {}
        for view, found in self.known:
            top = self._top_of(view, found)
            top = top if top in speaking else self._enclosing(top, speaking)
            of_span[view.row.span_id] = top
            parts.setdefault(top, _Part(top)).known.append((view, found))
        for row in self.rows:
            owner = row.parent_span_id if row.kind == LOG else row.span_id
            parts[of_span.get(owner) if owner is not None else None].rows.append(row)
        return [part for part in parts.values() if part.known or part.top is None]

    def _enclosing(self, top: str | None, speaking: set[str | None]) -> str | None:
        while top is not None and top not in speaking:
            top = self.enclosing(top)
        return top

    def enclosing(self, top: str) -> str | None:
        """The agent that a subagent's first span stands in."""
        view, _ = self.by_id[top]
        parent = next(iter(self.above(view)), None)
        return None if parent is None else self._top_of(*parent)

    def _top_of(self, view: View, found: Found) -> str | None:
        """The id of the first span of the subagent that a span belongs to; None for the main agent."""
        chain = [(view, found), *self.above(view)]
        for n, (at, its) in enumerate(chain):
            if its.kind == "agent" and at.row.span_id is not None and _is_called(its, chain[n + 1 :]):
                return at.row.span_id
        return None


def _is_called(agent: Found, above: Sequence[Known]) -> bool:
    """Whether an agent was called by another one: through a tool, or directly and by another name."""
    through_tool = False
    for _, its in above:
        through_tool = through_tool or its.kind == "tool"
        if its.kind == "agent":
            return through_tool or (
                None not in (agent.agent_name, its.agent_name) and agent.agent_name != its.agent_name
            )
    return False


def _weight(row: Span) -> tuple[int, int, int]:
    return row.end_ns or 0, len(row.attributes or ""), len(row.events or "")


def _found(view: View) -> Found:
    found = NOTHING
    for dialect in DIALECTS:
        found = found.over(dialect(view))
    return found


class _Agent:
    """One agent's spans on their way to a fragment."""

    def __init__(self, fragment: Fragment, trace: _Trace, part: _Part) -> None:
        self.whole, self.trace, self.part, self.top = fragment, trace, part, part.top
        key = fragment.key
        self.key = key if part.top is None else content_id("trajectory", fragment.trajectory.format, key, part.top)
        self.steps, self.calls = graph_of(part.known).emit(Conversation(self.key))

    def fragment(self, keys: dict[str, str], made: dict[str | None, _Agent]) -> Fragment:
        head = self.whole.trajectory
        known = self.part.known
        is_main = self.top is None
        columns = head_columns(known, self._root()) if known else {}
        logs = self.trace.loose_logs if is_main else []
        found = evaluations([view for view, _ in known], logs, self.key, self.steps)
        given_too = self.whole.outcomes if is_main else ()
        outcomes = tuple({outcome.outcome_id: outcome for outcome in (*given_too, *found)}.values())
        summary = feedback.headline(outcomes)
        columns |= {"success": summary.success, "reward": summary.reward, "success_source": summary.source}
        if not is_main:
            columns |= {"native_id": f"{head.trace_id}/{self.top}", **self._parent(made)}
        flags = tuple(dict.fromkeys((*(head.quality_flags or ()), *self._flags())))
        given = {} if not is_main else {name: v for name in columns if (v := getattr(head, name)) is not None}
        return Fragment(
            key=self.key,
            record_ix=self.whole.record_ix,
            trajectory=replace(
                head,
                **{**columns, **given},
                trajectory_id=self.key,
                n_steps=len(self.steps),
                content_complete=head.content_complete and not set(flags) & _INCOMPLETE,
                quality_flags=flags or None,
            ),
            steps=self.steps,
            tool_calls=tuple(self._linked(call, keys) for call in self.calls),
            outcomes=outcomes,
            blobs=self.whole.blobs if is_main else (),
            spans=tuple(replace(row, trajectory_id=self.key) for row in self.part.rows),
        )

    def _root(self) -> Known:
        """The span that the others stand in: the first whose parent is not among them, one that lasts before others."""
        ids = {view.row.span_id for view, _ in self.part.known}
        tops = [pair for pair in self.part.known if pair[0].row.parent_span_id not in ids and pair[0].has_span]
        return next((pair for pair in tops if pair[1].kind is not None), (tops or self.part.known)[0])

    def _parent(self, made: dict[str | None, _Agent]) -> dict[str, Any]:
        outer = self.trace.enclosing(self.top or "")
        parent = made.get(outer, made[None])
        spans = [view.row.span_id for view, _ in self.trace.above(self.trace.by_id[self.top or ""][0])]
        step = next((call.step_ix for call in parent.calls if call.span_id and call.span_id in spans), None)
        return {"parent_trajectory_id": parent.key, "parent_step_ix": step}

    def _linked(self, call: ToolCall, keys: dict[str, str]) -> ToolCall:
        if call.span_id is None:
            return call
        for top, key in keys.items():
            above = [view.row.span_id for view, _ in self.trace.above(self.trace.by_id[top][0])]
            if call.span_id in above and self.trace.enclosing(top) == self.top:
                return replace(call, subagent_trajectory_id=key)
        return call

    def _flags(self) -> Iterator[str]:
        for view, found in self.part.known:
            yield from found.flags
            if view.row.dropped_attributes:
                yield "dropped_attributes"
            if not view.has_span:
                yield "span_missing"
            if found.kind == "llm" and (found.inputs is None or (found.outputs is None and not error_of(view))):
                yield "content_not_captured"
        if not self.steps:
            yield "no_steps"


_INCOMPLETE = {"truncated_attribute", "dropped_attributes", "content_not_captured"}
