"""Rows of a Parquet file as records, in memory bounded by a batch of a few megabytes (one row at least).

Values keep what they are: decimals and 64-bit integers as they stand, times as ISO text (timestamps in UTC, to the
nanosecond where they have any), durations in seconds, bytes as base64, uuids as text. A map is an object in its own
order; one with a key twice, or with keys that are no scalars, is the list of its `{key, value}`. Dictionaries are their
values.
A struct keeps its NULL members, which Parquet can't tell from members that were absent: readers of such files drop them
where their format does.

Not covered: which columns a format has, encrypted files.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import Record
from flywheel.records import Reject

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 8 << 20  # of uncompressed rows that are held at a time
MOST_ROWS = 1024
_READ = 1 << 20  # a column is read from the file in pieces of this size
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a row; one Reject of the rest where the file can't be read on. Never raises on data."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ix = 0
    try:
        parquet = pq.ParquetFile(file, buffer_size=_READ, pre_buffer=False)
        for batch in parquet.iter_batches(batch_size=_rows_at_a_time(parquet.metadata)):
            repairs: set[str] = set()
            columns = [_values(column, repairs) for column in batch.columns]
            for row in zip(*columns, strict=True) if columns else ():
                value = dict(zip(batch.schema.names, row, strict=True))
                raw = dumps(value).encode("utf-8", "surrogatepass")
                yield Record(ix=ix, offset=0, length=0, value=value, repairs=tuple(sorted(repairs)), raw=raw)
                ix += 1
    except (pa.ArrowException, OSError):
        size = file.seek(0, 2)
        what = "rows after it are damaged" if ix else "it is damaged, or was cut off before its end was written"
        message = f"the Parquet file can't be read after {ix} rows: {what}; export it again"
        yield Reject(record_ix=ix, byte_offset=0, byte_len=size, code="damaged_parquet", message=message)


def _rows_at_a_time(metadata: Any) -> int:
    """As many rows as make a batch where they are largest."""
    groups = (metadata.row_group(n) for n in range(metadata.num_row_groups))
    widest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
    return int(min(max(BATCH_BYTES / max(widest, 1), 1), MOST_ROWS))


def _values(array: pa.Array, repairs: set[str]) -> list[Any]:
    """The values of an array as JSON has them, what had to be mended noted in `repairs`."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = array.type
    if isinstance(kind, pa.UuidType):
        return [None if value is None else str(value) for value in array.to_pylist()]
    if isinstance(kind, pa.BaseExtensionType):
        return _values(array.storage, repairs)
    if kinds.is_dictionary(kind):
        return _values(array.dictionary_decode(), repairs)
    if kinds.is_run_end_encoded(kind):
        return _values(pa.compute.run_end_decode(array), repairs)
    if kinds.is_map(kind):
        return _maps(array, repairs)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return _lists(array, repairs)
    if kinds.is_struct(kind):
        names = [kind.field(n).name for n in range(kind.num_fields)]
        members = [_values(member, repairs) for member in array.flatten()]  # NULL structs have NULL members
        rows = [dict(zip(names, row, strict=True)) for row in zip(*members, strict=True)] if names else []
        return [row if there else None for row, there in zip(rows or [{}] * len(array), _there(array), strict=True)]
    if kinds.is_timestamp(kind):
        return _mapped(array.cast(pa.int64()), lambda value: _timestamp(value, _PER_SECOND[kind.unit]))
    if kinds.is_duration(kind):
        return _mapped(array.cast(pa.int64()), lambda value: NumberText(str(Decimal(value) / _PER_SECOND[kind.unit])))
    if kinds.is_time(kind):
        return [None if text is None else text for text in array.cast(pa.string()).to_pylist()]
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return _texts(array, repairs)
    return [_scalar(value) for value in array.to_pylist()]


def _there(array: pa.Array) -> list[bool]:
    there: list[bool] = array.is_valid().to_pylist()
    return there


def _mapped(array: pa.Array, change: Callable[[int], Any]) -> list[Any]:
    return [None if value is None else change(value) for value in array.to_pylist()]


def _lists(array: pa.Array, repairs: set[str]) -> list[Any]:
    """Lists of any kind, by the lengths of each: slices and NULLs may leave gaps between their values."""
    import pyarrow.compute as pc

    items = iter(_values(array.flatten(), repairs))  # those of NULL lists left out
    lengths = pc.list_value_length(array).to_pylist()
    return [None if length is None else [next(items) for _ in range(length)] for length in lengths]


def _maps(array: pa.Array, repairs: set[str]) -> list[Any]:
    import pyarrow as pa

    entries = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
    return [None if pairs is None else _object(pairs, repairs) for pairs in _lists(array.cast(entries), repairs)]


def _object(pairs: list[dict[str, Any]], repairs: set[str]) -> Any:
    """A map as an object, where that loses nothing."""
    keys = [pair["key"] for pair in pairs]
    names = [key if isinstance(key, str) else dumps(key) for key in keys]
    if len(set(names)) == len(names) and not any(isinstance(key, (dict, list)) for key in keys):
        return {name: pair["value"] for name, pair in zip(names, pairs, strict=True)}
    repairs.add("duplicate_keys")
    return pairs


def _texts(array: pa.Array, repairs: set[str]) -> list[Any]:
    """Texts; bytes that are no UTF-8, which Parquet doesn't look at, become U+FFFD."""
    import pyarrow as pa

    try:
        texts: list[Any] = array.to_pylist()
    except UnicodeDecodeError:
        repairs.add("invalid_utf8")
        data = array.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "replace") for value in data]
    return texts


def _timestamp(value: int, per_second: int) -> Any:
    """ISO text in UTC; nine digits where there are nanoseconds; the number itself beyond what a datetime holds."""
    seconds, rest = divmod(value, per_second)
    try:
        at = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return value
    nanos = rest * (10**9 // per_second)
    if nanos % 1000 == 0:
        return (at + timedelta(microseconds=nanos // 1000)).isoformat()
    return f"{at.replace(tzinfo=None).isoformat()}.{nanos:09d}+00:00"


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else NumberText(repr(value))
    if isinstance(value, Decimal):
        return NumberText(format(value, "f"))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return list(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
