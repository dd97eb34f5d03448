"""Which pages of a large listing are asked for: few, and no key is missed for ever, in whatever order it comes."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator

import pytest

from flywheel.store.objects_listing import BUDGET, ORDERS, Listed, Page, everything, needs_full, some, starts

PAGE = 10


class Bucket:
    """Keys in a server's order, and how many pages were asked for."""

    def __init__(self, rank: Callable[[str], str]) -> None:
        self.rank = rank
        self.objects: dict[str, Listed] = {}
        self.asked = 0

    def put(self, key: str, modified: float) -> None:
        self.objects[key] = Listed(size=1, etag=f"{key}-{modified}", modified=modified)

    def pages(self, after: str) -> Iterator[Page]:
        keys = sorted(self.objects, key=self.rank)
        at = bisect.bisect_right(keys, self.rank(after), key=self.rank) if after else 0
        for start in range(at, len(keys), PAGE):
            self.asked += 1
            part = keys[start : start + PAGE]
            yield Page(last=part[-1], items={key: self.objects[key] for key in part})


def days(bucket: Bucket, n: int, tenants: int = 1) -> None:
    for ix in range(n):
        bucket.put(f"t{ix % tenants}/2026-{ix // 900 + 1:02d}-{ix // 30 % 30 + 1:02d}/{ix:05d}.jsonl", float(ix))


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_is_told_from_a_full_listing(order: str) -> None:
    bucket = Bucket(ORDERS[order])
    for key in ("a/1", "a-b", "a/2", "a.x", "Z", "é", "ｚ", "😀"):
        bucket.put(key, 0.0)
    sweep = everything(bucket.pages)
    assert (sweep.order, sweep.pages, sweep.full, len(sweep.found)) == (order, 1, True, 8)
    assert everything(Bucket(lambda key: key[::-1]).pages).order == next(iter(ORDERS))  # of nothing: any
    backwards = Bucket(lambda key: "".join(chr(0x10FFFF - ord(c)) for c in key))
    backwards.objects = bucket.objects
    assert everything(backwards.pages).order == ""


def test_little_or_in_an_unknown_order_is_listed_whole() -> None:
    assert needs_full(BUDGET * PAGE, "bytes", PAGE)
    assert not needs_full(BUDGET * PAGE + 1, "bytes", PAGE)
    assert needs_full(10**6, "", PAGE)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tenants", [1, 5])
def test_keys_that_grow_with_time_are_found_in_the_next_run(order: str, tenants: int) -> None:
    bucket = Bucket(ORDERS[order])
    days(bucket, 5000, tenants)
    known = everything(bucket.pages).found
    days(bucket, 5040, tenants)  # the next day, in a new folder of each tenant
    bucket.asked = 0
    sweep = some(bucket.pages, known, order, "", PAGE)
    assert set(sweep.found) - set(known) == set(bucket.objects) - set(known)
    assert bucket.asked == sweep.pages <= BUDGET + 10


def test_late_keys_close_to_the_end_are_found_too() -> None:
    bucket = Bucket(ORDERS["bytes"])
    days(bucket, 5000)
    known = everything(bucket.pages).found
    newest = max(known)
    late = newest.replace("04999.jsonl", "04998-late.jsonl")
    assert late < newest
    bucket.put(late, 5001.0)
    assert set(some(bucket.pages, known, "bytes", "", PAGE).found) - set(known) == {late}


def test_a_burst_is_followed_to_its_end() -> None:
    bucket = Bucket(ORDERS["bytes"])
    days(bucket, 3000)
    known = everything(bucket.pages).found
    days(bucket, 6000)
    assert set(some(bucket.pages, known, "bytes", "", PAGE).found) >= set(bucket.objects) - set(known)


def test_keys_in_no_order_are_found_in_rounds() -> None:
    draw = random.Random(7)
    bucket = Bucket(ORDERS["bytes"])
    for ix in range(3000):
        bucket.put(f"{draw.getrandbits(64):016x}.jsonl", float(ix))
    known: dict[str, Listed] = dict(everything(bucket.pages).found)
    fresh = {f"{draw.getrandbits(64):016x}.jsonl" for _ in range(50)}
    for key in fresh:
        bucket.put(key, 3000.0)
    cursor, runs = "", 0
    while fresh - known.keys():
        bucket.asked = 0
        sweep = some(bucket.pages, known, "bytes", cursor, PAGE)
        assert bucket.asked <= BUDGET + len(sweep.found.keys() - known.keys())
        known.update(sweep.found)
        cursor = sweep.cursor
        runs += 1
    assert runs <= 300 // (BUDGET - 8) + 2


def test_windows_are_few_and_hold_the_newest() -> None:
    bucket = Bucket(ORDERS["bytes"])
    days(bucket, 5000, tenants=3)
    keys = sorted(bucket.objects)
    chosen = starts(keys, bucket.objects, PAGE)
    for tenant in range(3):
        newest = max(ix for ix, key in enumerate(keys) if key.startswith(f"t{tenant}/"))
        assert any(start <= newest < start + PAGE for start in chosen)
    assert len(chosen) <= 8
