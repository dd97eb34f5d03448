"""Feedback that arrives apart from its trajectory: joined by the views, in whatever order the two are published."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from lake_rows import rows_of

from flywheel.records import Outcome, Span
from flywheel.store import lake_erase
from flywheel.store.lake import Lake
from flywheel.store.tables import TABLES

TRACE, CALL, SPAN = "trace-0123456789abcdef", "chatcmpl-0123456789", "00f067aa0ba902b7"


def trace(name: str, **head: Any) -> dict[str, list[Any]]:
    """One trajectory with ids of its own at every level; its first outcome is its own."""
    rows = rows_of(name)
    rows["trajectory"] = [replace(rows["trajectory"][0], **head)]
    rows["step"] = [
        replace(step, native_id=f"message-{name}-{step.step_ix}", llm_call_id=f"{CALL}-{name}") for step in rows["step"]
    ]
    rows["span"] = [
        Span(trace_id=f"t-{name}", span_id=f"{SPAN}-{name}", name="root", trajectory_id=name),
        Span(trace_id=f"t-{name}", span_id=f"in-{name}", parent_span_id=SPAN, name="inner", trajectory_id=name),
    ]
    return rows


def late(about: str | None, polarity: int | None = -1, name: str = "thumbs", **columns: Any) -> Outcome:
    return Outcome(
        outcome_id=f"late {about} {name} {polarity} {sorted(columns)}",
        native_target_id=about,
        name=name,
        polarity=polarity,
        value_type="null",
        source_kind="human_user",
        **columns,
    )


def headline(lake: Lake, name: str) -> tuple[Any, ...]:
    (row,) = lake.query(f"SELECT success, success_source, reward FROM trajectory WHERE trajectory_id = '{name}'")
    return tuple(row.values())


@pytest.mark.parametrize("first", ["trace", "feedback"])
@pytest.mark.parametrize(
    ("about", "step_ix", "kind"),
    [
        ("a", None, "trajectory"),
        ("native-a", None, "trajectory"),
        (TRACE, None, "trajectory"),
        ("message-a-1", 1, "step"),
        (f"{CALL}-a", 0, "step"),
        (f"{SPAN}-a", None, "trajectory"),
        ("talk", None, "trajectory"),
    ],
)
def test_feedback_finds_its_trajectory_by_any_of_its_ids(
    lake: Lake, first: str, about: str, step_ix: int | None, kind: str
) -> None:
    traces = trace("a", native_id="native-a", trace_id=TRACE, conversation_id="talk")
    other = trace("b", native_id="native-b", trace_id="other")
    batches = {
        "trace": {table: rows + other[table] for table, rows in traces.items()},
        "feedback": {"outcome": [late(about)]},
    }
    for name in (first, *(set(batches) - {first})):
        lake.publish(name, batches[name])
    found = lake.query("SELECT trajectory_id, step_ix, target_kind FROM outcome WHERE native_target_id IS NOT NULL")
    assert found == [{"trajectory_id": "a", "step_ix": step_ix, "target_kind": kind}]
    assert lake.query("SELECT trajectory_id FROM outcome_all WHERE native_target_id IS NOT NULL") == [
        {"trajectory_id": None}
    ]
    assert headline(lake, "a") == (False, "human_user:thumbs", None)
    assert headline(lake, "b") == (None, None, None)


def test_without_loose_outcomes_the_views_have_the_same_columns_and_types(lake: Lake) -> None:
    lake.publish("b1", trace("a"))
    with lake.connect() as con:
        before = {name: con.sql(f"DESCRIBE {name}").fetchall() for name in ("trajectory", "outcome", "late_outcome")}
        assert "late" not in con.sql("EXPLAIN FROM trajectory").fetchall()[0][1]
    lake.publish("b2", {"outcome": [late("a")]})
    with lake.connect() as con:
        assert {name: con.sql(f"DESCRIBE {name}").fetchall() for name in before} == before


def test_a_bad_one_outweighs_what_the_trajectory_says_and_a_good_one_fills_in(lake: Lake) -> None:
    for name, success in (("passed", True), ("failed", False), ("unknown", None)):
        source = None if success is None else "verifier:tests"
        lake.publish(name, trace(name, success=success, success_source=source))
    lake.publish("good", {"outcome": [late(name, 1, value_num=1.0) for name in ("passed", "failed", "unknown")]})
    assert headline(lake, "passed") == (True, "verifier:tests", 1.0)
    assert headline(lake, "failed") == (False, "verifier:tests", 1.0)
    assert headline(lake, "unknown") == (True, "human_user:thumbs", 1.0)
    lake.publish("bad", {"outcome": [late(name, -1, "review") for name in ("passed", "unknown")]})
    assert headline(lake, "passed") == (False, "human_user:review", 1.0)
    assert headline(lake, "unknown") == (False, "human_user:review", 1.0)
    assert lake.query("SELECT DISTINCT success FROM trajectory_all WHERE trajectory_id = 'unknown'") == [
        {"success": None}
    ]
    assert lake.query("SELECT success FROM trajectory WHERE trajectory_id = 'unknown'", snapshot=None)


def test_an_earlier_snapshot_does_not_know_what_came_later(lake: Lake) -> None:
    before = lake.publish("b1", trace("a"))
    lake.publish("b2", {"outcome": [late("a")]})
    assert lake.query("SELECT success FROM trajectory", snapshot=before.snapshot_id) == [{"success": None}]
    assert lake.query("SELECT success FROM trajectory") == [{"success": False}]


def test_an_id_that_several_have_joins_nothing(lake: Lake) -> None:
    for name in ("a", "b"):
        lake.publish(name, trace(name, session_id="session", native_id="0"))
    lake.publish("late", {"outcome": [late("0"), late(None, session_id="session"), late("nobody")]})
    assert lake.query("SELECT DISTINCT trajectory_id FROM outcome WHERE name = 'thumbs'") == [{"trajectory_id": None}]
    assert headline(lake, "a") == headline(lake, "b") == (None, None, None)


def test_a_session_of_one_is_its_trajectory_and_a_named_target_never_falls_back_to_its_session(lake: Lake) -> None:
    lake.publish("a", trace("a", session_id="session"))
    lake.publish("late", {"outcome": [late("trace that is still to come", session_id="session")]})
    assert headline(lake, "a") == (None, None, None)
    lake.publish("more", {"outcome": [late(None, session_id="session")]})
    assert headline(lake, "a") == (False, "human_user:thumbs", None)


def test_the_trace_and_not_its_subagents_is_meant_by_its_trace_id(lake: Lake) -> None:
    lake.publish("a", trace("a", trace_id=TRACE))
    lake.publish("sub", trace("sub", trace_id=TRACE, parent_trajectory_id="a"))
    lake.publish("late", {"outcome": [late(TRACE)]})
    assert headline(lake, "a")[0] is False and headline(lake, "sub")[0] is None


def test_a_bare_number_names_no_message_and_an_inner_span_decides_nothing(lake: Lake) -> None:
    rows = trace("a")
    rows["step"] = [replace(step, native_id=str(step.step_ix)) for step in rows["step"]]
    lake.publish("a", rows)
    lake.publish("late", {"outcome": [late("1"), late("in-a")]})
    found = lake.query(
        "SELECT native_target_id, trajectory_id, target_kind FROM outcome WHERE name = 'thumbs' ORDER BY 1"
    )
    assert [tuple(row.values()) for row in found] == [("1", None, "trajectory"), ("in-a", "a", "span")]
    assert headline(lake, "a")[0] is None


def test_feedback_about_a_message_follows_it_into_the_newest_revision(lake: Lake) -> None:
    lake.publish("b1", trace("a"))
    lake.publish("b2", {"outcome": [late("message-a-4")]})
    assert headline(lake, "a")[0] is None
    longer = rows_of("a", content="v2", steps=5)
    longer["step"] = [replace(step, native_id=f"message-a-{step.step_ix}") for step in longer["step"]]
    lake.publish("b3", longer)
    assert lake.query("SELECT step_ix FROM outcome WHERE name = 'thumbs'") == [{"step_ix": 4}]
    assert headline(lake, "a")[0] is False


def test_of_several_bad_ones_the_earliest_is_named(lake: Lake) -> None:
    lake.publish("a", trace("a"))
    times = {"second": datetime(2024, 1, 2, tzinfo=UTC), "first": datetime(2024, 1, 1, tzinfo=UTC), "undated": None}
    lake.publish("late", {"outcome": [late("a", name=name, created_at=at) for name, at in times.items()]})
    assert headline(lake, "a") == (False, "human_user:first", None)


def test_a_table_without_statistics_is_searched(lake: Lake) -> None:
    folder = lake.location.table("outcome")
    DeltaTable.create(folder, TABLES["outcome"].schema, configuration={"delta.dataSkippingStatsColumns": "batch_id"})
    lake.publish("a", trace("a"))
    lake.publish("late", {"outcome": [late("a")]})
    assert headline(lake, "a")[0] is False


def test_erasing_a_user_takes_the_feedback_about_their_messages_too(lake: Lake) -> None:
    lake.publish("a", trace("a", user_id="user-0123456789abcdef"))
    lake.publish("b", trace("b"))
    lake.publish("late", {"outcome": [late("message-a-1", explanation="my address is wrong"), late("message-b-1")]})
    found = lake_erase.find(lake, "user-0123456789abcdef", datetime(2026, 1, 1, tzinfo=UTC))
    lake_erase.begin(lake, found)
    lake_erase.erase(lake, found)
    lake_erase.finish(lake)
    assert lake.query("SELECT native_target_id, trajectory_id FROM outcome WHERE name = 'thumbs'") == [
        {"native_target_id": "message-b-1", "trajectory_id": "b"}
    ]
