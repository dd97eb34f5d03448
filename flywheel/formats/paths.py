"""Paths of one message graph to the graph: requests that each repeat their history become one trajectory.

A fragment with `is_path` is one path from the root. Paths are laid over each other from the root on, in the order of
their sources and records, as long as they agree:

- Two steps agree if role, content and calls (name and arguments; ids differ between requests) do. No content is empty
  content. Steps that agree are one step, which keeps what either knows: gaps are filled, flags add up, and what was
  spent is there once.
- Where paths part, a step with the `llm_call_id` of a held step is a corrected record of it and takes its place.
  Anything else is a branch: the new step follows the one where they parted (`parent_ix`), and the graph has one more
  leaf.
- Calls, results, outcomes and subagents move with their steps. A call that has several results, one a branch, keeps
  the first; a call without one takes whichever is there.

A step always follows its parent. Where every path says when it was, branches are numbered in order of time, whatever
order they were laid in; else as they are first met. The head is the latest one's, with what it doesn't know from
earlier ones; it begins with the first and ends with the last.

`paths_of` is the way back: a graph as paths which, laid first, give the same graph with the same numbers.

Not covered: paths that don't begin at the root (histories cut at the front are branches of their own).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from flywheel.records import Fragment, Outcome, Step, ToolCall, Trajectory

_Signature = tuple[Any, ...]
# Of two steps that agree these stay as they are: they belong together, or are the graph's own.
_KEPT = {"trajectory_id", "step_ix", "parent_ix", "content", "content_state", "parts", "n_tool_calls"}


@dataclass(slots=True)
class _Node:
    """A step of the graph with its calls, and where its children are."""

    step: Step
    calls: list[ToolCall]
    children: dict[_Signature, int] = field(default_factory=dict)


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.roots: dict[_Signature, int] = {}
        self.by_call: dict[str, int] = {}  # llm_call_id of sampled steps

    def lay(self, path: Fragment) -> dict[int, int]:
        """Lay a path over the graph; where each of its steps is now."""
        moved: dict[int, int] = {}
        parent: int | None = None
        calls: dict[int, list[ToolCall]] = {}
        for call in path.tool_calls:
            calls.setdefault(call.step_ix, []).append(call)
        for step in sorted(path.steps, key=lambda step: step.step_ix):
            parent = moved[step.step_ix] = self._place(parent, step, calls.get(step.step_ix, []))
        for step_ix, made in calls.items():
            if step_ix in moved:
                self._answer(self.nodes[moved[step_ix]], made, moved)
        return moved

    def _place(self, parent: int | None, step: Step, calls: list[ToolCall]) -> int:
        siblings = self.roots if parent is None else self.nodes[parent].children
        signature = _signature(step, calls)
        at = siblings.get(signature)
        if at is not None:
            self.nodes[at].step = filled(self.nodes[at].step, step)
        else:
            at = self._corrected(parent, step) if step.llm_call_id else None
            if at is None:
                at = len(self.nodes)
                self.nodes.append(_Node(replace(step, step_ix=at, parent_ix=parent), _moved(calls, at)))
            else:
                held = self.nodes[at]
                held.step = replace(filled(step, held.step), step_ix=at, parent_ix=parent)
                held.calls = _moved(calls, at)
            siblings[signature] = at
        if step.llm_call_id and step.role == "assistant":
            self.by_call.setdefault(step.llm_call_id, at)
        return at

    def _corrected(self, parent: int | None, step: Step) -> int | None:
        """The held step after the same parent that an earlier record of the same response gave."""
        at = self.by_call.get(step.llm_call_id or "")
        if at is None or self.nodes[at].step.parent_ix != parent or self.nodes[at].step.role != step.role:
            return None
        return at

    def _answer(self, node: _Node, made: Sequence[ToolCall], moved: Mapping[int, int]) -> None:
        """Give the node's calls the results that this path knows."""
        for place, (held, call) in enumerate(zip(node.calls, made, strict=False)):
            result = moved.get(call.result_step_ix) if call.result_step_ix is not None else None
            own = replace(call, step_ix=held.step_ix, call_ix=held.call_ix, result_step_ix=result)
            first = held.result_step_ix is None and result is not None
            node.calls[place] = filled(own, held) if first else filled(held, own)


def merge_paths(paths: Sequence[Fragment]) -> Fragment:
    """One fragment with the graph of all paths of one key."""
    if len(paths) == 1:
        return replace(paths[0], is_path=False)
    graph = _Graph()
    outcomes: dict[str, Outcome] = {}
    for path in paths:
        moved = graph.lay(path)
        for outcome in path.outcomes:
            known = outcome.step_ix is not None and outcome.step_ix in moved
            at = moved[outcome.step_ix] if known and outcome.step_ix is not None else outcome.step_ix
            outcomes[outcome.outcome_id] = replace(outcome, step_ix=at)
    steps, calls, placed = _in_time(graph)
    return replace(
        paths[-1],
        is_path=False,
        record_ix=paths[0].record_ix,
        trajectory=_head([path.trajectory for path in _by_time(paths)], steps),
        steps=steps,
        tool_calls=calls,
        outcomes=tuple(
            o if o.step_ix is None or o.step_ix not in placed else replace(o, step_ix=placed[o.step_ix])
            for o in outcomes.values()
        ),
        blobs=tuple({blob.sha256: blob for path in paths for blob in path.blobs}.values()),
        spans=tuple(span for path in paths for span in path.spans),
    )


def paths_of(graph: Fragment) -> list[Fragment]:
    """The paths of a merged graph: one to each step that the next one doesn't follow, in the order of these steps."""
    steps = sorted(graph.steps, key=lambda step: step.step_ix)
    if all(step.parent_ix is None for step in steps):
        return [replace(graph, is_path=True)]  # said by nobody: one follows the other
    by_ix = {step.step_ix: step for step in steps}
    followed = [after.parent_ix == step.step_ix for step, after in pairwise(steps)]
    paths = []
    for end in [step for step, is_followed in zip(steps, [*followed, False], strict=True) if not is_followed]:
        path, at = [end], end.parent_ix
        while at is not None and at in by_ix:
            path.append(by_ix[at])
            at = by_ix[at].parent_ix
        held = {step.step_ix for step in path}
        calls = tuple(call for call in graph.tool_calls if call.step_ix in held)
        paths.append(replace(graph, is_path=True, steps=tuple(reversed(path)), tool_calls=calls))
    return paths


def _in_time(graph: _Graph) -> tuple[tuple[Step, ...], tuple[ToolCall, ...], dict[int, int]]:
    """Steps and calls in the order of the times that their branches have, and where each step was moved to.

    A step's time is the earliest of its own and of those after it, so that a question goes with its answer.
    """
    nodes = graph.nodes
    order = _order(nodes)
    if order is None:
        same = {ix: ix for ix in range(len(nodes))}
        return tuple(node.step for node in nodes), tuple(call for node in nodes for call in node.calls), same
    placed = {old: new for new, old in enumerate(order)}
    moved: dict[int | None, int | None] = {None: None} | dict(placed.items())
    ordered = [(placed[ix], nodes[ix]) for ix in order]
    return (
        tuple(replace(node.step, step_ix=at, parent_ix=moved[node.step.parent_ix]) for at, node in ordered),
        tuple(
            replace(call, step_ix=at, result_step_ix=moved[call.result_step_ix])
            for at, node in ordered
            for call in node.calls
        ),
        placed,
    )


def _order(nodes: Sequence[_Node]) -> list[int] | None:
    """The steps in order of time; None where they stay as they are."""
    if all(node.step.parent_ix == (ix - 1 if ix else None) for ix, node in enumerate(nodes)):
        return None
    times = [node.step.ts for node in nodes]
    below: dict[int | None, list[int]] = {}
    for ix in range(len(nodes) - 1, -1, -1):
        own, parent = times[ix], nodes[ix].step.parent_ix
        below.setdefault(parent, []).append(ix)
        if own is None:
            return None
        if parent is not None:
            times[parent] = min(own, times[parent] or own)

    def entry(ix: int) -> tuple[datetime | None, str, int]:
        return times[ix], repr(_signature(nodes[ix].step, nodes[ix].calls)), ix

    free, order = [entry(ix) for ix in below[None]], []
    heapify(free)
    while free:
        order.append(heappop(free)[-1])
        for child in below.get(order[-1], ()):
            heappush(free, entry(child))
    return order


def filled(row: Any, other: Any) -> Any:
    """The row, with what it doesn't know (None) taken from the other one of its class; their flags add up."""
    gaps = {
        name: getattr(other, name)
        for name in row.__struct_fields__
        if getattr(row, name) is None and getattr(other, name) is not None and name not in _KEPT
    }
    flags = getattr(other, "quality_flags", None)
    if flags and row.quality_flags and flags != row.quality_flags:
        gaps["quality_flags"] = tuple(dict.fromkeys((*row.quality_flags, *flags)))
    return replace(row, **gaps) if gaps else row


def _signature(step: Step, calls: Iterable[ToolCall]) -> _Signature:
    made = tuple((call.name, call.args_raw if call.args is None else call.args) for call in calls)
    return (step.role, step.content or "", step.parts if not step.content else None, made)


def _moved(calls: Iterable[ToolCall], step_ix: int) -> list[ToolCall]:
    return [replace(call, step_ix=step_ix, result_step_ix=None) for call in calls]  # where the result is comes later


def _by_time(paths: Sequence[Fragment]) -> Sequence[Fragment]:
    """The paths in order of time where all have one, else as they stand."""
    times = [
        path.trajectory.ended_at
        or path.trajectory.started_at
        or max((step.ts for step in path.steps if step.ts is not None), default=None)
        for path in paths
    ]
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return paths
    return [paths[ix] for ix in sorted(range(len(paths)), key=known.__getitem__)]


def _head(heads: Sequence[Trajectory], steps: Sequence[Step]) -> Trajectory:
    head = heads[0]
    for later in heads[1:]:
        head = filled(later, head)
    started = min((h.started_at for h in heads if h.started_at is not None), default=None)
    ended = max((h.ended_at for h in heads if h.ended_at is not None), default=None)
    known = any(step.cost_usd is not None for step in steps)
    return replace(
        head,
        started_at=started,
        ended_at=ended,
        duration_ms=None if started is not None and ended is not None else head.duration_ms,
        cost_usd=None if known else head.cost_usd,  # else the cost of the last request would stand for all
        cost_source=None if known else head.cost_source,
        source_record_ix=heads[0].source_record_ix if heads[0].source_id == head.source_id else head.source_record_ix,
    )
