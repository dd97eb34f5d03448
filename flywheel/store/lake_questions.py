"""What data scientists ask a lake of traces first, as views: each is a SELECT over the tables' own views.

Not covered: the tables themselves and what their views hide (`lake_views.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

# What makes two error messages the same one: numbers, ids, quoted words and paths differ from case to case.
_PLAIN_ERROR = """
    trim(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
        left({text}, 400),
        '[0-9a-fA-F]{{8}}-[0-9a-fA-F-]{{27}}|0x[0-9a-fA-F]+|\\b[0-9a-fA-F]{{12,}}\\b', '<id>', 'g'),
        '(?:/[\\w.+-]+){{2,}}/?', '<path>', 'g'),
        '\\b\\w*\\d[\\w.:,-]*', '<n>', 'g'),
        '\\s+', ' ', 'g'))"""

QUESTIONS: Mapping[str, str] = {
    # The tool is the cluster's; without one, that of the failing (else first) call made or answered at the step.
    "failures_by_tool": """
        WITH calls AS (
            SELECT trajectory_id, step_ix, call_ix, is_error, name FROM tool_call
            UNION ALL SELECT trajectory_id, result_step_ix, call_ix, is_error, name FROM tool_call
            WHERE result_step_ix IS NOT NULL),
        named AS (
            SELECT trajectory_id, step_ix, arg_min(name, (is_error IS NOT true, call_ix)) AS name
            FROM calls GROUP BY trajectory_id, step_ix)
        SELECT f.code, coalesce(c.tool, n.name) AS tool, count(*) AS n,
               count(DISTINCT f.trajectory_id) AS trajectories
        FROM failure f LEFT JOIN cluster c USING (cluster_id)
        LEFT JOIN named n ON n.trajectory_id = f.trajectory_id AND n.step_ix = f.step_ix
        GROUP BY ALL ORDER BY n DESC, code, tool""",
    # One row a day, model and code; a trace without a time is of day NULL.
    "failures_by_model": """
        SELECT date_trunc('day', t.started_at)::DATE AS day, t.model, f.code, f.owner, count(*) AS n,
               count(DISTINCT f.trajectory_id) AS trajectories
        FROM failure f JOIN trajectory t USING (trajectory_id)
        GROUP BY ALL ORDER BY day, n DESC, code""",
    # Traces of applications, without our own rollouts.
    "online": "SELECT * FROM trajectory WHERE format <> 'rollout'",
    # Pass rate and failures a day and model. `unknown` had no outcome and counts for neither.
    "daily": """
        SELECT date_trunc('day', started_at)::DATE AS day, model, count(*) AS traces,
               count(*) FILTER (WHERE success) AS passed, count(*) FILTER (WHERE NOT success) AS failed,
               count(*) FILTER (WHERE success IS NULL) AS unknown, avg(success::INT) AS pass_rate
        FROM online GROUP BY ALL ORDER BY day, model""",
    # What tools answered when they failed, alike messages together.
    "tool_errors": f"""
        SELECT name AS tool, {_PLAIN_ERROR.format(text="result_text")} AS message, count(*) AS n,
               count(DISTINCT trajectory_id) AS trajectories, min(left(result_text, 400)) AS example
        FROM tool_call WHERE is_error GROUP BY ALL ORDER BY n DESC, tool, message""",
    # From what came in to what is served, counted in online traces.
    "funnel": """
        WITH labelled AS (SELECT DISTINCT trajectory_id FROM failure),
        learnt AS (
            SELECT DISTINCT unnest(parents) AS trajectory_id, curriculum_id FROM curriculum_row WHERE kept),
        trained AS (SELECT DISTINCT l.trajectory_id FROM learnt l JOIN run USING (curriculum_id)),
        shipped AS (
            SELECT DISTINCT l.trajectory_id FROM learnt l JOIN run r USING (curriculum_id)
            JOIN policy_version v USING (run_id))
        SELECT stage, n FROM (
            SELECT 1 AS place, 'traces' AS stage, count(*) AS n FROM online
            UNION ALL SELECT 2, 'outcome known', count(*) FILTER (WHERE success IS NOT NULL) FROM online
            UNION ALL SELECT 3, 'failed', count(*) FILTER (WHERE NOT success) FROM online
            UNION ALL SELECT 4, 'labelled', count(*) FROM online SEMI JOIN labelled USING (trajectory_id)
            UNION ALL SELECT 5, 'with a task', count(*) FROM online SEMI JOIN labelled USING (trajectory_id)
                WHERE task_id IS NOT NULL
            UNION ALL SELECT 6, 'in a curriculum', count(*) FROM online SEMI JOIN learnt USING (trajectory_id)
            UNION ALL SELECT 7, 'trained on', count(*) FROM online SEMI JOIN trained USING (trajectory_id)
            UNION ALL SELECT 8, 'in a version', count(*) FROM online SEMI JOIN shipped USING (trajectory_id))
        ORDER BY place""",
    # What a success costs: all tokens and dollars of a model's traces over its successes.
    "cost": """
        SELECT model, count(*) AS traces, count(*) FILTER (WHERE success) AS passed,
               avg(input_tokens + output_tokens) FILTER (WHERE success) AS tokens_if_passed,
               avg(input_tokens + output_tokens) FILTER (WHERE NOT success) AS tokens_if_failed,
               sum(input_tokens + output_tokens) / nullif(count(*) FILTER (WHERE success), 0) AS tokens_per_success,
               sum(cost_usd) / nullif(count(*) FILTER (WHERE success AND cost_usd IS NOT NULL), 0) AS usd_per_success
        FROM online GROUP BY model ORDER BY traces DESC, model""",
    # The same call with the same arguments again and again without another one between.
    "loops": """
        WITH ordered AS (
            SELECT trajectory_id, step_ix, name, coalesce(args, args_raw) AS args,
                   row_number() OVER (PARTITION BY trajectory_id ORDER BY step_ix, call_ix)
                   - row_number() OVER (
                       PARTITION BY trajectory_id, name, coalesce(args, args_raw) ORDER BY step_ix, call_ix) AS stretch
            FROM tool_call)
        SELECT trajectory_id, name AS tool, count(*) AS repeats, min(step_ix) AS from_step, max(step_ix) AS to_step,
               left(args, 200) AS args
        FROM ordered GROUP BY trajectory_id, name, args, stretch HAVING count(*) > 1
        ORDER BY repeats DESC, trajectory_id, from_step""",
}
