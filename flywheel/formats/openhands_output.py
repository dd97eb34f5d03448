"""A run of an OpenHands evaluation (`output.jsonl`): what it says beside the events.

    {instance_id, instruction, history, metrics, test_result | git_patch, error, ...}      evaluations
    {issue, issue_type, instruction, history, metrics, success, result_explanation, ...}   the issue resolver

`resolved` of a report is a verifier's word; `success` of the resolver is a model's judgement of its own patch.

Not covered: the events (`openhands_v0.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flywheel.formats.feedback import headline
from flywheel.formats.reader import as_dict, as_list, as_text, first_text
from flywheel.formats.scores import scored
from flywheel.formats.session import Session, text_of
from flywheel.formats.usage import count, money

_ENDS = (
    ("maximum iteration", "max_turns"),
    ("maximum budget", "max_turns"),
    ("AgentStuckInLoop", "agent_error"),
    ("stuck in a loop", "agent_error"),
    ("timed out", "timeout"),
    ("Timeout", "timeout"),
    ("ContextWindow", "context_overflow"),
    ("LLM", "model_error"),
)
_READ = {"history", "instance_id", "success", "result_explanation", "error"}


def is_output(value: Mapping[str, Any]) -> bool:
    """Whether a record is a run of an evaluation."""
    own = {"git_patch", "test_result", "instruction", "metrics"} & value.keys()
    return isinstance(value.get("history"), list) and len(own) >= 2


def describe(session: Session, value: Mapping[str, Any]) -> None:
    """Take what a run says of itself into the session."""
    metadata, metrics = as_dict(value.get("metadata")), as_dict(value.get("metrics"))
    usage, config = (
        as_dict(metrics.get("accumulated_token_usage")),
        as_dict(metadata.get("llm_config")) or as_dict(metadata.get("llm")),
    )
    instance, error = as_text(value.get("instance_id")), text_of(value.get("error")) or None
    cost = money(metrics.get("accumulated_cost"))
    session.native_id = instance or session.native_id
    session.columns |= {
        "session_id": None,
        "task_id": instance,
        "model": first_text(config, "model") or first_text(metrics, "model_name"),
        "agent_version": first_text(metadata, "agent_version", "openhands_version"),
        "input_tokens": count(usage.get("prompt_tokens")),
        "cache_read_tokens": count(usage.get("cache_read_tokens")),
        "cache_write_tokens": count(usage.get("cache_write_tokens")),
        "output_tokens": count(usage.get("completion_tokens")),
        "cost_usd": cost,
        "cost_source": None if cost is None else "recorded",
    }
    if error is not None:
        ends = (reason for words, reason in _ENDS if words in error)
        session.fail("error", error, next(ends, "agent_error"))
    session.extra |= {key: item for key, item in value.items() if key not in _READ}
    _outcomes(session, value)


def _outcomes(session: Session, value: Mapping[str, Any]) -> None:
    report = as_dict(value.get("report")) or as_dict(as_dict(value.get("test_result")).get("report"))
    resolved = report.get("resolved", as_dict(value.get("test_result")).get("resolved"))
    this = session.trajectory_id
    if isinstance(resolved, bool):
        session.outcomes.append(scored(this, "resolved", resolved, polarity=1 if resolved else -1))
    success = value.get("success")
    if isinstance(success, bool) or isinstance(value.get("result_explanation"), str):
        polarity = None if not isinstance(success, bool) else 1 if success else -1
        session.outcomes.append(
            scored(
                this,
                "success",
                success,
                polarity=polarity,
                source_kind="llm_judge",
                explanation=text_of(value.get("result_explanation")),
            )
        )
    for name, result in as_dict(value.get("test_result")).items():
        if isinstance(result, bool) and name not in ("resolved",):
            session.outcomes.append(scored(this, f"test_result.{name}", result, polarity=None))
    if as_list(session.outcomes):
        said = headline(session.outcomes)
        session.columns |= {"success": said.success, "reward": said.reward, "success_source": said.source}
