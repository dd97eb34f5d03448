"""Feedback that came apart from its trajectory, joined to it: the views `late_outcome`, `outcome` and `trajectory`.

A loose outcome names what it is about by an id of the source's own (`native_target_id`, else `session_id`). It belongs
to the one trajectory that the best kind of match gives: its id, native id or trace id; then the message, model call or
span of that id; then conversation and session. Ids that several trajectories have (a session of three) join nothing,
since any choice would be a guess: such rows stay in `outcome` as they came, without `trajectory_id`.

In `trajectory` the headline (success, its source, reward) follows `formats.feedback.headline`: a bad outcome outweighs
what the trajectory says of itself, a good one fills in where it says nothing. `trajectory_all` and `outcome_all` are
rows as they were published. Where no file of the table holds a loose outcome, by the statistics in Delta's log, the
views don't even mention the join.

Not covered: outcomes about a span that made no message (target `span`) count for nobody's success.
"""

from __future__ import annotations

from collections.abc import Iterator

LOOSE_BY = "trajectory_id"
"""The column of `outcome` that is NULL in a loose one."""

# A bare number is a position in some file, not the name of a message.
_NAME = "NOT (length(id) < 10 AND regexp_full_match(id, '[0-9]+'))"

_LATE = f"""
    WITH loose AS ({{loose}}),
    a AS (SELECT outcome_id, coalesce(native_target_id, session_id) AS id FROM loose),
    head AS (
        SELECT trajectory_id, unnest([0, 1, 2, 5, 6]) AS tier,
               unnest([trajectory_id, native_id, CASE WHEN parent_trajectory_id IS NULL THEN trace_id END,
                       conversation_id, session_id]) AS id
        FROM trajectory_all ANTI JOIN superseded USING (trajectory_id, batch_id)),
    near AS MATERIALIZED (SELECT a.outcome_id, h.trajectory_id, h.tier FROM head h JOIN a ON h.id = a.id),
    far AS MATERIALIZED (
        SELECT * FROM a WHERE {_NAME} AND outcome_id NOT IN (SELECT outcome_id FROM near WHERE tier < 3)),
    message AS (SELECT trajectory_id, step_ix, unnest([native_id, span_id, llm_call_id]) AS id FROM step),
    found AS (
        SELECT outcome_id, trajectory_id, NULL::INTEGER AS step_ix, 'trajectory' AS kind, tier FROM near
        UNION ALL SELECT a.outcome_id, m.trajectory_id, m.step_ix, 'step', 3 FROM message m JOIN far a ON m.id = a.id
        UNION ALL SELECT a.outcome_id, s.trajectory_id, NULL,
                         CASE WHEN s.parent_span_id IS NULL THEN 'trajectory' ELSE 'span' END, 4
        FROM span s JOIN far a ON s.span_id = a.id WHERE s.trajectory_id IS NOT NULL),
    joined AS (
        SELECT outcome_id, min(trajectory_id) AS trajectory_id, min(step_ix) AS step_ix, max(kind) AS kind
        FROM (SELECT * FROM found QUALIFY rank() OVER (PARTITION BY outcome_id ORDER BY tier) = 1)
        GROUP BY outcome_id HAVING count(DISTINCT trajectory_id) = 1)
    SELECT l.* REPLACE (
        j.trajectory_id AS trajectory_id,
        coalesce(l.step_ix, j.step_ix) AS step_ix,
        CASE WHEN l.target_kind = 'tool_call' THEN l.target_kind ELSE coalesce(j.kind, l.target_kind) END
            AS target_kind)
    FROM loose l LEFT JOIN joined j USING (outcome_id)"""

_OUTCOME = """
    SELECT * FROM outcome_all WHERE trajectory_id IS NOT NULL
    UNION ALL SELECT * FROM late_outcome"""

# Of several the earliest bad one is named, else the earliest good one.
_TRAJECTORY = """
    WITH late AS (
        SELECT trajectory_id,
               CASE min(polarity) FILTER (WHERE polarity <> 0) WHEN -1 THEN false WHEN 1 THEN true END AS success,
               arg_min(source_kind || ':' || name,
                       (polarity, coalesce(created_at, '2100-01-01'::TIMESTAMPTZ), outcome_id))
                   FILTER (WHERE polarity <> 0) AS source,
               CASE WHEN count(value_num) = 1 THEN max(value_num) END AS reward
        FROM late_outcome WHERE trajectory_id IS NOT NULL AND target_kind IN ('trajectory', 'step')
        GROUP BY trajectory_id)
    SELECT t.* REPLACE (
        CASE WHEN late.success = false THEN false ELSE coalesce(t.success, late.success) END AS success,
        coalesce(t.reward, late.reward) AS reward,
        CASE WHEN t.success IS NULL OR (t.success AND late.success = false)
             THEN coalesce(late.source, t.success_source) ELSE t.success_source END AS success_source)
    FROM ({newest}) t
    LEFT JOIN late ON late.trajectory_id = t.trajectory_id"""


def late_views(loose: str | None, is_revised: bool) -> Iterator[tuple[str, str]]:
    """(name, SELECT) of the three views, in order. `loose` selects the loose outcomes; None: there are none."""
    newest = "SELECT * FROM trajectory_all"
    if is_revised:
        newest += " ANTI JOIN superseded USING (trajectory_id, batch_id)"
    if loose is None:
        yield "late_outcome", "SELECT * FROM outcome_all WHERE false"
        yield "outcome", "SELECT * FROM outcome_all"
        yield "trajectory", newest
        return
    yield "late_outcome", _LATE.format(loose=loose)
    yield "outcome", _OUTCOME
    yield "trajectory", _TRAJECTORY.format(newest=newest)
