"""What redaction looks for: one pattern a kind, and a check where a shape alone would take too much.

Written for support messages and agent traces, where order numbers (`ORD-48213`, `#48213`, `A-1029`), amounts
(`$1,234.50`) and dates are everywhere and must stay: a bare run of digits is never enough. Cards need a known prefix
and the Luhn sum, IBANs the country's length and mod 97, addresses must parse, phones need a `+`, the North American
shape, or a word like `phone` before them.

Not covered: names, postal addresses, free-standing secrets without a known prefix (entropy).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

SHORTEST = 6  # `a@b.co`: nothing shorter can match

Check = Callable[[re.Match[str]], tuple[int, int] | None]
"""From a match to the span that is to be replaced; None leaves it."""

# Where a token may begin: not inside a word, or right after an escape (`\n` is two characters in undecoded JSON).
_L = r"(?:(?<!\w)|(?<=\\[nrt]))"

_API_PREFIXES = (
    r"sk-(?:ant-|proj-|or-v1-|lf-)?[A-Za-z0-9_-]{20,}", r"pk-lf-[A-Za-z0-9-]{20,}",
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}", r"gh[pousr]_[A-Za-z0-9]{36,}", r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|ptt|dt|rt)-[A-Za-z0-9_-]{20,}", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", r"xapp-[A-Za-z0-9-]{20,}",
    r"AIza[A-Za-z0-9_-]{35}", r"ya29\.[A-Za-z0-9_-]{20,}", r"GOCSPX-[A-Za-z0-9_-]{20,}", r"hf_[A-Za-z0-9]{30,}",
    r"gsk_[A-Za-z0-9]{20,}", r"npm_[A-Za-z0-9]{36}", r"pypi-[A-Za-z0-9_-]{16,}", r"dop_v1_[a-f0-9]{64}",
    r"dapi[a-f0-9]{32}", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    r"whsec_[A-Za-z0-9]{16,}", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}", r"key-[a-f0-9]{32}",
    r"sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
)  # fmt: skip
_API_SIGNS = (
    "sk-", "sk_", "rk_", "pk_", "pk-lf-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glptt-",
    "gldt-", "glrt-", "xox", "xapp-", "aiza", "ya29.", "gocspx-", "hf_", "gsk_", "npm_", "pypi-", "dop_v1_", "dapi",
    "shpat_", "shpca_", "shppa_", "shpss_", "sg.", "whsec_", "lsv2_", "key-", "sq0atp-", "sq0csp-", "age-secret-key-",
)  # fmt: skip
_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15,
    "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19,
    "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
_NUMBER_OF_SOMETHING = re.compile(
    r"(?i)(?:order|invoice|ticket|case|ref|reference|tracking|item|sku|serial|part|model|booking|reservation)\W{0,3}"
    r"(?:(?:number|nr|no|id)\W{0,3}){0,2}(?:is\s)?$"
)
_VERSION_OF_SOMETHING = re.compile(r"(?i)(?:version|ver|release|build|section|chapter)\W{0,2}$")
_DATE = re.compile(r"\+?\d{4}[-./]\d{1,2}[-./]\d{1,2}|\+?\d{1,2}[-./]\d{1,2}[-./]\d{4}(?!\d)")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of secret or personal datum.

    `signs` are what a text must have one of (in lower case) for the pattern to match at all, and `shape` what it must
    have besides. Looking for them is many times faster than trying the pattern.
    """

    kind: str
    regex: re.Pattern[str]
    check: Check
    signs: tuple[str, ...] = ()
    shape: re.Pattern[str] | None = None


def suspects(text: str) -> tuple[Pattern, ...]:
    """The patterns worth trying on the text; none for most texts, at the price of one look."""
    if len(text) < SHORTEST:
        return ()
    return _looked_up(text) if len(text) < 64 else _look(text)  # names, roles and states come again and again


def _look(text: str) -> tuple[Pattern, ...]:
    lower = text.lower()
    shapes = {shape for shape in _SHAPES if shape.search(text) is not None}
    return tuple(
        pattern
        for pattern in PATTERNS
        if (pattern.shape is None or pattern.shape in shapes)
        and (not pattern.signs or any(sign in lower for sign in pattern.signs))
    )


_looked_up = lru_cache(maxsize=4096)(_look)


def _whole(match: re.Match[str]) -> tuple[int, int] | None:
    return match.span()


def _group(match: re.Match[str]) -> tuple[int, int] | None:
    return match.span(1)


def _secret(match: re.Match[str]) -> tuple[int, int] | None:
    """An assigned value that looks like one: letters and digits, no call, no variable."""
    value = match.group(1)
    is_code = any(mark in value for mark in ("(", "$", "{")) or value.startswith(("os.", "process.", "self."))
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return match.span(1) if mixed and not is_code else None


def _email(match: re.Match[str]) -> tuple[int, int] | None:
    """`git@host:path` is an address of a repository, not of a person."""
    rest = match.string[match.end() : match.end() + 1]
    return None if match.group().startswith("git@") and rest == ":" else match.span()


def _card(match: re.Match[str]) -> tuple[int, int] | None:
    """A number that a brand issues and whose Luhn sum is right; what follows it may be the security code."""
    for end in (match.end(), match.start(1)):
        digits = re.sub(r"\D", "", match.string[match.start() : max(end, match.start())])
        doubled = (int(d) * (2 if ix % 2 else 1) for ix, d in enumerate(reversed(digits)))
        if _is_issued(digits) and sum(d // 10 + d % 10 for d in doubled) % 10 == 0:
            return match.start(), end
    return None


def _is_issued(digits: str) -> bool:
    """Whether the prefix and the length are those of a card brand."""
    size, two, four = len(digits), int(digits[:2] or 0), int(digits[:4] or 0)
    return (
        (two // 10 == 4 and size in (13, 16, 19))
        or (size == 16 and (51 <= two <= 55 or 2221 <= four <= 2720 or four == 6011 or two == 65 or two == 35))
        or (size == 15 and two in (34, 37))
        or (size == 14 and two in (30, 36, 38, 39))
        or (16 <= size <= 19 and two == 62)
    )


def _iban(match: re.Match[str]) -> tuple[int, int] | None:
    """The country says how long it is; what follows in capitals may be the next word."""
    wanted, taken = _IBAN_LENGTHS.get(match.group()[:2], 0), 0
    for offset, char in enumerate(match.group()):
        taken += char not in " -"
        if taken == wanted:
            end = match.start() + offset + 1
            compact = re.sub(r"[ -]", "", match.string[match.start() : end])
            number = int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4]))
            is_cut = match.string[end : end + 1].isalnum()
            return (match.start(), end) if number % 97 == 1 and not is_cut else None
    return None


def _address(match: re.Match[str]) -> tuple[int, int] | None:
    """A routable IPv4 or IPv6 address; loopback and `0.0.0.0` say nothing about anybody."""
    if _VERSION_OF_SOMETHING.search(_before(match)):
        return None
    try:
        address = ipaddress.ip_address(match.group())
    except ValueError:
        return None
    return None if address.is_loopback or address.is_unspecified else match.span()


def _phone(match: re.Match[str]) -> tuple[int, int] | None:
    number = match.group(1)
    digits = sum(char.isdigit() for char in number)
    if not 7 <= digits <= 15 or _DATE.match(number) or _NUMBER_OF_SOMETHING.search(_before(match, 1)):
        return None
    return match.span(1)


def _phone_abroad(match: re.Match[str]) -> tuple[int, int] | None:
    """`+` and a country code. Written without blanks it needs more digits: a diff adds lines like `+20240520`."""
    number = match.group(1)
    digits = sum(char.isdigit() for char in number)
    enough = 10 if number.isdigit() else 8
    return match.span() if enough <= digits <= 15 and not _DATE.match(number) else None


def _before(match: re.Match[str], group: int = 0) -> str:
    return match.string[max(0, match.start(group) - 40) : match.start(group)]


# A digit that doesn't continue a word or a number. Led by the digit, so that the engine can jump to the next one.
_D = r"\d(?:(?<![\w.-]\d)|(?<=\\[nrt]\d))"
_DIGITS = re.compile(r"\d[\d ().-]{4,}\d")
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:")
_COUNTRY = re.compile(r"[A-Z]{2}\d{2}[ -]?[A-Z0-9]{4}")
_SHAPES = (_DIGITS, _COLONS, _COUNTRY)

_SECRET_WORDS = (
    "passw", "pwd", "passphrase", "secret", "api_key", "api-key", "apikey", "access_key", "access-key", "accesskey",
    "access_token", "access-token", "accesstoken", "auth_token", "auth-token", "authtoken", "refresh_token",
    "refresh-token", "refreshtoken", "private_key", "private-key", "privatekey", "credential", "authorization",
)  # fmt: skip
_PHONE_WORDS = ("phone", "tel", "mobile", "cell", "fax", "whatsapp", "sms", "call", "reach", "text")

PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "PRIVATE_KEY",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
        ),
        _whole,
        signs=("-----begin ",),
    ),
    Pattern("TOKEN", re.compile(_L + r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), _whole, signs=("eyj",)),
    Pattern(
        "TOKEN",
        re.compile(r"(?i)\b(?:bearer|basic|token)\s{1,3}([A-Za-z0-9._~+/-]{16,}={0,2})"),
        _secret,
        signs=("bearer", "basic", "token"),
    ),
    Pattern("API_KEY", re.compile(_L + "(?:" + "|".join(_API_PREFIXES) + ")"), _whole, signs=_API_SIGNS),
    Pattern(
        "AWS_KEY",
        re.compile(_L + r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{16}(?!\w)"),
        _whole,
        signs=("akia", "asia", "abia", "acca", "agpa", "aida", "aroa", "anpa", "anva", "aipa"),
    ),
    Pattern(
        "AWS_KEY",
        re.compile(
            r"(?i)aws[^\n]{0,30}?(?:secret|key)[^\n]{0,20}?[\"'=:\s]([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        ),
        _group,
        signs=("aws",),
    ),
    Pattern("SECRET", re.compile(r"://[^\s/:@\"']{0,64}:([^\s/@\"'\[\]]{1,128})@"), _group, signs=("://",)),
    Pattern(
        "SECRET",
        re.compile(
            r"(?i)(?:passw(?:or)?d|passwd|pwd|passphrase|secret|api[_-]?key|access[_-]?key|access[_-]?token|"
            r"auth[_-]?token|refresh[_-]?token|private[_-]?key|credential)s?[\"']?\s{0,3}(?:[:=]|\bis\b)\s{0,3}[\"']?"
            r"([^\s\"',;<>\[\]\\]{6,200})"
        ),
        _secret,
        signs=_SECRET_WORDS,
    ),
    Pattern(
        "EMAIL",
        re.compile(_L + r"[\w.%+-]{1,128}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?!\w)"),
        _email,
        signs=("@",),
    ),
    Pattern("IBAN", re.compile(_L + r"[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}"), _iban, shape=_COUNTRY),
    Pattern(
        "PHONE",
        re.compile(r"\+(?<![\w+]\+)(\d(?:[ .-]?(?:\(\d{1,4}\)|\d)){5,14})(?!\w|-\d)"),
        _phone_abroad,
        signs=("+",),
    ),
    Pattern(
        "CARD",
        re.compile(
            _D + r"(?:\d{3}(?:[ -]\d{4}){3}([ -]\d{1,3})?|(?<=3)[47]\d{2}[ -]\d{6}[ -]\d{5}|\d{12,18})(?![\w-]|\.\d)"
        ),
        _card,
        shape=_DIGITS,
    ),
    Pattern(
        "SSN",
        re.compile(r"\d(?<![\w.-]\d)(?<!9)\d{2}(?<!000)(?<!666)-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"),
        _whole,
        shape=_DIGITS,
    ),
    Pattern("IP", re.compile(_D + r"\d{0,2}(?:\.\d{1,3}){3}(?!\w|\.\d)"), _address, shape=_DIGITS),
    Pattern(
        "IP",
        re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7}(?![\w:])"),
        _address,
        shape=_COLONS,
    ),
    Pattern(
        "PHONE",
        re.compile(r"(?<![\w#$€£.-])((?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[.-])\d{3}[.-]\d{4})(?![\w-])"),
        _phone,
        shape=_DIGITS,
    ),
    Pattern(
        "PHONE",
        re.compile(
            r"(?i)\b(?:phone|tel|telephone|mobile|cell|fax|whatsapp|sms|(?:call|reach|text) (?:me|us) (?:at|on))\b"
            r"[^\d\n$€£#+(]{0,20}([+(]?\d[\d ().-]{5,18}\d)(?!\w)"
        ),
        _phone,
        signs=_PHONE_WORDS,
        shape=_DIGITS,
    ),
)
