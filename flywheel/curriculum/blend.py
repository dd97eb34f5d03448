"""Blending: how many rows of each source, in which order, and which rows each training step sees.

Everything is decided by hashes of the seed and of row ids, so the order of the input never shows in the output.

Not covered: temperature mixing over domains and floors by tokens (one domain so far), replay of older stages (issue C).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Blendable(Protocol):
    """What blending needs to know of a row."""

    @property
    def row_id(self) -> str: ...
    @property
    def stage(self) -> int: ...
    @property
    def weight(self) -> float: ...


Row = TypeVar("Row", bound=Blendable)


def lot(seed: int, *parts: object) -> float:
    """A number in [0, 1) drawn by hash: the same seed and parts draw the same number anywhere."""
    key = "\0".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def most_real(others: int, real_share: float) -> int | None:
    """How many real rows may join `others` rows so that they are at most `real_share` of all; None: any number.

    With no other rows it is 0: a curriculum of successes alone has nothing to repair.
    """
    if real_share >= 1.0:
        return None
    return math.floor(others * real_share / (1.0 - real_share) + 1e-9)


def task_weight(rows_of_task: int) -> float:
    """1/sqrt(n): a task with n rows counts sqrt(n) times, not n times (methods.md §3.1)."""
    return 1.0 / math.sqrt(rows_of_task)


def in_order(rows: Sequence[Row], seed: int) -> list[Row]:
    """Stage by stage, shuffled inside a stage."""
    return sorted(rows, key=lambda row: (row.stage, lot(seed, row.row_id), row.row_id))


def schedule(rows: Sequence[Blendable], steps: int, batch: int, seed: int) -> list[list[int]]:
    """The row numbers of each step: `steps` lists of `batch`.

    Rows are walked in their order, pass after pass; from the second pass on the order inside a stage is drawn anew.
    A row of weight w takes part in a share w of the passes (0 < w <= 1), spread evenly over them.
    """
    wanted, turn = steps * batch, 0
    walked: list[int] = []
    while rows and len(walked) < wanted:
        walked += _one_pass(rows, turn, seed)
        turn += 1
    return [walked[i : i + batch] for i in range(0, min(wanted, len(walked)), batch)]


def _one_pass(rows: Sequence[Blendable], turn: int, seed: int) -> list[int]:
    taken = []
    for number, row in enumerate(rows):
        start = lot(seed, "phase", row.row_id) if row.weight < 1.0 else 0.0
        if math.floor(start + (turn + 1) * row.weight) > math.floor(start + turn * row.weight):
            taken.append(number)
    if turn == 0:
        return taken
    return sorted(taken, key=lambda number: (rows[number].stage, lot(seed, turn, rows[number].row_id), number))
