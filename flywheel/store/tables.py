"""The lake's tables: Arrow schemas derived from the record classes, and the way there and back.

Types: a `Json` column is text; `tuple[X, ...]` is a list; a datetime is microseconds UTC (a naive one is taken as
UTC); text is `large_string`, so that a column may exceed 2 GiB. What isn't `X | None` in the record is NOT NULL.
Every row carries `batch_id`; rows of the ledger also `turn_id`, `created_at`, `code_version`. The four are stamped
when a batch is staged and take part in no key but that of a step.

Hostile text: NUL is kept as it is. A lone surrogate can't be stored in UTF-8, so it becomes its six-character escape
(`\\ud83d`): inside JSON text that is the same value; in plain text it is readable, and where the table has
`quality_flags` the row gets `lone_surrogate_escaped`. Reading back does not undo it (no tokenizer takes a lone
surrogate). Two surrogates that make a pair are joined.

Not covered: I/O (`lake.py`), and schema migrations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import repeat
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
from msgspec.structs import astuple

from flywheel import ledger, records
from flywheel.errors import LakeError

ESCAPED = "lone_surrogate_escaped"

_TAGS: Mapping[str, pa.DataType] = {
    "json": pa.large_string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "float32": pa.float32(),
    "decimal(18,9)": pa.decimal128(18, 9),
    "binary": pa.large_binary(),
}
_TYPES: Mapping[type, pa.DataType] = {
    str: pa.large_string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.large_binary(),
    datetime: pa.timestamp("us", tz="UTC"),
}
_STAMP_FIELDS = (
    pa.field("batch_id", pa.large_string(), nullable=False),
    pa.field("turn_id", pa.large_string()),
    pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("code_version", pa.large_string(), nullable=False),
)

# What makes a row the same row: a published key is never appended again. NULL equals NULL here. `trajectory` is
# revised rather than skipped, and steps and calls follow their trajectory (see `lake_publish.py`).
_KEYS: Mapping[type, tuple[str, ...]] = {
    records.SourceFile: ("source_id",),
    records.Quarantine: ("source_id", "record_ix", "byte_offset", "code"),
    records.Trajectory: ("trajectory_id", "revision"),
    records.Step: ("trajectory_id", "batch_id", "step_ix"),
    records.ToolCall: ("trajectory_id", "batch_id", "step_ix", "call_ix"),
    records.Outcome: ("outcome_id",),
    records.Blob: ("sha256",),
    records.Span: ("trajectory_id", "trace_id", "span_id", "start_ns", "end_ns", "name"),  # unfinished, then finished
    records.Task: ("task_id",),
    records.Verdict: ("trajectory_id", "verifier_id"),
    ledger.Batch: ("batch_id", "state"),
    ledger.Snapshot: ("snapshot_id",),
    ledger.Validation: ("validation_id",),
    ledger.Failure: ("failure_id",),
    ledger.Cluster: ("cluster_id",),
    ledger.ClusterEvent: ("cluster_id", "event", "ref"),
    ledger.CurriculumRow: ("curriculum_id", "row_id"),
    ledger.Run: ("run_id",),
    ledger.Evaluation: ("evaluation_id",),
    ledger.Decision: ("decision_id",),
    ledger.PolicyVersion: ("version",),
    ledger.Tombstone: ("user_hash", "erased_at"),
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: its record class, its Arrow schema (stamps included, last), its key, and whether it's the ledger's."""

    name: str
    record: type
    schema: pa.Schema
    keys: tuple[str, ...]
    ledger: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The record's own columns, in order: those that `to_arrow` gives."""
        return tuple(field.name for field in fields(self.record))


def _arrow_field(name: str, hint: Any) -> pa.Field:
    nullable = False
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (member for member in get_args(hint) if member is not NoneType)
        nullable = True
    return pa.field(name, _arrow_type(hint), nullable=nullable or hint is Any or get_args(hint)[:1] == (Any,))


def _arrow_type(hint: Any) -> pa.DataType:
    if get_origin(hint) is Annotated:
        return _TAGS[get_args(hint)[1]]
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    return _TYPES[hint]


def _spec(record: type, keys: tuple[str, ...]) -> TableSpec:
    hints = get_type_hints(record, include_extras=True)
    own = [_arrow_field(field.name, hints[field.name]) for field in fields(record)]
    # Tasks and verdicts are nouns of the product, and what the loop did: schema.sql counts them to the ledger.
    in_ledger = record.__module__ == ledger.__name__ or record in (records.Task, records.Verdict)
    stamps = [stamp for stamp in (_STAMP_FIELDS if in_ledger else _STAMP_FIELDS[:1]) if stamp.name not in hints]
    return TableSpec(record.TABLE, record, pa.schema([*own, *stamps]), keys, in_ledger)  # type: ignore[attr-defined]


TABLES: dict[str, TableSpec] = {spec.name: spec for spec in (_spec(record, keys) for record, keys in _KEYS.items())}


def spec_of(table: str) -> TableSpec:
    """The table of that name. Errors: LakeError with the names there are."""
    if table not in TABLES:
        raise LakeError(f"there is no table {table!r} in the lake; the tables are {', '.join(sorted(TABLES))}")
    return TABLES[table]


def to_arrow(table: str, rows: Sequence[Any]) -> pa.Table:
    """Records as an Arrow table with the record's own columns (stamps come at staging).

    Errors: LakeError naming table and column for a value of the wrong type or range, or a NULL that may not be.
    """
    spec = spec_of(table)
    for kind in set(map(type, rows)) - {spec.record}:
        raise LakeError(f"table {table} holds {spec.record.__name__} records, not {kind.__name__}")
    values_of = astuple if issubclass(spec.record, records.Row) else attrgetter(*spec.columns)
    turned = zip(*map(values_of, rows), strict=True) if rows else repeat((), len(spec.columns))
    columns: dict[str, Sequence[Any]] = dict(zip(spec.columns, turned, strict=True))
    escaped: set[int] = set()
    arrays = {}
    for name in sorted(spec.columns, key=lambda name: name == "quality_flags"):  # last: by then all escapes are known
        values = columns[name]
        if name == "quality_flags" and escaped:
            values = [(*(v or ()), ESCAPED) if ix in escaped else v for ix, v in enumerate(values)]
        arrays[name] = _array(spec, name, values, escaped)
    own = pa.schema([spec.schema.field(name) for name in spec.columns])
    return pa.Table.from_arrays([arrays[name] for name in spec.columns], schema=own)


def from_arrow(table: str, data: pa.Table) -> list[Any]:
    """Arrow rows as records of the table's class; stamps are left out, lists become tuples."""
    spec = spec_of(table)
    columns: dict[str, list[Any]] = {name: data.column(name).to_pylist() for name in spec.columns}
    for name, values in columns.items():
        if pa.types.is_list(spec.schema.field(name).type):
            columns[name] = [None if value is None else tuple(value) for value in values]
    return [spec.record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _array(spec: TableSpec, name: str, values: Sequence[Any], escaped: set[int]) -> pa.Array:
    """One column. Rows whose text had to be escaped are added to `escaped`."""
    field = spec.schema.field(name)
    if field.nullable and values.count(None) == len(values):
        return pa.nulls(len(values), field.type)
    if pa.types.is_decimal(field.type):
        values = [None if v is None else _quantized(v, field.type.scale) for v in values]
    try:
        try:
            array = pa.array(values, field.type)
        except UnicodeEncodeError:  # looking at every string beforehand would cost more than the rare retry
            clean = [_escaped(value) for value in values]
            escaped.update(ix for ix, (old, new) in enumerate(zip(values, clean, strict=True)) if old != new)
            array = pa.array(clean, field.type)
    except (pa.ArrowException, OverflowError, ArithmeticError, TypeError, ValueError) as error:
        raise LakeError(f"table {spec.name}, column {name}: {error}; it holds {field.type}") from error
    if array.null_count and not field.nullable:
        where = next(ix for ix, value in enumerate(values) if value is None)
        raise LakeError(f"table {spec.name}, row {where}: {name} is missing and may not be NULL")
    return array


def _quantized(value: Decimal, scale: int) -> Decimal:
    """Rounded half-even to the column's digits: a price of a tenth of a nano-dollar must not stop a batch."""
    return value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_EVEN)


_SURROGATES: re.Pattern[str] = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub(_escape, value)
    if isinstance(value, (tuple, list)):
        return tuple(_escaped(item) for item in value)
    return value


def _escape(match: re.Match[str]) -> str:
    text = match.group()
    if len(text) == 2:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    return f"\\u{ord(text):04x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """What the publisher adds to every row: which batch; on ledger rows also which turn, when, by which code."""

    batch_id: str
    turn_id: str | None
    created_at: datetime
    code_version: str


def stamped(table: str, data: pa.Table, stamps: Stamps) -> pa.Table:
    """The table with the stamps that its schema asks for, in the schema's order. The record's own columns stay."""
    schema = spec_of(table).schema
    for field in schema:
        if field.name not in data.column_names:
            value = pa.scalar(getattr(stamps, field.name), field.type)
            data = data.append_column(field, pa.repeat(value, data.num_rows))
    return data.cast(schema)
