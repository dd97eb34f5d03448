"""kill -9, races and readers: nothing lost, nothing doubled, nothing half-published is ever seen."""

from __future__ import annotations

import signal
from multiprocessing.context import ForkServerContext

import pytest
from lake_rows import batches, counts, publish_all, publish_until_killed, read_the_file, rows_of

from flywheel.records import content_id
from flywheel.store.lake import Lake
from flywheel.store.lake_maintain import verify

# (function of lake_publish, which call of it, after it?): a batch of four tables makes six appends, in the order of
# TABLES (trajectory, step, tool_call, outcome, batch, snapshot), then the record and HEAD, then the tidying up.
KILLS = [
    ("_append", 1, False),
    ("_append", 1, True),
    ("_append", 6, True),
    ("write_deltalake", 2, True),
    ("write_snapshot", 1, True),
    ("drop_staged", 1, False),
    ("drop_staged", 1, True),
]


def one_of_each(lake: Lake, n_batches: int, size: int = 4) -> None:
    """Every row of `batches(n_batches, size)` is in the lake exactly once."""
    rows = n_batches * size
    assert counts(lake) == {
        "trajectory_all": rows,
        "step_all": 3 * rows,
        "tool_call_all": rows,
        "outcome": rows,
        "batch_all": n_batches,
        "snapshot": n_batches,
    }
    assert verify(lake) == []


@pytest.mark.parametrize(("where", "nth", "after"), KILLS)
def test_killed_anywhere_a_publish_is_finished_by_the_next(
    lake: Lake, processes: ForkServerContext, where: str, nth: int, after: bool
) -> None:
    todo = batches(3)
    undisturbed = [content_id("snapshot", None, "batch-0")]
    for batch_id in ("batch-1", "batch-2"):
        undisturbed.append(content_id("snapshot", undisturbed[-1], batch_id))

    first = lake.publish("batch-0", todo["batch-0"])
    arguments = (lake.workspace.root, "batch-1", todo["batch-1"], where, nth, after)
    child = processes.Process(target=publish_until_killed, args=arguments)
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL

    head = lake.head()
    assert head is not None
    visible = 2 if head.snapshot_id == undisturbed[1] else 1  # all of the batch or nothing of it
    assert (visible == 1) == (head == first)
    assert counts(lake)["trajectory_all"] == 4 * visible and counts(lake)["step_all"] == 12 * visible
    assert [problem for problem in verify(lake) if "killed half-way" in problem]

    other = lake.publish("batch-2", todo["batch-2"])  # somebody else's batch is what comes next
    again = lake.publish("batch-1", todo["batch-1"])
    assert [first.snapshot_id, again.snapshot_id, other.snapshot_id] == undisturbed
    one_of_each(lake, 3)
    assert not list(lake.workspace.staging.iterdir())


def test_killed_at_any_moment_and_started_again(lake: Lake, processes: ForkServerContext) -> None:
    todo = batches(3)
    gate = processes.Event()
    gate.set()
    killed = 0
    for attempt in range(40):
        child = processes.Process(target=publish_all, args=(lake.workspace.root, todo, 0, gate))
        child.start()
        child.join(0.25 * (attempt + 1))
        if child.exitcode is not None:
            assert child.exitcode == 0
            break
        child.kill()
        child.join()
        killed += 1
    assert killed
    one_of_each(lake, 3)


def test_two_processes_race_for_the_same_batches(lake: Lake, processes: ForkServerContext) -> None:
    todo = batches(3)
    gate = processes.Event()
    children = [
        processes.Process(target=publish_all, args=(lake.workspace.root, todo, seed, gate)) for seed in (0, 0, 1)
    ]
    for child in children:
        child.start()
    gate.set()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0, 0]
    one_of_each(lake, 3)


def test_two_processes_publish_different_batches_with_common_rows(lake: Lake, processes: ForkServerContext) -> None:
    gate = processes.Event()
    sides = [
        {"left": rows_of("a", "b", "shared"), "left-2": rows_of("c")},
        {"right": rows_of("shared", "x"), "right-2": rows_of("c", content="v2")},
    ]
    children = [processes.Process(target=publish_all, args=(lake.workspace.root, side, 0, gate)) for side in sides]
    for child in children:
        child.start()
    gate.set()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert verify(lake) == []
    revisions = lake.query("SELECT trajectory_id, count(*) AS n, max(revision) AS last FROM trajectory_all GROUP BY 1")
    assert {row["trajectory_id"]: (row["n"], row["last"]) for row in revisions} == {
        "a": (1, 0), "b": (1, 0), "x": (1, 0), "shared": (1, 0), "c": (2, 1),
    }  # fmt: skip
    assert lake.query("SELECT count(*) AS n FROM batch") == [{"n": 4}]


def test_the_file_is_whole_whenever_somebody_opens_it(lake: Lake, processes: ForkServerContext) -> None:
    todo = batches(5)
    lake.publish("batch-0", todo["batch-0"])
    answers, stop = processes.Queue(), processes.Event()
    reader = processes.Process(target=read_the_file, args=(lake.workspace.root, answers, stop))
    reader.start()
    seen = [answers.get(timeout=30)]
    for batch_id, rows in todo.items():
        lake.publish(batch_id, rows)
    stop.set()
    while reader.is_alive() or not answers.empty():
        if not answers.empty():
            seen.append(answers.get())
        reader.join(0.05)
    assert reader.exitcode == 0
    assert seen[0] == (4, 12) and set(seen) <= {(4 * n, 12 * n) for n in range(1, 6)}
    assert seen == sorted(seen) and len(set(seen)) > 2  # it did look while publishes went on
    one_of_each(lake, 5)
