"""The quick look is a shortcut and not another opinion: every engine, and every pattern, finds the same spans."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from planted import planted
from test_redact import FRAMES, ORDINARY, PLANTED

from flywheel.saferegex import compile_safe
from flywheel.trajectory.scan import ESCAPED, GATES, PATTERNS, Engine, Rules

EVERYTHING = dict.fromkeys(range(len(GATES)))
ODD = [
    "token ", "key: ", "password=", "://u:p4ss@", "phone ", "iban ", "ssn ", "aws secret ", "=", ":", "@", "+", "(",
    '"', "\\n", "\\", "\n", "1", "é", "–", "\u00a0", "\ud800", "𝔘", "\x00", " ", "x", "[EMAIL_0123abcd]", "[at]",
    "user-0123456789abcdef", "\\u0040", "\\/", ".", "-", "/", "::", "%40",
]  # fmt: skip


def mixtures(seed: int, n: int) -> Iterator[str]:
    """Texts made of pieces of what is looked for, cut anywhere."""
    rng = random.Random(seed)
    pieces = [value for _, value in PLANTED] + [value for _, value in planted(seed, 20)] + ORDINARY
    for _ in range(n):
        parts = []
        for _ in range(rng.randrange(1, 7)):
            piece = rng.choice(pieces if rng.random() < 0.6 else ODD)
            start = 0 if rng.random() < 0.7 else rng.randrange(len(piece))
            parts.append(piece[start : None if rng.random() < 0.7 else rng.randrange(len(piece) + 1)])
        yield "".join(parts)


TEXTS = [frame.replace("{}", value) for _, value in planted(3, 12) for frame in FRAMES] + [*mixtures(5, 2500)]


@pytest.fixture(scope="module")
def reference() -> list[object]:
    rules = Rules(engine="re")
    return [rules.spans(text, EVERYTHING) for text in TEXTS]


@pytest.mark.parametrize("engine", ["hyperscan", "re2"])
def test_every_engine_finds_the_spans_of_all_patterns(engine: Engine, reference: list[object]) -> None:
    rules = Rules(engine=engine)
    suspects = rules.suspects(TEXTS)
    for ix, (text, wanted) in enumerate(zip(TEXTS, reference, strict=True)):
        assert rules.spans(text, suspects.get(ix, {})) == wanted, text
        assert rules.spans(text, rules.suspicion(text)) == wanted, text


def test_no_gate_is_narrower_than_its_pattern() -> None:
    rules = Rules()
    suspects = rules.suspects(TEXTS)
    for ix, text in enumerate(TEXTS):
        for gate, pattern in enumerate(PATTERNS):
            exact = list(pattern.spans(text))
            ends = suspects.get(ix, {}).get(gate)
            assert exact == ([] if ends is None else list(pattern.spans_near(text, ends))), (pattern.kind, text)


def test_gates_look_for_little() -> None:
    """Ordinary prose and code are passed over, or the exact patterns would have to read everything."""
    prose = (
        "The function returns a list of 12 items, e.g. for key in mapping: total += 3.5 * x[4]  # see RFC 2616\n"
        "def parse(self, text: str) -> int:\n    return int(text.strip().split('=')[1])\n"
    )
    assert Rules().suspects([prose] * 3) == {}


def test_long_buffers_and_many_texts_are_told_apart() -> None:
    texts = ["filler " * 50_000, "", "a@x.com", "é" * 400_000 + " a@x.com", "", "4111111111111111", "x" * 5_000_000]
    for engine in ("hyperscan", "re2"):
        assert sorted(Rules(engine=engine).suspects(texts)) == [2, 3, 5]


@pytest.mark.parametrize("engine", ["hyperscan", "re2", "re"])
def test_patterns_of_ones_own(engine: Engine) -> None:
    rules = Rules({"TICKET": r"^T-[0-9]{4}$", "STAFF": r"staff id (\w+)", "UML": "[äöü]{3}"}, engine=engine)
    text = "T-1234\nnot T-1234, staff id bob7, \ud800 äöü, jane@x.com"
    spans = rules.spans(text, rules.suspicion(text))
    assert [(span.kind, text[span.start : span.end]) for span in spans] == [
        ("TICKET", "T-1234"),
        ("STAFF", "bob7"),
        ("UML", "äöü"),
        ("EMAIL", "jane@x.com"),
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(?<=id )\d+", "look-around"),
        (r"(a)\1", "no back references"),
        (r"(a*)*", "matches the empty text"),
        (r"(", "missing"),
        (r"\Aid", "ends of a line"),
        (r"a{1,5000}", "RE2"),
    ],
)
def test_what_re2_refuses_is_refused_with_a_reason(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        compile_safe(pattern)


def test_a_pattern_that_would_hang_a_backtracking_engine_does_not() -> None:
    assert list(compile_safe(r"(x+x+)+y").spans("x" * 100_000)) == []


def test_escapes_are_suspected() -> None:
    assert ESCAPED in Rules().suspicion("jane\\u0040example.com")
    assert ESCAPED in Rules().suspicion("https:\\/\\/u:p4ssword@h")
