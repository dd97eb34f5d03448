"""What redaction looks for: one pattern a kind, a check where a shape alone would take too much, and a gate.

Written for support messages and agent traces, where order numbers (`ORD-48213`, `#48213`, `A-1029`), amounts
(`$1,234.50`) and dates are everywhere and must stay: a bare run of digits is never enough.

`regex` is exact and slow. `gate` is a looser expression over the UTF-8 bytes, without look-around, that every text the
pattern matches has a match of: `scan.py` looks for all gates at once. A gate may begin with the byte before the match
(a text never begins its buffer) and ends as soon as it is decided. `tests/trajectory/test_scan.py` holds each gate
against its pattern.

Home-made because of speed: presidio's patterns read 0.5 MB per CPU-second and detect-secrets 1.9 MB in an earlier
comparison (each with its own patterns), these 60 to 180 MB (`benchmarks/redact.py`). Their precision on traces was not
compared with ours.

Not covered: names, postal addresses, dates of birth, national numbers but the American; media.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flywheel.trajectory import checks
from flywheel.trajectory.checks import Check

SHORTEST = 6  # `a@b.co`: nothing shorter can match

# Where a token may begin: not inside a word, or right after an escape (`\n` is two characters in undecoded JSON).
L = r"(?:(?<!\w)|(?<=\\[nrt]))"
GATE_L = rb"(?:[^A-Za-z0-9_]|\\[nrt])"
# The same for numbers, which a point or a dash continues. Led by the digit, so that the engine can jump to the next.
D = r"[0-9](?:(?<![\w.-][0-9])|(?<=\\[nrt][0-9]))"
_LONGEST_FIRST = 16
_FIRST_DIGIT = re.compile(r"(?<![\w.-])[0-9]|(?<=\\[nrt])[0-9]")
GATE_D = rb"(?:[^A-Za-z0-9_.\-]|\\[nrt])"
# Blanks and dashes as they come out of word processors, too.
_S = r"[ .\u00a0\u2007\u2009\u202f\u2010\u2011\u2013-]"
_JOIN = r"[.\u2010\u2011-]"
_GATE_S = rb"[ .()/\-\x80-\xff]{0,5}"
_DIGITS = rb"(?:" + _GATE_S + rb"[0-9])"

ESCAPES = re.compile(r"\\u(00[2-7][0-9a-fA-F]|00[aA]0|20(?:0[79]|2[fF]|1[013]))|\\(/)")
"""Escapes in undecoded JSON behind which a match may hide: of ASCII, and of the blanks and dashes above."""
ESCAPES_GATE = rb"\\u00(?:[2-7]|[aA]0)|\\u20(?:0[79]|2[fF]|1[013])|\\/"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of secret or personal datum."""

    kind: str
    regex: re.Pattern[str]
    check: Check
    gate: bytes
    reach: int
    """A match of the gate ends at most this many characters after the match of `regex` that it announces begins."""
    breaks: str = ""
    """Characters that can't stand between the two: it begins after the last of them."""
    first: re.Pattern[str] | None = None
    """What every match begins with and the gate's match holds whole: quicker to look for than to try everywhere."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of everything that is to be replaced, from left to right."""
        at = 0
        while (match := self.regex.search(text, at)) is not None:
            span = self.check(match)
            if span is None:
                at = match.start() + 1  # the next one may begin inside what was no match
                continue
            yield span
            at = max(span[1], match.start() + 1)

    def spans_near(self, text: str, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The same, for a text whose gate matches end at `ends`, in order. Looks only where a match may begin."""
        at = 0
        for end in ends:
            at = max(at, end - self.reach, *(text.rfind(char, at, end) + 1 for char in self.breaks))
            while at < end:
                if self.first is not None:
                    begin = self.first.search(text, at, end)
                    if begin is None:
                        at = max(at, end - _LONGEST_FIRST)  # one may lie across the end
                        break
                    at = begin.start()
                match = self.regex.match(text, at)
                span = None if match is None else self.check(match)
                if span is not None:
                    yield span
                at = at + 1 if span is None else max(span[1], at + 1)


PERSONAL: tuple[Pattern, ...] = (
    Pattern(
        "EMAIL",
        re.compile(
            L + r"(?!(?<=\\)[nrt]@)[\w.%+-]{1,128}(?:['’][\w.%+-]{1,64})?@"
            r"(?:[\w-]{1,63}\.){1,8}(?:[^\W\d_]{2,24}|xn--[\w-]{2,40})(?!\w)"
        ),
        checks.email,
        rb"(?:[A-Zabcdefghijklmopqsuvwxyz0-9_.%+\-\x80-\xff]|[^\\][nrt])@[A-Za-z0-9_\-\\\x80-\xff]",
        reach=195,
        breaks=' \n\t"<>(,:=',
    ),
    Pattern(
        "EMAIL",
        re.compile(
            r"(?i)" + L + r"[\w.+-]{1,128}(?:%40|\s?[\[({]\s?at\s?[\])}]\s?)"
            r"(?:[\w-]{1,63}(?:\.|\s?[\[({]\s?dot\s?[\])}]\s?)){1,8}[^\W\d_]{2,24}(?!\w)"
        ),
        checks.email,
        rb"(?i)(?:%40[A-Za-z0-9_\-\x80-\xff]|[\[({][\s\x80-\xff]{0,3}at[\s\x80-\xff]{0,3}[\])}])",
        reach=150,
    ),
    Pattern(
        "IBAN",
        re.compile(
            rf"{L}[A-Za-z]{{2}}[0-9]{{2}}(?:{_S}?[A-Z0-9]){{11,30}}|{L}[a-z]{{2}}[0-9]{{2}}[a-z0-9]{{11,30}}",
        ),
        checks.iban,
        GATE_L + rb"[A-Za-z]{2}[0-9]{2}(?:(?:[ .\-\x80-\xff]{0,3}[A-Z0-9]){11}|[a-z0-9]{11})",
        reach=34,
    ),
    Pattern(
        "PHONE",
        re.compile(rf"(?:(?<![\w+])|(?<=\\[nrt]))\+([0-9](?:{_S}?(?:\([0-9]{{1,4}}\)|/?[0-9])){{5,14}})(?!\w|-[0-9])"),
        checks.phone_abroad,
        rb"(?:[^A-Za-z0-9_+]|\\[nrt])\+[0-9]" + _DIGITS + rb"{7}",
        reach=44,
    ),
    Pattern(
        "PHONE",
        re.compile(
            D
            + r"(?<=0)0([1-9][0-9]{0,2}[ \u00a0-](?:\(0\) ?)?[0-9]{2,8}(?:[ \u00a0-][0-9]{2,8}){0,4})(?![\w-]|\.[0-9])"
        ),
        checks.phone_abroad,
        GATE_D + rb"00[1-9][0-9]{0,2}[ .\-\x80-\xff]{1,3}" + _DIGITS + rb"{5}",
        reach=48,
    ),
    Pattern(
        "CARD",
        re.compile(
            D
            + rf"(?:[0-9]{{3}}(?:{_S}[0-9]{{4}}){{3}}({_S}[0-9]{{1,3}})?|(?<=3)[0-9]{{3}}{_S}[0-9]{{6}}{_S}[0-9]{{4,5}}"
            r"|[0-9]{12,18})(?![\w-]|\.[0-9])"
        ),
        checks.card,
        GATE_D + rb"[2-8][0-9]{3}(?:[ .\-\x80-\xff]{0,3}[0-9]){9}",
        reach=28,
        first=_FIRST_DIGIT,
    ),
    Pattern(
        "SSN",
        re.compile(D + r"(?<!9)[0-9]{2}(?<!000)(?<!666)-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![\w-])"),
        checks.whole,
        GATE_D + rb"[0-8][0-9]{2}-[0-9]{2}-[0-9]{4}",
        reach=14,
        first=_FIRST_DIGIT,
    ),
    Pattern(
        "SSN",
        re.compile(
            r"(?i)\b(?a:ssn|social security)(?:\W{0,3}(?:number|no|nr|is)\b){0,2}\W{1,4}"
            rf"([0-8][0-9]{{2}}{_S}?[0-9]{{2}}{_S}?[0-9]{{4}})(?![\w-])"
        ),
        checks.group,
        rb"(?i)(?:ssn|social security)[^0-9\n]{1,60}[0-8][0-9]{2}" + _GATE_S + rb"[0-9]{2}",
        reach=64,
    ),
    Pattern(
        "IP",
        re.compile(D + r"[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?!\w|\.[0-9])"),
        checks.address,
        GATE_D + rb"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]",
        reach=16,
        first=_FIRST_DIGIT,
    ),
    Pattern(
        "IP",
        re.compile(
            r"(?:(?<![\w:.])|(?<=\\[nrt]))(?:[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7}"
            r"|(?:[23][0-9A-Fa-f]{3}|[fF][c-eC-E][0-9A-Fa-f]{2})::[0-9A-Fa-f]{1,4})(?![\w:])"
        ),
        checks.address,
        rb":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]|[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}::"
        rb"|(?:[23][0-9A-Fa-f]{3}|[fF][c-eC-E][0-9A-Fa-f]{2})::[0-9A-Fa-f]",
        reach=26,
    ),
    Pattern(
        "PHONE",
        re.compile(
            rf"(?:(?<![\w#$€£.-])|(?<=\\[nrt]))((?:1{_S})?(?:\([2-9][0-9]{{2}}\){_S}?[0-9]{{3}}{_S}[0-9]{{4}}"
            rf"|(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}{_JOIN})[0-9]{{3}}{_JOIN}[0-9]{{4}}))(?![\w-])"
        ),
        checks.phone,
        rb"(?:\([2-9][0-9]{2}\)[ .\-\x80-\xff]{0,3}|[^A-Za-z0-9_#$][2-9][0-9]{2}[.\-\x80-\xff]{1,3}"
        rb"|\\[nrt][2-9][0-9]{2}[.\-\x80-\xff]{1,3})"
        rb"[0-9]{3}[ .\-\x80-\xff]{1,3}[0-9]{4}",
        reach=28,
    ),
    Pattern(
        "PHONE",
        re.compile(
            r"(?i)\b(?a:phone|ph|tel|telephone|telefon|mobile|mob|cell|fax|whatsapp|sms|contact number|"
            r"(?:call|reach|text|ring) (?:me|us|him|her|them) (?:at|on))\b"
            rf"[^0-9\n$€£#+(]{{0,20}}([+(]?[0-9](?:{_S}|[0-9()/]){{5,18}}[0-9])(?!\w)"
        ),
        checks.phone,
        rb"(?i)(?:ph|phone|tel|telefon|mobile|mob|cell|fax|whatsapp|sms|contact number"
        rb"|(?:me|us|him|her|them) (?:at|on))"
        rb"(?:[^0-9\n$#+(A-Za-z_][^0-9\n$#+(]{0,80})?[+(]?[0-9](?:[ .\-()/\x80-\xff]|[0-9]){6}",
        reach=60,
    ),
)
