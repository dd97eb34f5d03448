"""Results survive kill -9, come in order, and an infrastructure failure never becomes one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from flywheel.environment.executor import LocalExecutor
from flywheel.errors import ArtifactError, PolicyError, SandboxError


def named(item: int) -> str:
    return f"item {item}"


def test_results_come_in_the_order_of_the_items_and_are_made_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def square(item: int) -> dict[str, int]:
        calls.append(item)
        return {"square": item * item}

    executor = LocalExecutor(tmp_path / "work")
    items = [3, 1, 2, 3]
    expected = [{"square": i * i} for i in items]
    assert list(executor.map(square, items, named)) == expected
    assert list(LocalExecutor(tmp_path / "work").map(square, reversed(items), named)) == expected[::-1]
    assert calls == [3, 1, 2]  # equal keys once, and nothing at all the second time
    assert len(list((tmp_path / "work").iterdir())) == 3


def test_a_first_run_and_a_resumed_one_give_the_very_same_values(tmp_path: Path) -> None:
    def shaped(item: int) -> dict[object, object]:
        return {1: (item, None), "text": "\ud83d \u00e9 \x00"}

    first = list(LocalExecutor(tmp_path).map(shaped, [1], named))
    assert first == list(LocalExecutor(tmp_path).map(shaped, [1], named))
    assert first == [{"1": [1, None], "text": "\ud83d \u00e9 \x00"}]


def test_a_key_may_be_any_text(tmp_path: Path) -> None:
    keys = ["../../escape", "a/b", "x" * 4000, "\u00fc\n"]
    assert list(LocalExecutor(tmp_path / "work").map(len, keys, lambda key: key)) == [len(key) for key in keys]
    assert [p.name for p in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize("error", [PolicyError, SandboxError])
def test_infrastructure_is_tried_again_and_then_raised_as_what_it_is(
    tmp_path: Path, error: type[PolicyError | SandboxError]
) -> None:
    tries: dict[int, int] = {}

    def flaky(item: int) -> int:
        tries[item] = tries.get(item, 0) + 1
        if item == 2 or tries[item] < 3:
            raise error("the engine went away")
        return item

    executor = LocalExecutor(tmp_path, tries=3, pause_s=0.001)
    results = executor.map(flaky, [1, 2, 3], named)
    assert next(results) == 1
    with pytest.raises(error, match=r"the engine went away \(failed 3 time\(s\) on item 2;.*run again") as failed:
        next(results)
    assert type(failed.value) is error
    assert tries == {1: 3, 2: 3}
    stored = [json.loads(path.read_bytes()) for path in tmp_path.iterdir()]
    assert stored == [{"key": "item 1", "result": 1}]  # the failure left nothing that could be scored


def test_a_bug_is_not_tried_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def broken(item: int) -> int:
        calls.append(item)
        raise KeyError(item)

    with pytest.raises(KeyError):
        list(LocalExecutor(tmp_path).map(broken, [1], named))
    assert calls == [1]


def test_what_is_no_json_raises_and_leaves_no_file(tmp_path: Path) -> None:
    for value in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            list(LocalExecutor(tmp_path / "work").map(lambda _, v=value: v, [1], named))
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(("text", "says"), [(b'{"key": "item', "not a stored"), (b'{"key":"b","result":1}', "of b")])
def test_a_damaged_or_foreign_result_is_refused_by_name(tmp_path: Path, text: bytes, says: str) -> None:
    executor = LocalExecutor(tmp_path)
    list(executor.map(abs, [1], named))
    (path,) = tmp_path.iterdir()
    path.write_bytes(text)
    with pytest.raises(ArtifactError, match=says) as refused:
        list(executor.map(abs, [1], named))
    assert str(path) in str(refused.value)


def test_one_item_and_one_result_are_held_at_a_time(tmp_path: Path) -> None:
    def items() -> Iterator[int]:
        yield from range(10, 40)

    def big(item: int) -> str:
        return str(item) * 200_000

    tracemalloc.start()
    total = sum(len(result) for result in LocalExecutor(tmp_path).map(big, items(), named))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 30 * 400_000
    assert peak < 4_000_000  # all of them together are 12 MB


WORKER = """
import sys, time
from pathlib import Path
from flywheel.environment.executor import LocalExecutor

def slow(item):
    with open(sys.argv[2], "a") as log:
        log.write(f"{item}\\n")
    time.sleep(0.05)
    return item * item

print(list(LocalExecutor(Path(sys.argv[1])).map(slow, range(20), lambda item: f"item {item}")), flush=True)
"""


def test_killed_midway_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    work, log = tmp_path / "work", tmp_path / "log"
    command = [sys.executable, "-c", WORKER, str(work), str(log)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(list(work.glob("[!.]*.json"))) < 5:
        assert time.monotonic() < deadline, "the worker made no results"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    kept = {path.name: path.stat().st_mtime_ns for path in work.glob("[!.]*.json")}
    begun = log.read_text().split()
    assert 5 <= len(kept) < 20
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == [item * item for item in range(20)]
    again = log.read_text().split()[len(begun) :]
    assert [int(item) for item in again] == list(range(len(kept), 20))  # only what had no result
    assert all((work / name).stat().st_mtime_ns == made for name, made in kept.items())
