"""What ingest is measured against: bare msgspec and pyarrow, JSON lines into one nested table, as fast as they go.

It decodes into structs of exactly this format, builds the columns and writes Parquet (zstd 3). It does far less than
ingest: no sniffing, no other format, no equal keys told, no odd numbers kept, no quarantine, no pairing of calls and
results, no content hash, no redaction, no row per step, no exact re-delivery, no batch that survives a kill.

Not covered: several processes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHUNK = 16 << 20
GROUP_ROWS = 2048
_TEXT = pa.string()
_CALL = pa.struct([("id", _TEXT), ("name", _TEXT), ("arguments", _TEXT)])
_ERROR = pa.struct([("type", _TEXT), ("message", _TEXT)])
_STEP = pa.struct(
    [
        ("index", pa.int32()), ("role", _TEXT), ("ts", pa.int64()), ("content", _TEXT), ("reasoning", _TEXT),
        ("tool_calls", pa.list_(_CALL)), ("tool_call_id", _TEXT), ("exit_code", pa.int32()), ("truncated", pa.bool_()),
        ("latency_ms", pa.int64()), ("tokens_in", pa.int64()), ("tokens_out", pa.int64()),
        ("logprob_mean", pa.float64()), ("error", _ERROR),
    ]
)  # fmt: skip
SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXT), ("task_id", _TEXT), ("source", _TEXT), ("schema_version", pa.int32()),
        ("agent", pa.struct([("name", _TEXT), ("version", _TEXT), ("model", _TEXT), ("params", _TEXT)])),
        ("started_at", pa.int64()), ("ended_at", pa.int64()), ("outcome", _TEXT), ("reward", pa.float64()),
        ("failure", pa.struct([("category", _TEXT), ("message", _TEXT)])), ("tags", pa.list_(_TEXT)),
        ("usage", pa.struct([("tokens_in", pa.int64()), ("tokens_out", pa.int64()), ("cost_usd", pa.float64())])),
        ("metadata", _TEXT), ("steps", pa.list_(_STEP)),
    ]
)  # fmt: skip
_DICTIONARY = [
    "task_id", "source", "agent.name", "agent.version", "agent.model", "outcome", "failure.category",
    "steps.list.element.role", "steps.list.element.tool_calls.list.element.name", "steps.list.element.error.type",
    "tags.list.element",
]  # fmt: skip


class Call(msgspec.Struct, gc=False):
    """A tool call; its arguments stay JSON text."""

    id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class Error(msgspec.Struct, gc=False):
    """Of a step."""

    type: str | None = None
    message: str | None = None


class Step(msgspec.Struct, gc=False):
    """One message."""

    index: int
    role: str
    ts: int
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    exit_code: int | None = None
    truncated: bool | None = None
    latency_ms: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    logprob_mean: float | None = None
    error: Error | None = None


class Agent(msgspec.Struct, gc=False):
    """Who ran."""

    name: str
    version: str
    model: str
    params: msgspec.Raw = msgspec.Raw()


class Failure(msgspec.Struct, gc=False):
    """Why it failed."""

    category: str | None = None
    message: str | None = None


class Usage(msgspec.Struct, gc=False):
    """What it took."""

    tokens_in: int
    tokens_out: int
    cost_usd: float


class Line(msgspec.Struct, gc=False):
    """One trajectory."""

    trajectory_id: str
    task_id: str
    source: str
    schema_version: int
    agent: Agent
    started_at: int
    ended_at: int
    outcome: str
    reward: float
    tags: list[str]
    usage: Usage
    steps: list[Step]
    failure: Failure | None = None
    metadata: msgspec.Raw = msgspec.Raw()


def run(source: Path, target: Path) -> int:
    """Convert the file; how many trajectories it has."""
    pa.set_cpu_count(1)
    decoder = msgspec.json.Decoder(Line)
    rows = 0
    with pq.ParquetWriter(
        target, SCHEMA, compression="zstd", compression_level=3, use_dictionary=_DICTIONARY
    ) as writer:
        for block in _blocks(source):
            table = _table(decoder.decode_lines(block))
            writer.write_table(table, row_group_size=GROUP_ROWS)
            rows += table.num_rows
    return rows


def _blocks(source: Path) -> Iterator[bytes]:
    """Whole lines, about CHUNK bytes at a time."""
    rest = b""
    with source.open("rb", buffering=0) as file:
        while block := file.read(CHUNK):
            whole, newline, tail = (rest + block).rpartition(b"\n")
            yield whole + newline
            rest = tail
    if rest:
        yield rest


def _json(values: list[msgspec.Raw]) -> pa.Array:
    return pa.array([bytes(value) or None for value in values], pa.binary()).cast(_TEXT)


def _struct(kind: pa.StructType, values: list[Any]) -> pa.Array:
    """A struct column from objects, some of which may be None."""
    columns = [pa.array([getattr(v, f.name) if v else None for v in values], f.type) for f in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array([v is None for v in values]))


def _offsets(lists: list[Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([[0], np.cumsum([len(items) if items else 0 for items in lists])]).astype(np.int32)


def _steps(lines: list[Line]) -> pa.Array:
    steps = [step for line in lines for step in line.steps]
    lists = [step.tool_calls for step in steps]
    calls = [call for made in lists if made for call in made]
    call_rows = pa.StructArray.from_arrays(
        [
            pa.array([call.id for call in calls], _TEXT),
            pa.array([call.name for call in calls], _TEXT),
            _json([call.arguments for call in calls]),
        ],
        fields=list(_CALL),
    )
    missing = np.append(np.fromiter((made is None for made in lists), bool, len(lists)), False)
    columns = {
        "tool_calls": pa.ListArray.from_arrays(pa.array(_offsets(lists), pa.int32(), mask=missing), call_rows),
        "error": _struct(_ERROR, [step.error for step in steps]),
    }
    arrays = [
        columns[f.name] if f.name in columns else pa.array([getattr(step, f.name) for step in steps], f.type)
        for f in _STEP
    ]
    rows = pa.StructArray.from_arrays(arrays, fields=list(_STEP))
    return pa.ListArray.from_arrays(pa.array(_offsets([line.steps for line in lines])), rows)


def _table(lines: list[Line]) -> pa.Table:
    agents = [line.agent for line in lines]
    kind = SCHEMA.field("agent").type
    texts = [pa.array([getattr(agent, name) for agent in agents], _TEXT) for name in ("name", "version", "model")]
    columns = {
        "steps": _steps(lines),
        "agent": pa.StructArray.from_arrays([*texts, _json([agent.params for agent in agents])], fields=list(kind)),
        "failure": _struct(SCHEMA.field("failure").type, [line.failure for line in lines]),
        "usage": _struct(SCHEMA.field("usage").type, [line.usage for line in lines]),
        "metadata": _json([line.metadata for line in lines]),
    }
    arrays = [
        columns[f.name] if f.name in columns else pa.array([getattr(line, f.name) for line in lines], f.type)
        for f in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


if __name__ == "__main__":
    print(run(Path(sys.argv[1]), Path(sys.argv[2])))
