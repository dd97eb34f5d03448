"""Rows of Parquet files: every type as JSON has it, nothing rounded, dropped or merged, and damage said."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flywheel.formats import parquet_rows
from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import Record
from flywheel.records import Reject

UUID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
AT = datetime(2024, 5, 29, 13, 46, 19, 963001, tzinfo=UTC)
NANOS = 1716990379963001234


def written(columns: dict[str, pa.Array], **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    file.seek(0)
    return file


def values(array: pa.Array) -> list[Any]:
    found = list(parquet_rows.records(written({"c": array})))
    assert all(isinstance(item, Record) for item in found)
    return [item.value["c"] for item in found if isinstance(item, Record)]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
        (pa.array([Decimal("0.000000000001"), Decimal("1E+3")], pa.decimal128(18, 12)),
         [NumberText("0.000000000001"), NumberText("1000.000000000000")]),
        (pa.array([0.1, float("nan"), float("-inf")]), [0.1, NumberText("nan"), NumberText("-inf")]),
        (pa.array([NANOS, NANOS - 234, None]).cast(pa.timestamp("ns", "UTC")),
         ["2024-05-29T13:46:19.963001234+00:00", "2024-05-29T13:46:19.963001+00:00", None]),
        (pa.array([NANOS]).cast(pa.timestamp("ns")), ["2024-05-29T13:46:19.963001234+00:00"]),
        (pa.array([AT], pa.timestamp("us", "Europe/Berlin")), ["2024-05-29T13:46:19.963001+00:00"]),
        (pa.array([-1], pa.timestamp("ms")), ["1969-12-31T23:59:59.999000+00:00"]),
        (pa.array([2**62], pa.int64()).cast(pa.timestamp("us")), [2**62]),
        (pa.array([timedelta(milliseconds=1500)]), [NumberText("1.5")]),
        (pa.array([date(2024, 1, 2)]), ["2024-01-02"]),
        (pa.array([time(1, 2, 3)], pa.time64("ns")), ["01:02:03.000000000"]),
        (pa.array([b"\x00\xff"]), ["AP8="]),
        (pa.array(["a", "b", "a", None]).dictionary_encode(), ["a", "b", "a", None]),
        (pa.array([[1], None, [], [2, None]]), [[1], None, [], [2, None]]),
        (pa.array([[["a"], []], None], pa.list_(pa.list_(pa.string()))), [[["a"], []], None]),
        (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
        (pa.array([{"a": None, "b": {"c": [1]}}, None]), [{"a": None, "b": {"c": [1]}}, None]),
        (pa.array([[("z", 1), ("a", 2)], None, []], pa.map_(pa.string(), pa.int64())), [{"z": 1, "a": 2}, None, {}]),
        (pa.array([[(2, "x")]], pa.map_(pa.int64(), pa.string())), [{"2": "x"}]),
        (pa.array([[("k", [NANOS])]], pa.map_(pa.string(), pa.list_(pa.timestamp("ns")))),
         [{"k": ["2024-05-29T13:46:19.963001234+00:00"]}]),
        (pa.nulls(2), [None, None]),
        (pa.array([UUID.bytes, None], pa.uuid()), [str(UUID), None]),
    ],
)  # fmt: skip
def test_every_type_is_what_json_has_for_it(array: pa.Array, expected: list[Any]) -> None:
    found = values(array)
    assert found == expected
    json.loads(dumps(found))


def test_a_map_with_a_key_twice_keeps_both_in_their_order() -> None:
    array = pa.array([[("a", 1), ("b", 2), ("a", 3)], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    first, second = parquet_rows.records(written({"c": array}))
    assert isinstance(first, Record) and isinstance(second, Record)
    assert first.value["c"] == [{"key": "a", "value": 1}, {"key": "b", "value": 2}, {"key": "a", "value": 3}]
    assert second.value["c"] == {"a": 1}
    assert first.repairs == ("duplicate_keys",)


def test_text_that_is_no_utf8_is_mended_and_said() -> None:
    array = pa.array([b"caf\xe9", b"ok", None]).cast(pa.binary()).view(pa.string())
    found = list(parquet_rows.records(written({"c": array})))
    assert [item.value["c"] for item in found if isinstance(item, Record)] == ["caf�", "ok", None]
    assert all(item.repairs == ("invalid_utf8",) for item in found if isinstance(item, Record))


def test_an_empty_table_has_no_records_and_a_wide_one_all_its_columns() -> None:
    assert list(parquet_rows.records(written({"c": pa.array([], pa.string())}))) == []
    wide = {f"c{n}": pa.array([n]) for n in range(3000)}
    (record,) = parquet_rows.records(written(wide))
    assert isinstance(record, Record) and record.value == {f"c{n}": n for n in range(3000)}


def test_large_rows_are_held_a_few_at_a_time() -> None:
    text = pa.array(["x" * (1 << 20) + str(n) for n in range(24)])
    parquet = pq.ParquetFile(written({"c": text}, compression="none", use_dictionary=False))
    assert parquet_rows._rows_at_a_time(parquet.metadata) <= 8
    assert len(list(parquet_rows.records(written({"c": text})))) == 24


@pytest.mark.parametrize("damage", ["cut", "page", "footer"])
def test_damage_is_one_refusal_after_the_rows_that_could_be_read(damage: str) -> None:
    file = written({"c": pa.array([f"text {n}" * 20 for n in range(5000)])}, row_group_size=1000, compression="snappy")
    data = bytearray(file.getvalue())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "page":
        data[len(data) // 2 : len(data) // 2 + 2000] = b"\xff" * 2000
    else:
        data[-8:-4] = b"\xff" * 4
    *rows, last = parquet_rows.records(io.BytesIO(bytes(data)))
    assert isinstance(last, Reject) and last.code == "damaged_parquet" and str(len(rows)) in last.message
    assert all(isinstance(row, Record) for row in rows)
