"""Scores of a finished trace put where they belong: on the step its span made, on the trajectory, or on a span.

Tools score runs and observations, which are spans. A score of the outermost span is about the trajectory; one of a span
that made no step stays the span's, and counts for nobody's success.

Not covered: scores that come apart from their trace (the lake's views join them by the same rule).
"""

from __future__ import annotations

from dataclasses import replace

from flywheel.formats import feedback
from flywheel.records import Fragment, Outcome


def with_scores(fragment: Fragment) -> Fragment:
    """The fragment with its outcomes placed and its headline made from those that count."""
    outcomes = tuple(_placed(outcome, fragment) for outcome in fragment.outcomes)
    summary = feedback.headline([o for o in outcomes if o.target_kind in ("trajectory", "step")])
    head = replace(fragment.trajectory, success=summary.success, reward=summary.reward, success_source=summary.source)
    return replace(fragment, trajectory=head, outcomes=outcomes)


def _placed(outcome: Outcome, fragment: Fragment) -> Outcome:
    if outcome.target_kind != "step" or outcome.step_ix is not None or outcome.native_target_id is None:
        return outcome
    target = outcome.native_target_id
    step = next((s for s in fragment.steps if s.span_id == target and (s.sampled or s.role == "tool")), None)
    if step is not None:
        return replace(outcome, step_ix=step.step_ix)
    row = next((row for row in fragment.spans if row.span_id == target), None)
    is_outermost = row is not None and row.parent_span_id is None
    return replace(outcome, target_kind="trajectory" if is_outermost else "span")
