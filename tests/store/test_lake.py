"""The lake's contract: what was published is there once, in the right types, at every snapshot, for everybody."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from filelock import FileLock
from lake_rows import counts, make_workspace, rows_of

from flywheel.errors import ArtifactError, LakeError
from flywheel.ledger import Cluster, ClusterEvent, Failure
from flywheel.records import Quarantine, SourceFile, Span, Verdict, content_id
from flywheel.store.lake import Lake
from flywheel.store.tables import TABLES


def ids(lake: Lake, sql: str, snapshot: str | None = None) -> list[object]:
    return [next(iter(row.values())) for row in lake.query(sql, snapshot=snapshot)]


def test_an_empty_lake_answers_with_empty_typed_views(lake: Lake) -> None:
    assert lake.head() is None and lake.staged() == [] and lake.recorded_objects() == set()
    with lake.connect() as con:
        for name, spec in TABLES.items():
            assert con.sql(f"FROM {name}").fetchall() == []
            assert con.sql(f"FROM {name}").columns == spec.schema.names
        assert con.sql("FROM failures_by_tool").fetchall() == []


def test_types_don_t_depend_on_there_being_rows(lake: Lake) -> None:
    with lake.connect() as con:
        empty = {name: con.sql(f"DESCRIBE {name}").fetchall() for name in TABLES}
    lake.publish("b", rows_of("a"))
    with lake.connect() as con:
        for name in ("trajectory", "step", "tool_call", "outcome", "batch", "snapshot"):
            assert con.sql(f"SELECT count(*) FROM {name}").fetchall() == [(1,)] or name == "step"
            assert con.sql(f"DESCRIBE {name}").fetchall() == empty[name]


def test_a_batch_is_staged_judged_and_published(lake: Lake) -> None:
    lake.stage("b1", {**rows_of("a", "b"), "failure": []}, objects=["sha-1", "sha-2"])
    assert lake.staged() == ["b1"] and lake.head() is None
    staged = lake.staged_rows("b1")
    assert {table: rows.num_rows for table, rows in staged.items()} == {
        "trajectory": 2, "step": 6, "tool_call": 2, "outcome": 2, "failure": 0,
    }  # fmt: skip
    assert all(rows.schema.equals(TABLES[table].schema) for table, rows in staged.items())

    snapshot = lake.publish("b1")
    assert snapshot == lake.head()
    assert snapshot.snapshot_id == content_id("snapshot", None, "b1")
    assert lake.staged() == [] and not list(lake.workspace.staging.iterdir())
    assert lake.recorded_objects() == {"sha-1", "sha-2"}
    (batch,) = lake.query("FROM batch")
    assert (batch["state"], batch["n_trajectories"], batch["turn_id"]) == ("accepted", 2, "turn-1")
    assert batch["created_at"] <= datetime.now(UTC)
    assert ids(lake, "SELECT DISTINCT batch_id FROM step") == ["b1"]


def test_staging_and_publishing_again_change_nothing(lake: Lake) -> None:
    first = lake.publish("b1", rows_of("a"))
    before = counts(lake)
    assert lake.publish("b1", rows_of("a")) == first
    assert lake.publish("b1") == first
    second = lake.publish("b2", rows_of("b"))
    assert lake.publish("b1") == first and lake.head() == second
    lake.stage("b1", rows_of("a"))
    assert lake.staged() == []
    assert {name: n - before[name] for name, n in counts(lake).items()} == {
        "trajectory_all": 1, "step_all": 3, "tool_call_all": 1, "outcome": 1, "batch_all": 1, "snapshot": 1,
    }  # fmt: skip


def test_a_staged_batch_is_replaced_only_on_request(lake: Lake) -> None:
    lake.stage("b1", rows_of("a"))
    lake.stage("b1", rows_of("b"))
    assert lake.staged_rows("b1")["trajectory"]["trajectory_id"].to_pylist() == ["a"]
    lake.stage("b1", rows_of("b"), overwrite=True)
    assert lake.staged_rows("b1")["trajectory"]["trajectory_id"].to_pylist() == ["b"]


def test_only_new_keys_are_appended(lake: Lake) -> None:
    def tables(score: float) -> dict[str, list[object]]:
        return {
            "verdict": [Verdict(trajectory_id="t", verifier_id="v1", score=score)],
            "quarantine": [
                Quarantine(source_id="s", code="broken"),
                Quarantine(source_id="s", record_ix=1, code="broken"),
            ],
            "span": [Span(trace_id="x", span_id="1"), Span()],
            "cluster_event": [ClusterEvent(cluster_id="c", event="seen", happened_at=datetime(2024, 1, 1, tzinfo=UTC))],
        }

    lake.publish("b1", tables(1.0))
    lake.publish("b2", {**tables(0.0), "failure": [Failure(
        failure_id="f", trajectory_id="t", code="c", owner="agent", detector="d", detector_version="1"
    )]})  # fmt: skip
    assert lake.query("SELECT score, batch_id FROM verdict") == [{"score": 1.0, "batch_id": "b1"}]
    assert ids(lake, "SELECT count(*) FROM quarantine") == [2]  # NULL equals NULL in a key
    assert ids(lake, "SELECT count(*) FROM span") == [2]
    assert ids(lake, "SELECT count(*) FROM cluster_event") == [1]
    assert ids(lake, "SELECT count(*) FROM failure") == [1]


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"verdict": [Verdict(trajectory_id="t", verifier_id="v", score=s) for s in (0, 1)]},
            r"two different rows have",
        ),
        ({"step": rows_of("a")["step"]}, "comes without its trajectory"),
        ({"snapshot": []}, "the publisher itself writes the table snapshot"),
        ({"failures": []}, "no table 'failures'"),
    ],
)
def test_rows_that_would_be_lost_are_refused_when_staged(lake: Lake, tables: dict, sentence: str) -> None:
    with pytest.raises(LakeError, match=sentence):
        lake.publish("b1", tables)
    assert lake.head() is None and lake.staged() == []


def test_exact_repeats_in_a_batch_count_once(lake: Lake) -> None:
    rows = rows_of("a")
    lake.publish("b1", {table: records * 2 for table, records in rows.items()})
    assert counts(lake)["step_all"] == 3 and counts(lake)["trajectory_all"] == 1


class TestRevisions:
    """A trajectory delivered again: the same is skipped, another is the next revision, an old one stays old."""

    def test_new_content_is_a_new_revision_and_the_views_show_it_alone(self, lake: Lake) -> None:
        first = lake.publish("b1", rows_of("a", "b"))
        lake.publish("b2", rows_of("a", content="v2", steps=5))
        assert lake.query("SELECT trajectory_id, revision, batch_id FROM trajectory ORDER BY 1") == [
            {"trajectory_id": "a", "revision": 1, "batch_id": "b2"},
            {"trajectory_id": "b", "revision": 0, "batch_id": "b1"},
        ]
        assert ids(lake, "SELECT content FROM step WHERE trajectory_id = 'a' ORDER BY step_ix") == [
            "v2 0", "v2 1", "v2 2", "v2 3", "v2 4",
        ]  # fmt: skip
        assert ids(lake, "SELECT count(*) FROM tool_call") == [2 + 1]
        assert counts(lake)["step_all"] == 6 + 5
        assert lake.query("SELECT trajectory_id, revision FROM superseded") == [{"trajectory_id": "a", "revision": 0}]
        assert ids(lake, "SELECT count(*) FROM step", first.snapshot_id) == [6]

    def test_the_same_content_is_skipped_with_its_steps(self, lake: Lake) -> None:
        lake.publish("b1", rows_of("a"))
        lake.publish("b2", rows_of("a", "b"))
        assert counts(lake)["trajectory_all"] == 2 and counts(lake)["step_all"] == 6
        assert ids(lake, "SELECT batch_id FROM trajectory WHERE trajectory_id = 'a'") == ["b1"]

    def test_an_old_export_does_not_turn_the_clock_back(self, lake: Lake) -> None:
        for batch, content in (("b1", "v1"), ("b2", "v2"), ("b3", "v1"), ("b4", "v3")):
            lake.publish(batch, rows_of("a", content=content))
        assert lake.query("SELECT revision, content_sha256 FROM trajectory") == [
            {"revision": 2, "content_sha256": "a v3"}
        ]
        assert ids(lake, "SELECT DISTINCT content FROM step WHERE step_ix = 0") == ["v3 0"]
        assert lake.query("FROM trajectory_all").__len__() == 3

    def test_two_contents_in_one_batch_are_refused(self, lake: Lake) -> None:
        rows = rows_of("a")
        rows["trajectory"].append(replace(rows["trajectory"][0], content_sha256="other"))
        with pytest.raises(LakeError, match="two different rows"):
            lake.stage("b1", rows)


class TestVerdicts:
    """A failed batch stays where it is, with its reason, until it's forced or replaced."""

    def test_a_rejected_batch_stays_staged_and_is_named(self, lake: Lake) -> None:
        lake.stage("bad", rows_of("a"), ["sha-bad"])
        lake.stage("good", rows_of("b"), ["sha-good"])
        lake.reject("bad", "too many empty steps")
        assert lake.staged() == ["good"] and lake.failed() == {"bad": "too many empty steps"}
        lake.publish("good")
        assert ids(lake, "SELECT trajectory_id FROM trajectory") == ["b"]
        assert lake.recorded_objects() == {"sha-good"}
        assert lake.query("SELECT state, reason, n_trajectories FROM batch WHERE batch_id = 'bad'") == [
            {"state": "failed", "reason": "too many empty steps", "n_trajectories": 1}
        ]

    def test_rejecting_again_adds_nothing(self, lake: Lake) -> None:
        lake.stage("bad", rows_of("a"))
        lake.reject("bad", "r")
        head = lake.head()
        lake.reject("bad", "r")
        assert lake.head() == head

    def test_a_forced_batch_is_in_and_says_so(self, lake: Lake) -> None:
        lake.stage("bad", rows_of("a"), ["sha"])
        lake.reject("bad", "r")
        lake.publish("bad", state="forced", reason="looked at by hand")
        assert lake.failed() == {} and lake.recorded_objects() == {"sha"}
        assert ids(lake, "SELECT state FROM batch WHERE batch_id = 'bad'") == ["forced"]
        assert ids(lake, "SELECT state FROM batch_all WHERE batch_id = 'bad' ORDER BY created_at") == [
            "failed",
            "forced",
        ]

    def test_what_is_not_there_can_t_be_judged(self, lake: Lake) -> None:
        with pytest.raises(LakeError, match="nope is neither staged nor published"):
            lake.publish("nope")
        with pytest.raises(ArtifactError, match="nope"):
            lake.reject("nope", "r")
        with pytest.raises(LakeError, match="not as 'failed'"):
            lake.publish("nope", rows_of("a"), state="failed")


def test_snapshots_form_a_chain_that_sql_shows(lake: Lake) -> None:
    published = [lake.publish(f"b{ix}", rows_of(f"t{ix}")) for ix in range(3)]
    found = lake.query("SELECT snapshot_id, parent_id, batches, state, turn_id FROM snapshot ORDER BY created_at")
    assert [row["snapshot_id"] for row in found] == [snapshot.snapshot_id for snapshot in published]
    assert [row["parent_id"] for row in found] == [None, *(snapshot.snapshot_id for snapshot in published[:2])]
    assert [row["batches"] for row in found] == [["b0"], ["b1"], ["b2"]]
    assert {row["turn_id"] for row in found} == {"turn-1"}
    assert ids(lake, "SELECT count(*) FROM snapshot", published[0].snapshot_id) == [1]
    for n, snapshot in enumerate(published, start=1):
        assert ids(lake, "SELECT count(*) FROM trajectory", snapshot.snapshot_id) == [n]
    with pytest.raises(LakeError, match="no snapshot snapshot-0"):
        lake.connect("snapshot-0")


def test_equal_inputs_give_equal_snapshot_records_anywhere(lake: Lake, tmp_path: Path) -> None:
    other = Lake(make_workspace(tmp_path / "elsewhere"), turn_id="turn-2")
    for each in (lake, other):
        each.publish("b1", rows_of("a"))
        each.publish("b2", rows_of("b"))
    here, there = (sorted((each.workspace.lake / "snapshots").iterdir()) for each in (lake, other))
    assert [path.name for path in here] == [path.name for path in there]
    assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]


def test_hostile_text_lives_in_every_kind_of_column(lake: Lake) -> None:
    names = ["it's; DROP TABLE step; --", "nul \x00 inside", "half \ud83d", "new\nline \u2028 😀", "%s {} $1"]
    rows = rows_of(*names, content="c \x00 \udc00 '")
    for batch in ("b'1 \"x", "b2"):
        lake.publish(batch, rows, reason="because 'x'")
    found = {row["trajectory_id"]: row["content"] for row in lake.query("FROM step WHERE step_ix = 0")}
    assert found == {name.replace("\ud83d", "\\ud83d"): "c \x00 \\udc00 ' 0" for name in names}
    assert counts(lake)["step_all"] == 3 * len(names)
    assert ids(lake, "SELECT batches[1] FROM snapshot ORDER BY created_at") == ["b'1 \"x", "b2"]
    assert lake.query("SELECT count(*) AS n FROM step WHERE trajectory_id = ?", [names[1]]) == [{"n": 3}]


def test_source_files_count_into_their_batch(lake: Lake) -> None:
    source = SourceFile(
        source_id="s", uri="u", sha256="s", bytes=1, format="f", adapter="a", adapter_version="1",
        ingested_at=datetime(2024, 1, 1, tzinfo=UTC), n_records=7,
    )  # fmt: skip
    lake.publish("b1", {"source_file": [source, replace(source, source_id="z", n_records=5)], "quarantine": [
        Quarantine(source_id="s", record_ix=3, code="c")
    ]})  # fmt: skip
    assert lake.query("SELECT n_records, n_trajectories, n_quarantined FROM batch") == [
        {"n_records": 12, "n_trajectories": 0, "n_quarantined": 1}
    ]


def test_failures_by_tool_names_the_cluster_s_tool_or_the_failing_call(lake: Lake) -> None:
    def failure(name: str, trajectory: str, step: int | None, cluster: str | None = None) -> Failure:
        return Failure(
            failure_id=name, trajectory_id=trajectory, step_ix=step, code="tool_error", owner="agent", detector="d",
            detector_version="1", cluster_id=cluster,
        )  # fmt: skip

    failures = [failure("1", "a", 1), failure("2", "b", 1), failure("3", "b", 1, "c"), failure("4", "b", None)]
    lake.publish("b1", {**rows_of("a", "b"), "failure": failures, "cluster": [Cluster(cluster_id="c", tool="book")]})
    assert lake.query("FROM failures_by_tool ORDER BY tool NULLS LAST") == [
        {"code": "tool_error", "tool": "book", "n": 1, "trajectories": 1},
        {"code": "tool_error", "tool": "search", "n": 2, "trajectories": 2},
        {"code": "tool_error", "tool": None, "n": 1, "trajectories": 1},
    ]


class TestTheFile:
    """data/lake.duckdb: plain duckdb, read-only, no extension."""

    def test_it_opens_in_a_plain_process_anywhere(self, lake: Lake, tmp_path: Path) -> None:
        lake.publish("b1", rows_of("a", "b"))
        code = (
            "import duckdb, sys; con = duckdb.connect(sys.argv[1], read_only=True, config="
            "{'autoload_known_extensions': False, 'autoinstall_known_extensions': False}); "
            "print(con.sql('SELECT count(*) FROM step').fetchall(), con.sql('FROM failures_by_tool').fetchall(), "
            "con.sql('SELECT count(*) FROM snapshot').fetchall())"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, str(lake.workspace.lake_file)],
            capture_output=True, text=True, check=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout.strip() == "[(6,)] [] [(1,)]"

    def test_it_can_be_attached_under_another_name(self, lake: Lake) -> None:
        lake.publish("b1", rows_of("a"))
        with duckdb.connect() as con:
            con.execute(f"ATTACH '{lake.workspace.lake_file}' AS mine (READ_ONLY)")
            assert con.sql("SELECT count(*) FROM mine.step").fetchall() == [(3,)]

    def test_it_follows_a_moved_workspace(self, lake: Lake, tmp_path: Path) -> None:
        lake.publish("b1", rows_of("a"))
        moved = tmp_path / "wörk 'q' a=b * #1"
        shutil.move(lake.workspace.root, moved)
        lake = Lake(make_workspace(moved))
        assert counts(lake)["step_all"] == 3
        with duckdb.connect(str(lake.workspace.lake_file), read_only=True) as con:
            assert con.sql("SELECT count(*) FROM step").fetchall() == [(3,)]
        lake.publish("b2", rows_of("b"))
        assert counts(lake)["step_all"] == 6

    def test_a_reader_keeps_what_it_opened(self, lake: Lake) -> None:
        lake.publish("b1", rows_of("a"))
        with duckdb.connect(str(lake.workspace.lake_file), read_only=True) as con:
            lake.publish("b2", rows_of("b"))
            assert con.sql("SELECT count(*) FROM trajectory").fetchall() == [(1,)]
        kept = {path.name for path in lake.workspace.data.glob("*lake.duckdb*")}
        assert kept == {"lake.duckdb", ".lake.duckdb.lock"}


def test_a_held_lease_is_a_sentence_that_names_the_file(lake: Lake) -> None:
    lake.publish("b1", rows_of("a"))
    with (
        FileLock(lake.workspace.lake / "publisher.lock"),
        pytest.raises(LakeError, match=r"publisher\.lock was locked for 0\.1 s"),
    ):
        Lake(lake.workspace, lease_s=0.1).publish("b2", rows_of("b"))
    lake.publish("b2")
    assert counts(lake)["trajectory_all"] == 2


@pytest.mark.parametrize("name", ["a[1]", "50%25", "x|y", "back\\slash", "what?"])
def test_a_path_that_delta_can_t_open_is_refused_in_words(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeError, match="rename it"):
        Lake(make_workspace(tmp_path / name))
