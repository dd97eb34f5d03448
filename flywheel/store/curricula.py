"""A curriculum on disk: sft.parquet (what is trained, in order) and dropped.parquet (what is not, and why).

Equal rows give equal bytes under one version of pyarrow: fixed schema and codec, no times; the footer names the writer.

Not covered: which rows these are (`curriculum/sft.py`), the manifest and the ledger (`curate`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flywheel.curriculum.sft import Dropped, SftRow
from flywheel.store import artifacts

if TYPE_CHECKING:
    import pyarrow as pa

SFT_FILE = "sft.parquet"
DROPPED_FILE = "dropped.parquet"


def write_rows(folder: Path, rows: Sequence[SftRow], dropped: Sequence[Dropped]) -> None:
    """Write both files; the caller finishes the folder with its manifest."""
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    text, maybe = pa.string(), True
    kept = [
        ("row_id", text, False), ("source", text, False), ("task_id", text, False), ("cluster_id", text, maybe),
        ("stage", pa.int16(), False), ("weight", pa.float64(), False), ("messages", text, False),
        ("input_ids", ids, False), ("labels", ids, False),
    ]  # fmt: skip
    left = [
        ("row_id", text, False), ("source", text, False), ("task_id", text, maybe),
        ("parents", pa.list_(text), False), ("reason", text, False),
    ]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SFT_FILE, rows, pa.schema([pa.field(*column) for column in kept]))
    _write(folder / DROPPED_FILE, dropped, pa.schema([pa.field(*column) for column in left]))


def read_rows(folder: Path) -> list[SftRow]:
    """The rows of a finished curriculum, in training order. Errors: ArtifactError (unfinished, or a file differs)."""
    import pyarrow.parquet as pq

    artifacts.load(folder, verify=True)
    rows: list[dict[str, Any]] = pq.read_table(folder / SFT_FILE).to_pylist()
    return [SftRow(**{**row, "input_ids": tuple(row["input_ids"]), "labels": tuple(row["labels"])}) for row in rows]


def erase_rows(folder: Path, row_ids: Collection[str], why: str) -> None:
    """Remove rows from a finished curriculum, which is then no longer what its id says: the manifest tells `why`.

    A no-op where the folder is gone or has been cleaned of them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / SFT_FILE
    if not artifacts.is_finished(folder):
        return
    rows = pq.read_table(path)
    gone = pc.is_in(rows["row_id"], value_set=pa.array(sorted(row_ids), rows["row_id"].type))
    if not pc.any(gone).as_py():
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rows.filter(pc.invert(gone)), buffer, compression="zstd")
    artifacts.write_atomic(path, buffer.getvalue().to_pybytes())
    artifacts.amend(folder, {"not_reproducible": why})


def _write(path: Path, records: Sequence[Any], schema: pa.Schema) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [pa.array([_plain(getattr(r, f.name)) for r in records], f.type) for f in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="zstd")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
