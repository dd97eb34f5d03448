"""Listing a large prefix without listing all of it each time: which pages of it to ask for.

A listing gives pages of up to 1,000 keys in the server's order, from any key on (StartAfter). Up to `BUDGET` pages all
are asked for, always. Beyond that a run asks for:
  1. the end of the order, and the places where the newest objects lie (by LastModified), each from a quarter page
     before on. Keys that grow with time, flat or in folders of tenants or days, are found there, in a page or two;
  2. the rest of the budget from where the last run stopped, round and round: keys in no order (hashes) come with it.
After `full_hours` everything is listed again. So a new key is seen at once if keys grow with time, else after
`pages / (BUDGET - windows)` runs, and after `full_hours` at the latest: nothing is missed for ever.

The order is told from a full listing: by bytes (Amazon) or folder by folder (SeaweedFS). Of a server with any other
order all is listed, always. What was deleted is forgotten by full listings only.

Not covered: notifications (SQS, webhooks), inventories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

PAGE = 1000
BUDGET = 20
WINDOWS = 8  # places where the newest objects lie, at most
NEWEST = 512  # objects whose places are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One object as the server lists it."""

    size: int
    etag: str
    modified: float  # seconds since 1970


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer: the objects that count of it, and its last key."""

    last: str
    items: Mapping[str, Listed]


class Dated(Protocol):
    """What is known of an object."""

    @property
    def modified(self) -> float: ...


Pages = Callable[[str], Iterator[Page]]
"""The pages of the listing in the server's order, from after the given key on ('': from the start)."""

ORDERS: dict[str, Callable[[str], str]] = {
    "bytes": lambda key: key,  # code points sort as their UTF-8 does
    "folders": lambda key: key.replace("/", "\0"),
}


@dataclass(slots=True)
class Sweep:
    """What was listed in one run, and where the next one goes on."""

    found: dict[str, Listed] = field(default_factory=dict)
    pages: int = 0
    full: bool = False
    order: str = ""  # of the server, after a full listing; '': none of ours
    cursor: str = ""


def everything(pages: Pages) -> Sweep:
    """A full listing."""
    sweep = Sweep(full=True)
    for page in pages(""):
        sweep.pages += 1
        sweep.found.update(page.items)
    keys = list(sweep.found)
    sweep.order = next((name for name, rank in ORDERS.items() if all(rank(a) < rank(b) for a, b in pairwise(keys))), "")
    return sweep


def needs_full(n_known: int, order: str, page: int = PAGE) -> bool:
    """Whether so little is there, or in such an order, that all of it is listed."""
    return n_known <= BUDGET * page or order not in ORDERS


def some(pages: Pages, known: Mapping[str, Dated], order: str, cursor: str, page: int = PAGE) -> Sweep:
    """The places where new objects are likely, and a part of the rest: `BUDGET` pages, and as many as hold new keys."""
    keys = sorted(known, key=ORDERS[order])
    sweep = Sweep(cursor=cursor, order=order)
    for start in starts(keys, known, page):
        _follow(sweep, pages(keys[start - 1] if start else ""), known)
    around = pages(cursor)
    while sweep.pages < BUDGET:
        got = next(around, None)
        if got is None:
            sweep.cursor = ""
            break
        sweep.pages += 1
        sweep.found.update(got.items)
        sweep.cursor = got.last
    return sweep


def starts(keys: Sequence[str], known: Mapping[str, Dated], page: int = PAGE) -> list[int]:
    """Positions in the order from which a page holds the end, and the newest objects."""
    position = {key: ix for ix, key in enumerate(keys)}
    newest = sorted(keys, key=lambda key: (known[key].modified, position[key]), reverse=True)[:NEWEST]
    before = page // 4
    chosen: list[int] = [max(0, len(keys) - before)]
    for key in newest:
        at = position[key]
        if len(chosen) < WINDOWS and not any(start <= at < start + page - before for start in chosen):
            chosen.append(max(0, at - before))
    return chosen


def _follow(sweep: Sweep, pages: Iterable[Page], known: Mapping[str, Dated]) -> None:
    """One page, and the next as long as there is something new."""
    for page in pages:
        sweep.pages += 1
        new = any(key not in known and key not in sweep.found for key in page.items)
        sweep.found.update(page.items)
        if not new:
            break
