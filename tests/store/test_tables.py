"""Records to Arrow and back: every column of schema.sql, exact values, hostile text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flywheel.errors import LakeError
from flywheel.ledger import CurriculumRow, Failure
from flywheel.records import Blob, Outcome, Step, Trajectory
from flywheel.store.tables import TABLES, from_arrow, to_arrow

STEP = Step(trajectory_id="t", step_ix=0, role="assistant", content_state="present")
TRAJECTORY = Trajectory(
    trajectory_id="t",
    content_sha256="c",
    source_id="s",
    source_record_ix=0,
    format="f",
    n_steps=1,
    content_complete=True,
)
FULL_STEP = replace(
    STEP,
    content="naïve 😀",
    parts='[{"type":"text"}]',
    ts=datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
    cost_usd=Decimal("0.000123456"),
    token_ids=(1, 2**31 - 1),
    token_mask=(True, False),
    logprobs=(-0.5, -1.25),
    quality_flags=(),
    sampled=False,
    input_tokens=2**40,
)
ROWS = {
    "step": [STEP, FULL_STEP],
    "trajectory": [TRAJECTORY, replace(TRAJECTORY, models=("a", "b"), reward=0.1, success=False, metadata="{}")],
    "outcome": [Outcome(outcome_id="o", name="n", value_type="null", source_kind="system", polarity=-1)],
    "blob": [Blob(sha256="b", data=b"\x00\xff"), Blob(sha256="c")],
    "failure": [
        Failure(failure_id="f", trajectory_id="t", code="c", owner="agent", detector="d", detector_version="1")
    ],
}


@pytest.mark.parametrize("table", ROWS)
def test_rows_come_back_equal_through_parquet(tmp_path: Path, table: str) -> None:
    pq.write_table(to_arrow(table, ROWS[table]), tmp_path / "t.parquet")
    assert from_arrow(table, pq.read_table(tmp_path / "t.parquet")) == ROWS[table]


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_the_types_of_a_full_one(table: str) -> None:
    spec = TABLES[table]
    assert to_arrow(table, []).schema == pa.schema([spec.schema.field(name) for name in spec.columns])
    assert set(spec.keys) <= set(spec.schema.names)
    stamps = {"batch_id", "turn_id", "created_at", "code_version"} if spec.ledger else {"batch_id"}
    assert stamps <= set(spec.schema.names)


def test_columns_and_nullability_are_those_of_the_schema() -> None:
    schema = TABLES["step"].schema
    assert schema.field("cost_usd").type == pa.decimal128(18, 9)
    assert schema.field("logprobs").type.value_type == pa.float32()
    assert schema.field("parts").type == pa.large_string()  # JSON is text: never a struct, never a map
    assert schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert not schema.field("role").nullable
    assert schema.field("content").nullable
    assert TABLES["blob"].schema.field("data").nullable
    assert TABLES["verdict"].ledger and TABLES["task"].ledger and not TABLES["outcome"].ledger


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("cut \ud83d", "cut \\ud83d"),
        ("\udfff\udfff", "\\udfff\\udfff"),
        ("pair \ud83d\ude00", "pair 😀"),
        ("nul \x00 end", "nul \x00 end"),
        ("\u2028\ufeff\uffff", "\u2028\ufeff\uffff"),
    ],
)
def test_hostile_text_is_stored_readably(tmp_path: Path, text: str, stored: str) -> None:
    pq.write_table(to_arrow("step", [replace(STEP, content=text), STEP]), tmp_path / "t.parquet")
    row, plain = from_arrow("step", pq.read_table(tmp_path / "t.parquet"))
    assert row.content == stored
    assert row.quality_flags == (("lone_surrogate_escaped",) if text != stored else None)
    assert plain == STEP


def test_an_escaped_surrogate_is_the_same_json_value() -> None:
    value = {"emoji": "\ud83d"}
    (row,) = from_arrow("step", to_arrow("step", [replace(STEP, raw=json.dumps(value, ensure_ascii=False))]))
    assert json.loads(row.raw) == value


def test_surrogates_inside_lists_keep_the_flags_that_were_there() -> None:
    rows = [replace(TRAJECTORY, tags=("ok", "\udc00"), quality_flags=("cut",))]
    (row,) = from_arrow("trajectory", to_arrow("trajectory", rows))
    assert (row.tags, row.quality_flags) == (("ok", "\\udc00"), ("cut", "lone_surrogate_escaped"))


@pytest.mark.parametrize(
    ("table", "row", "sentence"),
    [
        ("step", replace(STEP, input_tokens=2**63), "table step, column input_tokens"),
        ("step", replace(STEP, step_ix=2**31), "table step, column step_ix"),
        ("step", replace(STEP, content=7), "table step, column content"),  # type: ignore[arg-type]
        ("step", replace(STEP, cost_usd=Decimal(10) ** 12), "table step, column cost_usd"),
        ("step", replace(STEP, role=None), "row 0: role is missing"),  # type: ignore[arg-type]
        ("step", TRAJECTORY, "table step holds Step records, not Trajectory"),
        ("steps", STEP, "no table 'steps'"),
    ],
)
def test_a_wrong_value_is_refused_by_table_and_column(table: str, row: Any, sentence: str) -> None:
    with pytest.raises(LakeError, match=sentence):
        to_arrow(table, [row])


def test_money_is_rounded_to_nine_digits() -> None:
    (row,) = from_arrow("step", to_arrow("step", [replace(STEP, cost_usd=Decimal("0.00000000150001"))]))
    assert row.cost_usd == Decimal("0.000000002")


def test_empty_lists_are_not_missing_lists() -> None:
    rows = [CurriculumRow(curriculum_id="c", row_id="r", kind="sft", source="real", parents=(), kept=True)]
    (row,) = from_arrow("curriculum_row", to_arrow("curriculum_row", rows))
    assert row.parents == () and row.verifier_ids is None
