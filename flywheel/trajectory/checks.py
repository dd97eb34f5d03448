"""What a shape alone can't tell: sums, lengths, prefixes, randomness and the words before a match.

Every check takes a match and gives the span to be replaced, or None to leave it. Cards need a known prefix and the
Luhn sum, IBANs the country's length and mod 97, addresses must parse, phones must not be dates or order numbers,
secrets must look random or be assigned to a name that says so.

Not covered: where to look (`patterns.py`, `secret_patterns.py`).
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

Check = Callable[[re.Match[str]], tuple[int, int] | None]
"""From a match to the span that is to be replaced; None leaves it."""

_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28,
    "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18,
    "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22,
    "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20,
    "LU": 20, "LV": 21, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27, "MT": 31, "MU": 30, "NL": 18, "NO": 15,
    "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31, "SE": 24, "SI": 19,
    "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}  # fmt: skip
_CARD_PREFIX = re.compile(
    r"4|5[1-5]|2[2-7]|3[04-9]|6011|64[4-9]|65|62|50(?:18|20|38)|5893|63|67|60|81|82"  # by the brands' own tables
)
_NUMBER_OF_SOMETHING = re.compile(
    r"(?i)(?:order|invoice|ticket|case|ref|reference|tracking|item|sku|serial|part|model|booking|reservation)\W{0,3}"
    r"(?:(?:number|nr|no|id)\W{0,3}){0,2}(?:is\s)?$"
)
_IBAN_WORD = re.compile(r"(?i)\biban\W{0,3}(?:(?:number|no|nr|is)\W{0,3}){0,2}$")
_VERSION_OF_SOMETHING = re.compile(r"(?i)(?:version|ver|release|build|section|chapter)\W{0,2}$")
_DATE = re.compile(r"\+?\d{4}[-./]\d{1,2}[-./]\d{1,2}|\+?\d{1,2}[-./]\d{1,2}[-./]\d{4}(?!\d)")
_NO_PERSON = re.compile(
    r"(?i)@(?:[a-z0-9-]+\.)*(?:openssh\.com|libssh\.org)$"  # names of ciphers
    r"|@[0-9].*\.(?:png|jpe?g|gif|svg|webp|avif|ico|m?js|cjs|jsx|tsx?|css|scss|json|html?|tgz|whl|zip)$"
)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_NAME_BEFORE = re.compile(r"[\w-]+\Z")
_STRONG_KEY = re.compile(r"(?i)(?:session|secret|sign|encrypt|service|shared|master|auth|api|access|private|account)")
_DIGEST = re.compile(r"(?i)(?:md5|sha\d{1,3})[:-]\Z")
_MASK = re.compile(r"[*•x.\s]+|<[^<>]*>", re.IGNORECASE)
_CODE = ("os.", "process.", "self.", "settings.", "config.")


def whole(match: re.Match[str]) -> tuple[int, int] | None:
    """The match as it is."""
    return match.span()


def group(match: re.Match[str]) -> tuple[int, int] | None:
    """What the first group holds."""
    return match.span(1)


def assigned(match: re.Match[str]) -> tuple[int, int] | None:
    """A value assigned to a name like `password`: letters and digits, no call, no variable."""
    value = match.group(1)
    is_code = any(mark in value for mark in ("(", "$", "{")) or value.startswith(_CODE)
    mixed = any(char.isdigit() for char in value) and any(char.isalpha() for char in value)
    return match.span(1) if mixed and not is_code else None


def random_assigned(match: re.Match[str]) -> tuple[int, int] | None:
    """A value assigned to a name like `token` that looks random."""
    before = _NAME_BEFORE.search(match.string, max(0, match.start() - 32), match.start())
    name = (before.group() if before else "") + re.split(r"[^\w-]", match.group(), maxsplit=1)[0]
    return match.span(1) if is_secret_under(name, match.group(1)) else None


def random_word(match: re.Match[str]) -> tuple[int, int] | None:
    """A word nobody could have written: capitals, small letters and digits in no order. No hash, no UUID, no path."""
    value = match.group(1).rstrip("=")
    if _DIGEST.search(match.string, max(0, match.start(1) - 8), match.start(1)):
        return None
    kinds = [_kind(char) for char in value]
    changes = sum(a != b for a, b in pairwise(kinds))
    mixed = {"a", "A", "0"} <= set(kinds)
    return match.span(1) if mixed and changes >= 0.4 * len(value) and entropy(value) >= 4.2 else None


def is_secret_under(name: str, value: str) -> bool:
    """Whether a value that looks random is a secret under a name. A `key` alone may be the hash of anything."""
    weak = name.lower().rstrip("s").endswith("key") and _STRONG_KEY.search(name) is None
    return is_random(value) and not (weak and _HEX.fullmatch(value))


def is_random(value: str) -> bool:
    """Whether a value is more likely drawn than written: by its classes of characters and its entropy."""
    digits, letters = sum(char.isdigit() for char in value), sum(char.isalpha() for char in value)
    if digits < 2 or letters < 2 or _UUID.fullmatch(value):
        return False
    if _HEX.fullmatch(value):
        return len(value) >= 20 and entropy(value) >= 2.8
    capitals = any(char.isupper() for char in value) and any(char.islower() for char in value)
    if "." in value or "/" in value:  # a path, a module, a version
        return capitals and "." not in value and entropy(value) >= 4
    drawn = any(len(word) >= 12 and not word.isalpha() and not word.isdigit() for word in re.split(r"[-_]", value))
    return drawn and entropy(value) >= 3.4


def entropy(value: str) -> float:
    """Shannon entropy in bits a character."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def _kind(char: str) -> str:
    return "0" if char.isdigit() else "A" if char.isupper() else "a" if char.islower() else "-"


def api_key(match: re.Match[str]) -> tuple[int, int] | None:
    """A key by its vendor's prefix. `sk-` begins names of CSS classes too, so a bare one must not be only words."""
    value = match.group()
    plain = value.startswith("sk-") and not value.startswith(("sk-ant-", "sk-proj-", "sk-or-", "sk-lf-", "sk-svcacct-"))
    return None if plain and not any(len(word) >= 16 for word in re.split(r"[-_]", value)) else match.span()


def is_mask(value: str) -> bool:
    """Whether somebody hid the value before us: `*****`, `xxxx`, `<your key>`."""
    return _MASK.fullmatch(value) is not None


def email(match: re.Match[str]) -> tuple[int, int] | None:
    """An address of a person: not `git@host`, not a file such as `icon@2x.png` or `jquery@3.6.0.min.js`."""
    value = match.group()
    return None if value.startswith("git@") or _NO_PERSON.search(value) else match.span()


def card(match: re.Match[str]) -> tuple[int, int] | None:
    """A number that a brand issues and whose Luhn sum is right; what follows it may be the security code."""
    for end in (match.end(), match.start(1)):
        digits = re.sub(r"[^0-9]", "", match.string[match.start() : max(end, match.start())])
        doubled = (int(d) * (2 if ix % 2 else 1) for ix, d in enumerate(reversed(digits)))
        if _is_issued(digits) and sum(d // 10 + d % 10 for d in doubled) % 10 == 0:
            return match.start(), end
    return None


def _is_issued(digits: str) -> bool:
    """Whether the prefix and the length can be those of a card brand."""
    if len(set(digits)) < 2 or _CARD_PREFIX.match(digits) is None:
        return False
    size, two = len(digits), digits[:2]
    if digits[0] == "4":
        return size in (13, 16, 19)
    if two in ("34", "37"):
        return size in (15, 16)
    if two in ("30", "36", "38", "39"):
        return size == 14
    return size == 16 or (two in ("62", "63", "67", "50") and 16 <= size <= 19)


def iban(match: re.Match[str]) -> tuple[int, int] | None:
    """As long as its country says; what follows in capitals may be the next word. The word IBAN replaces the sum."""
    wanted, taken = _IBAN_LENGTHS.get(match.group()[:2].upper(), 0), 0
    for offset, char in enumerate(match.group()):
        taken += char.isalnum()
        if taken == wanted:
            end = match.start() + offset + 1
            compact = re.sub(r"[^0-9A-Za-z]", "", match.string[match.start() : end])
            number = int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4]))
            is_cut = match.string[end : end + 1].isalnum()
            announced = number % 97 == 1 or _IBAN_WORD.search(_before(match)) is not None  # a typo is no less personal
            return (match.start(), end) if announced and not is_cut else None
    return None


def address(match: re.Match[str]) -> tuple[int, int] | None:
    """An IPv4 or IPv6 address; loopback and `0.0.0.0` say nothing about anybody."""
    if _VERSION_OF_SOMETHING.search(_before(match)):
        return None
    try:
        parsed = ipaddress.ip_address(match.group())
    except ValueError:
        return None
    return None if parsed.is_loopback or parsed.is_unspecified else match.span()


def phone(match: re.Match[str]) -> tuple[int, int] | None:
    """A number of 7 to 15 digits that is no date and not announced as the number of an order."""
    number = match.group(1)
    digits = sum(char.isdigit() for char in number)
    if not 7 <= digits <= 15 or _DATE.match(number) or _NUMBER_OF_SOMETHING.search(_before(match, 1)):
        return None
    return match.span(1)


def phone_abroad(match: re.Match[str]) -> tuple[int, int] | None:
    """`+` and a country code. Written without blanks it needs more digits: a diff adds lines like `+20240520`."""
    number = match.group(1)
    digits = sum(char.isdigit() for char in number)
    enough = 10 if number.isdigit() else 8
    return match.span() if enough <= digits <= 15 and not _DATE.match(number) else None


def _before(match: re.Match[str], of: int = 0) -> str:
    return match.string[max(0, match.start(of) - 40) : match.start(of)]
