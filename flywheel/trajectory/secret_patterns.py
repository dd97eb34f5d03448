"""Keys, tokens and passwords: by their vendors' prefixes, by the name they are assigned to, by their randomness.

The prefixes are those that vendors document (and that secret scanners of code hosts look for). A value without a
prefix is taken if it is assigned to a name like `password`, or to one like `token` and looks random, or stands near
such a word and nobody could have written it (capitals, small letters and digits in no order).

Not covered: random words with no such word near them (ids and hashes look the same), secrets cut into pieces.
"""

from __future__ import annotations

import re

from flywheel.trajectory import checks
from flywheel.trajectory.patterns import GATE_L, L, Pattern

_API_KEYS = (
    r"sk-(?:ant-|proj-|or-v1-|lf-|svcacct-)?[A-Za-z0-9_-]{20,}", r"pk-lf-[A-Za-z0-9-]{20,}",
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}", r"gh[pousr]_[A-Za-z0-9]{36,}", r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|ptt|dt|rt|cbt|soat)-[A-Za-z0-9_-]{20,}", r"xox[abeoprs]-[A-Za-z0-9-]{10,}", r"xapp-[A-Za-z0-9-]{20,}",
    r"AIza[A-Za-z0-9_-]{35}", r"ya29\.[A-Za-z0-9_-]{20,}", r"GOCSPX-[A-Za-z0-9_-]{20,}", r"hf_[A-Za-z0-9]{30,}",
    r"gsk_[A-Za-z0-9]{20,}", r"npm_[A-Za-z0-9]{36}", r"pypi-[A-Za-z0-9_-]{16,}", r"dop_v1_[a-f0-9]{64}",
    r"dapi[a-f0-9]{32}", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}", r"SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16,}",
    r"whsec_[A-Za-z0-9]{16,}", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}", r"key-[a-f0-9]{32}",
    r"sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}", r"xai-[A-Za-z0-9]{40,}",
    r"r8_[A-Za-z0-9]{30,}", r"pplx-[A-Za-z0-9]{40,}", r"fw_[A-Za-z0-9]{20,}", r"nvapi-[A-Za-z0-9_-]{40,}",
    r"tvly-[A-Za-z0-9-]{20,}", r"ATATT3[A-Za-z0-9_=-]{40,}", r"lin_api_[A-Za-z0-9]{32,}", r"ntn_[A-Za-z0-9]{40,}",
    r"secret_[A-Za-z0-9]{43}", r"EAA[A-Za-z0-9]{60,}", r"AC[a-f0-9]{32}", r"hvs\.[A-Za-z0-9_-]{24,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}", r"rubygems_[a-f0-9]{48}", r"phc_[A-Za-z0-9]{32,}", r"sntrys_[A-Za-z0-9_=+/-]{40,}",
)  # fmt: skip
_AWS = r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{16}"
_PASSWORDS = (
    r"(?:passw(?:or)?d|passwd|pwd|passphrase|passcode|secret|api[_-]?key|access[_-]?key|access[_-]?token|"
    r"auth[_-]?token|refresh[_-]?token|private[_-]?key|credential)s?"
)
_NAMES = r"(?:token|key|secret|auth|cookie|session|sessionid|dsn|webhook|pat)s?"
_SECRET_NAMES = (
    r"(?:password|passwd|passphrase|passcode|secret|api[_-]?key|access[_-]?key|access[_-]?token|auth[_-]?token|"
    r"refresh[_-]?token|client[_-]?secret|private[_-]?key|authorization|cookie)"
)

SECRET_NAME = re.compile(rf"(?:.*(?:[_-]|(?<=[a-z0-9])(?=[A-Z])))?(?ai:{_SECRET_NAMES})")
"""Names of members of JSON objects whose value is a secret whatever it looks like (`fullmatch`)."""
TOKEN_NAME = re.compile(rf"(?:.*(?:[_-]|(?<=[a-z0-9])(?=[A-Z])))?(?ai:{_NAMES})")
"""Names whose value is a secret if it looks random."""
NAME_GATE = (
    rb"(?i)(?:" + _SECRET_NAMES.encode() + rb"|" + _NAMES.encode() + rb"[\s\\nrt]{0,9})\\{0,15}\"[\s\\nrt]{0,9}:"
    rb"[\s\\nrt]{0,9}\""
)


def _gates(patterns: tuple[str, ...]) -> bytes:
    """The alternatives, each ended where it is decided (`{20,}` at the end by its twentieth character)."""
    return b"|".join(re.sub(r"\{(\d+),\}$", r"{\1}", pattern).encode() for pattern in patterns)


SECRETS: tuple[Pattern, ...] = (
    Pattern(
        "PRIVATE_KEY",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
        ),
        checks.whole,
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY",
        reach=64,
    ),
    Pattern(
        "TOKEN",
        re.compile(L + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        checks.whole,
        GATE_L + rb"eyJ[A-Za-z0-9_\-]{8}",
        reach=14,
    ),
    Pattern(
        "TOKEN",
        re.compile(r"\b(?ai:bearer|basic|token)[\s:]{1,3}([A-Za-z0-9._~+/-]{16,}={0,2})"),
        checks.assigned,
        rb"(?i)(?:bearer|basic|token)[\s:\x80-\xff]{1,9}[A-Za-z0-9._~+/\-]{16}",
        reach=50,
        first=re.compile(r"(?ai:bearer|basic|token)"),
    ),
    Pattern(
        "API_KEY",
        re.compile(L + "(?:" + "|".join(_API_KEYS) + ")"),
        checks.api_key,
        GATE_L + b"(?:" + _gates(_API_KEYS) + b")",
        reach=84,
    ),
    Pattern(
        "API_KEY",
        re.compile(
            r"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/([A-Za-z0-9/_-]{20,120})"
        ),
        checks.group,
        rb"https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/[A-Za-z0-9/_\-]{20}",
        reach=90,
    ),
    Pattern(
        "AWS_KEY",
        re.compile(L + _AWS + r"(?!\w)"),
        checks.whole,
        GATE_L + _AWS.encode(),
        reach=24,
    ),
    Pattern(
        "AWS_KEY",
        re.compile(
            r"(?ai:aws[^\n]{0,30}?(?:secret|key)[^\n]{0,20}?[\"'=:\s])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        ),
        checks.group,
        rb"(?i)aws[^\n]+[\"'=:\s][A-Za-z0-9/+]{40}",
        reach=112,
    ),
    Pattern(
        "SECRET",
        re.compile(r"://[^\s/:@\"']{0,64}:([^\s/@\"'\[\]]{1,128})@"),
        checks.group,
        rb"://[^\s/:@\"']*:[^\s/@\"'\[\]]+@",
        reach=200,
    ),
    Pattern(
        "SECRET",
        re.compile(
            rf"(?ai:{_PASSWORDS})(?:\\{{0,3}}[\"'])?\s{{0,3}}(?:[:=]|\bis\b)\s{{0,3}}(?:\\{{0,3}}[\"'])?"
            r"([^\s\"',;<>\[\]\\]{6,200})"
        ),
        checks.assigned,
        rb"(?i)" + _PASSWORDS.encode() + rb"(?:\\{0,3}[\"'])?[\s\x80-\xff]{0,9}(?:[:=]|is)[\s\x80-\xff]{0,9}"
        rb"(?:\\{0,3}[\"'])?[^\s\"',;<>\[\]\\]{6}",
        reach=64,
    ),
    Pattern(
        "SECRET",
        re.compile(
            rf"(?ai:{_NAMES})(?:\\{{0,3}}[\"'])?\s{{0,3}}[:=]\s{{0,3}}(?:\\{{0,3}}[\"'])?"
            r"([A-Za-z0-9_.+/-]{19,199}[A-Za-z0-9_+/]={0,2})(?![\w(])"
        ),
        checks.random_assigned,
        rb"(?i)" + _NAMES.encode() + rb"(?:\\{0,3}[\"'])?[\s\x80-\xff]{0,9}[:=][\s\x80-\xff]{0,9}"
        rb"(?:\\{0,3}[\"'])?[A-Za-z0-9_.+/\-]{20}",
        reach=64,
        first=re.compile(rf"(?ai:{_NAMES})"),
    ),
    Pattern(
        "SECRET",
        re.compile(
            r"(?ai:token|key|secret|credential)s?\W[^\n]{0,30}?(?<![A-Za-z0-9+/_-])([A-Za-z0-9+/_-]{24,100}={0,2})"
            r"(?![^\s\"'.,;:()<>\[\]{}|`\\])"
        ),
        checks.random_word,
        rb"(?i)(?:token|key|secret|credential)s?[^A-Za-z0-9_]"
        rb"(?:[^\n]{0,120}[^A-Za-z0-9+/_\-\n])?[A-Za-z0-9+/_\-]{24}",
        reach=84,
        first=re.compile(r"(?ai:token|key|secret|credential)"),
    ),
)
