"""The contract of the command line, held against the real command: options anywhere, one JSON object, exit codes."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scripted import SCRIPTED
from turns import Turned, flywheel, last_object, run

from flywheel.__main__ import cli, main
from flywheel.commands.loop import INGEST_SAYS
from flywheel.workspace import Workspace

TEMPLATE = Path(__file__).parents[1] / "flywheel" / "templates" / "dvc.yaml"
INGEST_KEYS = {
    "batch", "snapshot", "files", "records", "trajectories", "quarantined", "repaired", "skipped", "bytes", "seconds",
    "formats", "refused",
}  # fmt: skip


def chat(ix: int) -> str:
    """One record of OpenAI chat JSONL."""
    messages = [{"role": "user", "content": f"Where is order {ix}?"}, {"role": "assistant", "content": "On its way."}]
    return json.dumps({"id": f"chat-{ix:08d}", "messages": messages})


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended, and what it wrote."""

    code: int
    out: str
    err: str


Typed = Callable[..., Ended]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """The command's own entry point in this process, which spares its imports; what children write is seen too."""

    def run_here(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["flywheel", *arguments])
        capfd.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return Ended(code, *capfd.readouterr())

    return run_here


Said = Callable[..., dict[str, Any]]


@pytest.fixture
def said(typed: Typed) -> Said:
    """The one JSON object of a command that succeeds."""

    def run_here(*arguments: str | Path) -> dict[str, Any]:
        done = typed(*map(str, arguments), "--json")
        assert done.code == 0, done
        return last_object(done.out)

    return run_here


def written(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


READING = {
    "history": ("history", [], "versions"),
    "sql": ("sql", ["from failures_by_tool"], "rows"),
    "show": ("show", ["v0.2.0"], "related"),
    "lake verify": ("lake", ["verify"], "snapshot"),
    "lake snapshots": ("lake", ["snapshots"], "snapshots"),
    "tasksets check": ("tasksets", ["check", "online"], "taskset_sha256"),
}


@pytest.mark.parametrize("verb", READING)
def test_root_and_json_stand_before_or_after_the_verb(turned_once: Turned, verb: str, typed: Typed) -> None:
    name, arguments, key = READING[verb]
    root = str(turned_once.workspace.root)
    before = typed("--root", root, "--json", name, *arguments)
    assert before.code == 0, before.err
    assert len(before.out.splitlines()) == 1
    assert last_object(before.out) == flywheel(name, *arguments, "--root", root)
    assert key in last_object(before.out)


def test_the_nearest_workspace_is_the_default(turned_once: Turned) -> None:
    inside = turned_once.workspace.landing
    assert flywheel("sql", "select count(*) as n from run", cwd=inside)["rows"] == [{"n": 1}]


def test_people_get_words_and_tables(turned_once: Turned) -> None:
    root = str(turned_once.workspace.root)
    table = run("flywheel", "--root", root, "sql", "select run_id, 7 as seven from run")
    assert turned_once.result["run"] in table.stdout
    shown = run("flywheel", "--root", root, "show", "v0.2.0")
    assert turned_once.result["run"] in shown.stdout
    assert not shown.stdout.startswith("{")


REFUSED = {
    "no such workspace": (["history", "--root", "/nowhere"], "workspace", "run `flywheel init /nowhere` first"),
    "broken SQL": (["sql", "selec 1"], "lake", 'syntax error at or near "selec"'),
    "unknown table": (["sql", "from nosuch"], "lake", "Table with name nosuch does not exist"),
    "unknown snapshot": (["sql", "from run", "--snapshot", "snapshot-x"], "lake", "no snapshot snapshot-x"),
    "unknown id": (["show", "run-x"], "lake", "nothing in the lake is called 'run-x'"),
    "unknown version": (["rollback", "v9.9.9"], "registry", "no version or stage 'v9.9.9'"),
    "unknown stage": (["evaluate", "--stage", "staging"], "registry", "no version or stage 'staging'"),
    "unknown run": (["evaluate", "--run", "run-x"], "artifacts", "run-x"),
    "unknown curriculum": (["train", "--curriculum", "curriculum-x"], "artifacts", "curriculum-x"),
    "unknown evaluation": (["gate", "--candidate", "e-1", "--incumbent", "e-2"], "artifacts", "e-1"),
    "unknown decision": (["promote", "--run", "run-x", "--decision", "d-1"], "artifacts", "run-x"),
    "unknown task set": (["tasksets", "check", "nosuch"], "workspace", "no task set 'nosuch'"),
    "unknown format": (["ingest", "--format", "nosuch"], "formats", "no format 'nosuch'"),
    "unknown batch": (["validate", "--batch", "batch-x"], "artifacts", "batch-x"),
    "no reason": (["validate", "--accept", "batch-x"], "validate", "needs a reason"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_sentence_and_exit_1(turned_once: Turned, case: str, typed: Typed) -> None:
    arguments, boundary, sentence = REFUSED[case]
    where = [] if "--root" in arguments else ["--root", str(turned_once.workspace.root)]
    done = typed(*arguments, *where, "--json")
    assert done.code == 1, done
    said = last_object(done.out)
    assert said["boundary"] == boundary
    assert sentence in said["error"]
    assert "\n" not in said["error"]
    assert done.err == f"flywheel: {boundary}: {said['error']}\n"


def test_a_refusal_ends_the_process_without_a_traceback(turned_once: Turned) -> None:
    done = run("flywheel", "--root", str(turned_once.workspace.root), "sql", "selec 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'flywheel: lake: the query failed: Parser Error: syntax error at or near "selec"\n'


@pytest.mark.parametrize("verb", ["turn", "ingest", "history", "triage", "report"])
def test_without_a_workspace_a_verb_says_what_to_do(
    verb: str, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed(verb)
    assert (done.code, done.out) == (1, "")
    assert "run `flywheel init DIR`, or pass --root DIR" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch"], ["evaluate"], ["evaluate", "--run", "r", "--champion"], ["train"], ["gate"], ["show"],
        ["train", "--curriculum", "c", "--champion"], ["init", "here", "--root", "there"],
        ["validate", "--reason", "why"], ["turn", "--nosuch"],
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2(arguments: list[str], typed: Typed) -> None:
    done = typed(*arguments, "--json")
    assert done.code == 2, done
    assert done.err.startswith("Usage: ")
    assert last_object(done.out)["boundary"] == "usage"


def test_json_has_a_word_for_everything_that_sql_gives(turned_once: Turned) -> None:
    (row,) = flywheel(
        "sql",
        "select 'nan'::double as nan, '-inf'::float as inf, timestamptz '2026-01-02 03:04:05+00' as at, "
        "1.5::decimal as d, map {1: 'a'} as m, null as nothing, '' as empty, 'x'::blob as b, 1 as twice, 2 as twice",
        "--root",
        turned_once.workspace.root,
    )["rows"]
    assert row == {
        "nan": "nan", "inf": "-inf", "at": "2026-01-02 03:04:05+00:00", "d": "1.500", "m": {"1": "a"}, "nothing": None,
        "empty": "", "b": "b'x'", "twice": 1, "twice_1": 2,
    }  # fmt: skip


def test_init_says_what_it_made_and_a_second_one_that_it_was_there(tmp_path: Path) -> None:
    root = tmp_path / "w"
    first = run("flywheel", "--root", str(root), "--json", "init", "--base", "scripted")
    assert first.returncode == 0, first.stderr
    made = last_object(first.stdout)
    assert len(first.stdout.splitlines()) == 1
    assert (made["made"], made["root"], made["base"]) == (True, str(root), "scripted")
    assert (made["version"], made["stage"]) == ("v0.1.0", "production")
    assert flywheel("init", root) == {**made, "made": False}
    other = flywheel("init", root, "--base", "smollm2", exits=1)
    assert "choose another folder" in other["error"]


def test_traces_come_in_by_file_and_folder_and_are_judged(served: Workspace, tmp_path: Path, said: Said) -> None:
    """From a fresh workspace: landed traffic, a folder and a file are one batch; again, nothing is new."""
    written(tmp_path / "in" / "a.jsonl", *map(chat, range(3)))
    written(tmp_path / "in" / "deeper" / "b.jsonl", chat(3), "this is no JSON")
    single = written(tmp_path / "c.jsonl", chat(4))
    first = flywheel("ingest", tmp_path / "in", single, "--root", served.root)
    assert set(first) == INGEST_KEYS == set(INGEST_SAYS)
    n = SCRIPTED.tasks.train + 5
    assert (first["files"], first["records"], first["trajectories"], first["quarantined"]) == (4, n + 1, n, 1)
    assert (first["skipped"], first["formats"]) == (0, {"openai_chat": 4})
    again = said("ingest", tmp_path / "in", single, "--root", served.root)
    assert (again["batch"], again["files"], again["skipped"]) == (None, 0, 4)
    assert again["snapshot"] == first["snapshot"]

    staged = said("ingest", "--stage-only", written(tmp_path / "d.jsonl", chat(5)), "--root", served.root)
    assert set(staged) == INGEST_KEYS
    assert (staged["trajectories"], staged["snapshot"]) == (1, first["snapshot"])
    (verdict,) = said("validate", "--root", served.root)["judged"]
    assert (verdict["batch"], verdict["state"], verdict["failed"]) == (staged["batch"], "accepted", [])


def test_a_batch_that_fails_is_exit_1_and_stays_until_a_person_accepts_it(
    served: Workspace, tmp_path: Path, typed: Typed, said: Said
) -> None:
    bad = written(tmp_path / "bad.jsonl", *map(chat, range(20)), *["{not json"] * 20)
    said("ingest", "--stage-only", "--root", served.root)  # the landed traffic is a batch of its own
    done = typed("ingest", str(bad), "--root", str(served.root), "--json")
    assert done.code == 1
    failed = last_object(done.out)
    assert (failed["trajectories"], failed["quarantined"]) == (20, 20)
    (sentence,) = [line for line in done.err.splitlines() if line.startswith("flywheel: ")]
    assert sentence.startswith(f"flywheel: validate: {failed['batch']} failed and stays staged: source_file: not so: ")
    counts = "select format, count(*) as n from trajectory group by 1"
    others = said("sql", counts, "--root", served.root)["rows"]
    assert others == [{"format": "openai_chat", "n": SCRIPTED.tasks.train}]

    forced = said("validate", "--accept", failed["batch"], "--reason", "a drill", "--root", served.root)
    assert [verdict["state"] for verdict in forced["judged"]] == ["forced"]
    state = f"select state, reason from batch where batch_id = '{failed['batch']}'"
    assert said("sql", state, "--root", served.root)["rows"] == [{"state": "forced", "reason": "a drill"}]


def test_every_stage_runs_by_itself_and_says_the_same_as_the_turn(turned_copy: Turned, said: Said) -> None:
    turn, at = turned_copy.result, ("--root", turned_copy.workspace.root)
    assert said("triage", *at)["batch"] is None
    assert said("repair", *at)["refused"] == {"already_tried": turn["results"]["repair"]["failing"]}
    assert said("curate", *at)["curriculum_id"] == turn["curriculum"]
    assert said("train", "--curriculum", turn["curriculum"], *at)["run_id"] == turn["run"]
    assert said("evaluate", "--run", turn["run"], *at)["evaluation_id"] == turn["candidate"]
    assert said("evaluate", "--stage", "v0.1.0", *at)["evaluation_id"] == turn["incumbent"]
    gated = said("gate", "--candidate", turn["candidate"], "--incumbent", turn["incumbent"], *at)
    assert (gated["decision_id"], gated["verdict"]) == (turn["decision"], "PROMOTE")
    assert flywheel("promote", "--run", turn["run"], "--decision", turn["decision"], *at)["promoted"] is True
    assert said("report", *at)["turn"] == turn["turn"]
    assert said("rollback", "v0.1.0", *at)["version"] == "v0.1.0"
    assert [v["stages"] for v in said("history", *at)["versions"]] == [["production"], []]
    assert said("lake", "compact", *at)["what"] == "compact"
    assert said("lake", "vacuum", *at)["what"] == "vacuum"
    assert said("tasksets", "build", "more", "-n", "4", *at)["tasks"] == 4


def test_not_promoting_and_nothing_to_do_are_honest_ends(turned_copy: Turned, said: Said) -> None:
    turn, at = turned_copy.result, ("--root", turned_copy.workspace.root)
    again = said("turn", "--plain", *at)
    assert (again["new"], again["why"]) == (False, "nothing new since the last turn")
    toml = turned_copy.workspace.config_file
    toml.write_text(toml.read_text().replace("min_groups = 12", "min_groups = 500"))
    gated = said("gate", "--candidate", turn["candidate"], "--incumbent", turn["incumbent"], *at)
    assert gated["verdict"] != "PROMOTE"
    kept = said("promote", "--run", turn["run"], "--decision", gated["decision_id"], *at)
    assert (kept["promoted"], kept["version"]) == (False, "v0.2.0")
    assert kept["sentence"].startswith("not promoted, v0.2.0 stays in production")


def test_what_dvc_yaml_calls_is_a_command() -> None:
    commands = [line.split("cmd:", 1)[1] for line in TEMPLATE.read_text().splitlines() if "cmd:" in line]
    assert len(commands) == 3
    for command in commands:
        program, verb, *arguments = shlex.split(command)
        assert program == "flywheel"
        cli.commands[verb].make_context(verb, list(arguments))
