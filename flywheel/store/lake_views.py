"""The lake as SQL: one view per table over exact Parquet files, and `lake.duckdb`, a file of such views.

`trajectory`, `step` and `tool_call` show the newest revision of each trajectory, `batch` the newest state of each
batch; the whole history stands in `trajectory_all`, `step_all`, `tool_call_all` and `batch_all`. `superseded` names
the revisions that are hidden. Feedback that came apart from its trajectory is joined to it in `outcome` and in the
headline of `trajectory` (`lake_late.py`); `outcome_all` has it as it came. A table without rows is an empty view with
the right types.

Paths are absolute, because DuckDB would resolve relative ones against whatever folder a reader happens to stand in,
and no expression gives a view the place of its own file. So a moved workspace needs its file rewritten, which every
`Lake.connect()` and every publish does (`refresh`). Not covered: which files those are (`lake_read.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow as pa
from filelock import FileLock

from flywheel.ledger import Snapshot
from flywheel.store.artifacts import write_atomic
from flywheel.store.lake_late import LOOSE_BY, late_views
from flywheel.store.lake_place import Place
from flywheel.store.lake_questions import QUESTIONS
from flywheel.store.tables import TABLES, TableSpec
from flywheel.workspace import Workspace

HISTORY = ("trajectory", "step", "tool_call", "outcome", "batch")  # tables whose view differs from their rows
READABLE_SINCE = "v1.2.0"
"""The oldest DuckDB that opens lake.duckdb: people's command line is often older than the library here."""


class Files(Protocol):
    """The Parquet files of a table's version; `special`: only those that may have rows which views treat apart."""

    def __call__(self, table: str, version: int, special: bool = False) -> list[str]:
        """Paths, sorted."""
        ...


_PATTERN = re.compile(r"([*?\[])")
_SQL_TYPES: Mapping[str, str] = {
    "large_string": "VARCHAR",
    "bool": "BOOLEAN",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "large_binary": "BLOB",
    "decimal128(18, 9)": "DECIMAL(18,9)",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
}

# Few trajectories are ever revised: `{revised}` reads the files that may have revisions alone.
_SUPERSEDED = """
    WITH newest AS (SELECT trajectory_id, max(revision) AS revision FROM ({revised})
                    WHERE revision > 0 GROUP BY trajectory_id)
    SELECT t.trajectory_id, t.revision, t.batch_id FROM trajectory_all t
    JOIN newest n ON n.trajectory_id = t.trajectory_id AND n.revision > t.revision"""
_BATCH = """
    SELECT * FROM batch_all
    QUALIFY row_number() OVER (PARTITION BY batch_id ORDER BY created_at DESC) = 1"""
_LINEAGE: Mapping[str, str] = {
    # One row per kept curriculum row and online trace behind it, with the rollout that repaired it (if one did).
    "lineage": """
        WITH parent AS (
            SELECT curriculum_id, row_id, source, task_id, cluster_id, unnest(parents) AS parent_id
            FROM curriculum_row WHERE kept),
        known AS (
            SELECT p.*, t.format = 'rollout' AS repaired, t.source_id
            FROM parent p JOIN trajectory t ON t.trajectory_id = p.parent_id)
        SELECT v.version, r.run_id, o.curriculum_id, o.row_id, o.source, o.task_id, o.cluster_id,
               k.parent_id AS rollout_id, o.parent_id AS trajectory_id, o.source_id, s.uri
        FROM known o
        LEFT JOIN known k ON k.curriculum_id = o.curriculum_id AND k.row_id = o.row_id AND k.repaired
        LEFT JOIN source_file s ON s.source_id = o.source_id
        LEFT JOIN run r ON r.curriculum_id = o.curriculum_id
        LEFT JOIN policy_version v ON v.run_id = r.run_id
        WHERE NOT o.repaired""",
}


def base(table: str) -> str:
    """The view that holds every published row of a table, history included."""
    return f"{table}_all" if table in HISTORY else table


def create_views(con: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, files: Files) -> None:
    """Create all views of one snapshot (None: an empty lake) in the connection's current schema."""
    con.execute(";\n".join(["BEGIN", *_statements(snapshot, files), "COMMIT"]))  # one commit: each costs an fsync


def refresh(
    workspace: Workspace, place: Place, head: Callable[[], Snapshot | None], files: Files, wait_s: float = 300.0
) -> None:
    """Write `data/lake.duckdb` anew and swap it in; whoever has the old file open keeps reading the old file.

    `head` is asked once nobody else writes the file: a slow reader must not turn it back.
    Errors: filelock.Timeout if somebody else writes it for longer than `wait_s`.
    """
    target = workspace.lake_file
    with FileLock(target.with_name(f".{target.name}.lock"), timeout=wait_s):
        snapshot = head()
        if snapshot is None:
            return
        for leftover in target.parent.glob(f".{target.name}.*.new"):
            leftover.unlink()
        temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}.new")
        with duckdb.connect(str(temporary), config={"storage_compatibility_version": READABLE_SINCE}) as con:
            place.attach(con)
            create_views(con, snapshot, files)
        temporary.replace(target)
        write_atomic(_note(workspace), _describe(place, snapshot))


def is_fresh(workspace: Workspace, place: Place, snapshot: Snapshot) -> bool:
    """Whether `lake.duckdb` shows this snapshot at this place.

    A note beside the tables is compared; the file itself can't be asked while somebody has it open for writing.
    """
    note = _note(workspace)
    return workspace.lake_file.is_file() and note.is_file() and note.read_bytes() == _describe(place, snapshot)


def quoted(path: str) -> str:
    """A path as a literal for `read_parquet`, which would take `*`, `?` and `[` for a pattern."""
    return "'" + _PATTERN.sub(r"[\1]", path).replace("'", "''") + "'"


def _note(workspace: Workspace) -> Path:
    return workspace.data / ".lake.views.json"


def _describe(place: Place, snapshot: Snapshot) -> bytes:
    return json.dumps({"snapshot_id": snapshot.snapshot_id, "lake": place.uri}).encode()


def _statements(snapshot: Snapshot | None, files: Files) -> Iterator[str]:
    versions: dict[str, int] = json.loads(snapshot.table_versions) if snapshot else {}
    names = [base(table) for table in sorted(TABLES, key=lambda table: table == "snapshot")]  # snapshot reads batch
    for table in sorted(TABLES, key=lambda table: table == "snapshot"):
        select = _select(TABLES[table], files(table, versions[table]) if table in versions else [])
        if table == "snapshot" and snapshot:
            select = f"{select} UNION ALL {_head_row(snapshot)}"
        yield f"CREATE VIEW {base(table)} AS {select}"
    revised = _revised(versions, files)
    late = late_views(_loose(versions, files), revised is not None)
    for name, select in (*_newest(revised), *late, *QUESTIONS.items(), *_LINEAGE.items()):
        yield f"CREATE VIEW {name} AS {select}"
    for table in names:
        spec = TABLES[table.removesuffix("_all")]
        text = (spec.record.__doc__ or "").split("\n")[0].replace("'", "''")
        yield f"COMMENT ON VIEW {spec.name} IS '{text}'"


def _newest(revised: str | None) -> Iterator[tuple[str, str]]:
    """The views that hide what was superseded; where nothing was, they don't even mention the join."""
    yield "batch", _BATCH
    if revised is None:
        yield "superseded", "SELECT trajectory_id, revision, batch_id FROM trajectory_all WHERE false"
        yield from ((table, f"SELECT * FROM {table}_all") for table in ("step", "tool_call"))
        return
    yield "superseded", _SUPERSEDED.format(revised=revised)
    for table in ("step", "tool_call"):
        yield table, f"SELECT * FROM {table}_all ANTI JOIN superseded USING (trajectory_id, batch_id)"


def _revised(versions: Mapping[str, int], files: Files) -> str | None:
    """SQL for the trajectories of the files that may have revisions; None where no file has one."""
    paths = files("trajectory", versions["trajectory"], special=True) if "trajectory" in versions else []
    return _select(TABLES["trajectory"], paths) if paths else None


def _loose(versions: Mapping[str, int], files: Files) -> str | None:
    """SQL for the outcomes that came without their trajectory; None where no file has one."""
    paths = files("outcome", versions["outcome"], special=True) if "outcome" in versions else []
    return f"{_select(TABLES['outcome'], paths)} WHERE {LOOSE_BY} IS NULL" if paths else None


def _select(spec: TableSpec, paths: list[str]) -> str:
    if not paths:
        columns = ", ".join(f'CAST(NULL AS {_sql_type(field.type)}) AS "{field.name}"' for field in spec.schema)
        return f"SELECT {columns} WHERE false"
    columns = ", ".join(f'"{name}"' for name in spec.schema.names)
    # No hive partitioning: a workspace under `.../region=eu/` must not grow a column.
    return f"SELECT {columns} FROM read_parquet([{', '.join(map(quoted, paths))}], hive_partitioning=false)"


def _head_row(snapshot: Snapshot) -> str:
    """The newest snapshot can't stand in a table that it names the version of: the next one records it."""
    (batch,) = snapshot.batches or ()
    text = {
        key: "'" + value.replace("'", "''") + "'"
        for key, value in {
            "id": snapshot.snapshot_id,
            "versions": snapshot.table_versions,
            "state": snapshot.state,
            "batch": batch,
        }.items()
    }
    parent = f"'{snapshot.parent_id}'" if snapshot.parent_id else "NULL"
    return (
        f"SELECT {text['id']}, {parent}, {text['versions']}, [{text['batch']}], {text['state']}, "
        f"batch_id, turn_id, created_at, code_version FROM batch_all "
        f"WHERE batch_id = {text['batch']} AND state IN ('accepted', 'forced')"
    )


def _sql_type(kind: pa.DataType) -> str:
    return f"{_sql_type(kind.value_type)}[]" if pa.types.is_list(kind) else _SQL_TYPES[str(kind)]
