"""How order ids, amounts, dates and names are written in messages, per side of the split, and read back.

Two directions that share no code: `write_*` renders a known value (the generator's side), `find_*` reads every value
of a type that stands in a text (the second verifier's side). Money is Decimal throughout.
Not covered: ambiguous dates (03/04/2025) and amounts (1,234 or 1.234): the writers never make one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random

# Not from strftime, which follows the locale.
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value that stands in a text at [start, end)."""

    start: int
    end: int
    value: str


def _grouped(amount: Decimal, comma: str, dot: str) -> str:
    return f"{amount:,.2f}".replace(",", "\0").replace(".", dot).replace("\0", comma)


def _ordinal(day: int) -> str:
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


MONEY: Mapping[tuple[str, str], tuple[Callable[[Decimal], str], ...]] = {
    ("train", "plain"): (lambda a: f"${a:.2f}", lambda a: f"{a:.2f} USD"),
    ("train", "written"): (
        lambda a: f"${a:,.2f}",
        lambda a: f"USD {a:,.2f}",
        lambda a: f"{a:,.2f} dollars",
    ),
    ("held", "plain"): (lambda a: f"€{a:.2f}", lambda a: f"EUR {a:.2f}"),
    ("held", "written"): (
        lambda a: f"£{a:,.2f}",
        lambda a: f"{a:,.2f} euros",
        lambda a: f"{_grouped(a, '.', ',')} EUR",
    ),
}

DATES: Mapping[tuple[str, str], tuple[Callable[[date], str], ...]] = {
    ("train", "plain"): (lambda d: d.isoformat(),),
    ("train", "written"): (
        lambda d: f"{d.day} {MONTHS[d.month - 1]} {d.year}",
        lambda d: f"{MONTHS[d.month - 1]} {d.day}, {d.year}",
        lambda d: f"{MONTHS[d.month - 1][:3]} {d.day}, {d.year}",
    ),
    ("held", "plain"): (lambda d: f"{d:%Y/%m/%d}",),
    ("held", "written"): (
        lambda d: f"{_ordinal(d.day)} of {MONTHS[d.month - 1]} {d.year}",
        lambda d: f"{d.day:02d}-{MONTHS[d.month - 1][:3]}-{d.year}",
        lambda d: f"{MONTHS[d.month - 1]} {_ordinal(d.day)} {d.year}",
    ),
}


def _letters(rng: Random, n: int) -> str:
    return "".join(rng.choices("ABCDEFGHKLMNPRSTUVWXZ", k=n))


ORDERS: Mapping[tuple[str, str], tuple[Callable[[Random], str], ...]] = {
    ("train", "plain"): (lambda r: f"#{r.randint(100000, 999999)}", lambda r: f"{r.randint(10000, 99999)}"),
    ("train", "written"): (
        lambda r: f"ORD-{r.randint(10000, 99999)}",
        lambda r: f"{_letters(r, 2)}{r.randint(1000, 9999)}",
    ),
    ("held", "plain"): (
        lambda r: f"{r.randint(1000000, 9999999)}",
        lambda r: f"#{r.randint(10, 99)}-{r.randint(1000, 9999)}",
    ),
    ("held", "written"): (
        lambda r: f"{_letters(r, 3)}-{r.randint(100, 999)}-{r.randint(10, 99)}",
        lambda r: f"SO/{r.randint(10000, 99999)}",
        lambda r: f"#{r.randint(1000, 9999)}-{_letters(r, 1)}",
    ),
}

NAMES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "train": (
        ("Anna", "Ben", "Carla", "David", "Fatou", "George", "Hana", "Ivan", "Julia", "Lena", "Omar", "Paul"),
        ("Archer", "Brandt", "Costa", "Fischer", "Garcia", "Hughes", "Jansen", "Lopez", "Mason", "Novak", "Smith"),
    ),
    "held": (
        ("Alice", "Bruno", "Clara", "Daniel", "Elif", "Felix", "Grace", "Hugo", "Irene", "Kofi", "Maria", "Peter"),
        ("Adams", "Bauer", "Cohen", "Dumont", "Eriksen", "Ferrari", "Green", "Ito", "Keller", "Moreau", "Okafor"),
    ),
}


# --- Reading back: every written form of both sides --------------------------------------------------------------

_NUMBER = r"\d{1,3}(?:[.,]\d{3})+[.,]\d{2}|\d+[.,]\d{2}"
_MONEY = re.compile(
    rf"(?:[$€£]\s?|\b(?:USD|EUR|GBP)\s)(?P<a>{_NUMBER})(?!\d)|(?<![\w.,])(?P<b>{_NUMBER})\s(?:USD|EUR|GBP|dollars|euros)\b"
)
_MONTH_NAMES = {name[:3].lower(): ix + 1 for ix, name in enumerate(MONTHS)}
_MONTH = r"(?P<m>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DATES = (
    re.compile(r"\b(?P<y>\d{4})[-/](?P<m>\d{2})[-/](?P<d>\d{2})\b"),
    re.compile(rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\sof\s|[\s-]){_MONTH}[\s-](?P<y>\d{{4}})\b"),
    re.compile(rf"\b{_MONTH}\s(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s(?P<y>\d{{4}})\b"),
)
_ORDER = re.compile(
    r"(?<![\w/@.-])(?:[A-Z]{2,3}[-/]?\d{3,5}(?:-\d{2})?|#?\d{2}-\d{4}|#?\d{4,7}(?:-[A-Z])?)(?![\w/@-]|[.,]\d)"
)
_NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b(?! \d)")


def find_money(text: str) -> Iterator[Found]:
    """Amounts that carry a currency, as a plain decimal: the last separator is the decimal one."""
    for match in _MONEY.finditer(text):
        digits = re.sub(r"[.,]", "", match["a"] or match["b"])
        yield Found(match.start(), match.end(), str(Decimal(digits) / 100))


def find_dates(text: str) -> Iterator[Found]:
    """Dates that exist, as YYYY-MM-DD."""
    for pattern in _DATES:
        for match in pattern.finditer(text):
            month = int(match["m"]) if match["m"].isdigit() else _MONTH_NAMES[match["m"].lower()]
            value = f"{match['y']}-{month:02d}-{int(match['d']):02d}"
            if _exists(int(match["y"]), month, int(match["d"])):
                yield Found(match.start(), match.end(), value)


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def find_orders(text: str) -> Iterator[Found]:
    """Order ids, without '#'. Digits that belong to an amount or a date are not one."""
    taken = [*find_money(text), *find_dates(text)]
    for match in _ORDER.finditer(text):
        if not any(f.start <= match.start() < f.end for f in taken):
            yield Found(match.start(), match.end(), match[0].removeprefix("#"))


def find_names(text: str) -> Iterator[Found]:
    """First and last name: two capitalised words side by side."""
    for match in _NAME.finditer(text):
        yield Found(match.start(), match.end(), match[0])
