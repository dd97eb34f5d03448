"""Trajectories that can be made only when all their fragments are there: spans and log events of one trace.

A tracing reader yields what it finds of a trace as partial fragments with `spans` and no steps, record by record, so
that it holds one record at a time and traces and logs may come from different objects. When the assembler has joined
all fragments of a key it calls `finish`, which makes the trajectories out of them: a pure function of the spans,
whatever the order they came in.

Not covered: when a trace is complete; with spans that arrive in a later batch it is finished again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flywheel.formats import harbor_job, langfuse_spans, langsmith_spans, openhands
from flywheel.formats.traces import finish_trace
from flywheel.records import Fragment


def _langfuse(fragment: Fragment) -> Iterable[Fragment]:
    return map(langfuse_spans.completed, finish_trace(fragment))


def _langsmith(fragment: Fragment) -> Iterable[Fragment]:
    return map(langsmith_spans.completed, finish_trace(langsmith_spans.merged(fragment)))


FINISHERS: Mapping[str, Callable[[Fragment], Iterable[Fragment]]] = {
    "harbor_job": harbor_job.whole,
    "openhands": openhands.whole,
    "langfuse": _langfuse,
    "langsmith": _langsmith,
    "otlp": finish_trace,
    "openinference": finish_trace,
    "mlflow": finish_trace,
    "trail": finish_trace,
}
"""By `Trajectory.format`."""


def finish(fragment: Fragment) -> Iterable[Fragment]:
    """The trajectories of a joined fragment: itself, unless its format is made from spans.

    A trace gives one fragment with the key it had, and one with a key of its own for each subagent.
    """
    finisher = FINISHERS.get(fragment.trajectory.format)
    return (fragment,) if finisher is None else finisher(fragment)
