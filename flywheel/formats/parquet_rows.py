"""Rows of a Parquet file as records, in memory bounded by one small batch of rows.

Values keep what they are: decimals and 64-bit integers as they stand, timestamps as ISO text in UTC (nanoseconds as
their integer), bytes as base64, maps as objects. A struct keeps its NULL members, which Parquet can't tell from members
that were absent: readers of such files drop them where their format does.

Not covered: which columns a format has.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import Record
from flywheel.records import Reject

ROWS = 64  # held at a time: rows of whole conversations are large


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a row; one Reject of the rest where the file can't be read on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ix = 0
    try:
        parquet = pq.ParquetFile(file)
        for batch in parquet.iter_batches(batch_size=ROWS):
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                value = {key: _plain(item) for key, item in row.items()}
                yield Record(ix=ix, offset=0, length=0, value=value, raw=dumps(value).encode("utf-8", "surrogatepass"))
                ix += 1
    except (pa.ArrowException, OSError) as error:
        size = file.seek(0, 2)
        message = f"the Parquet file can't be read after {ix} rows: {type(error).__name__}"
        yield Reject(record_ix=ix, byte_offset=0, byte_len=size, code="damaged_parquet", message=message)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return NumberText(format(value, "f"))
    if isinstance(value, float):
        return value if value - value == 0 else NumberText(repr(value))
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value
