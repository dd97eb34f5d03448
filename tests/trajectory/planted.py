"""Secrets and personal data to plant, in the spellings people and machines write them in. Seeded; none is real."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Iterator

ALNUM = string.ascii_letters + string.digits
BLANKS = ("", " ", "-", "\u00a0", "\u2011", ".")
BRANDS = (("4", 16), ("51", 16), ("2221", 16), ("37", 15), ("6011", 16), ("3528", 16), ("4", 13), ("36", 14))
COUNTRIES = {"DE": (18, 0), "GB": (14, 4), "NO": (11, 0), "FR": (23, 0), "NL": (10, 4), "MT": (23, 4), "PL": (24, 0)}


def luhn(prefix: str, size: int, rng: random.Random) -> str:
    digits = prefix + "".join(rng.choices(string.digits, k=size - len(prefix) - 1))
    doubled = [int(d) * (2 if ix % 2 == 0 else 1) for ix, d in enumerate(reversed(digits))]
    return digits + str(-sum(d // 10 + d % 10 for d in doubled) % 10)


def grouped(text: str, sizes: tuple[int, ...], blank: str) -> str:
    parts, at = [], 0
    for size in sizes:
        parts.append(text[at : at + size])
        at += size
    return blank.join(part for part in [*parts, text[at:]] if part)


def card(rng: random.Random) -> str:
    prefix, size = rng.choice(BRANDS)
    number, blank = luhn(prefix, size, rng), rng.choice(BLANKS)
    sizes = {16: (4, 4, 4), 15: (4, 6), 14: (4, 6), 13: (13,)}[size]
    return grouped(number, sizes, blank)


def iban(rng: random.Random) -> str:
    country = rng.choice(list(COUNTRIES))
    size, letters = COUNTRIES[country]
    account = "".join(rng.choices(string.ascii_uppercase, k=letters) + rng.choices(string.digits, k=size))
    check = 98 - int("".join(str(int(char, 36)) for char in f"{account}{country}00")) % 97
    number = f"{country}{check:02}{account}"
    number = grouped(number, (4,) * 8, rng.choice((" ", "-", "\u00a0"))) if rng.random() < 0.5 else number
    return number.lower() if rng.random() < 0.1 and number.isalnum() else number


def email(rng: random.Random) -> str:
    name = rng.choice(("jane", "li.wei", "o'brien", "sven_k", "jörg", "a", "x+tag", "info%sales", "j-p.m"))
    host = rng.choice(("corp-mail.io", "example.org", "uni.edu", "exämple.de", "a.b.c.co.uk", "xn--bcher-kva.example"))
    sign = rng.choice(("@",) * 8 + ("%40", " [at] ", "(at)"))
    return f"{name.replace('%', '').replace(chr(39), '') if sign != '@' else name}{rng.randrange(999)}{sign}{host}"


def phone(rng: random.Random) -> str:
    area, a, b = rng.randint(201, 989), rng.randint(200, 999), rng.randint(1000, 9999)
    return rng.choice(
        (
            f"+1 ({area}) {a}-{b}", f"+1-{area}-{a}-{b}", f"+1{area}{a}{b}", f"({area}) {a}-{b}", f"{area}-{a}-{b}",
            f"+44 20 7{a} {b}", f"+49 (0)30 {a}{b}", f"+33.6.12.34.{area % 90 + 10}.{b % 90 + 10}", f"1-{area}-{a}-{b}",
            f"0049 30 {a}{b}", f"+81\u00a03\u00a0{a}{area % 10}\u00a0{b}", f"tel: 030 {a} {b}", f"phone {area} {a} {b}",
            f"({area}) {a} {b}", f"{area}.{a}.{b}",
        )
    )  # fmt: skip


def ip(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return ".".join(str(rng.randint(1, 254)) for _ in range(4)).replace("127.", "126.", 1)
    groups = [f"{rng.randrange(1, 65536):x}" for _ in range(8)]
    return rng.choice((":".join(groups), f"2001:db8::{groups[0]}", f"fe80::{groups[1]}:{groups[2]}:{groups[3]}"))


def jwt(rng: random.Random) -> str:
    parts = (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"%d"}' % rng.randrange(10**9), rng.randbytes(32))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def vendor_key(rng: random.Random) -> str:
    def word(n: int) -> str:
        return "".join(rng.choices(ALNUM, k=n))

    hexadecimal = "".join(rng.choices("0123456789abcdef", k=64))
    return rng.choice(
        (
            "ghp_" + word(36), "github_pat_" + word(60), "glpat-" + word(20), "xoxb-123456789012-" + word(24),
            "sk-" + word(48), "sk-proj-" + word(40), "sk-ant-api03-" + word(80), "AIza" + word(35), "hf_" + word(34),
            "sk_live_" + word(24), "npm_" + word(36), "SG." + word(22) + "." + word(43), "dop_v1_" + hexadecimal,
            "shpat_" + hexadecimal[:32], "gsk_" + word(52), "lsv2_pt_" + hexadecimal[:32] + "_" + hexadecimal[:10],
        )
    )  # fmt: skip


def secret(rng: random.Random) -> str:
    value = "".join(rng.choices(ALNUM, k=24)) + "1a"
    hexadecimal = "".join(rng.choices("0123456789abcdef", k=32)) + "0a"
    return rng.choice(
        (
            f"password={value}", f'"api_key": "{hexadecimal}"', f"client_secret: {value}", f"token = '{value}Bc9'",
            f"postgres://svc:{value}@db:5432/app", f"Authorization: Bearer {value}", f"SESSION_KEY={hexadecimal}",
            f"the secret is {value}", f"use the key {value[:8]}Xy3{value[8:]}zQ9w for it",
        )
    )  # fmt: skip


def private_key(rng: random.Random) -> str:
    kind = rng.choice(("RSA ", "", "EC ", "OPENSSH "))
    body = "\n".join(base64.b64encode(rng.randbytes(48)).decode() for _ in range(8))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


def aws_key(rng: random.Random) -> str:
    value = "".join(rng.choices(ALNUM + "/+", k=38)) + "a1"
    return rng.choice(("AKIA" + "".join(rng.choices(string.ascii_uppercase, k=16)), f"aws_secret_access_key = {value}"))


def ssn(rng: random.Random) -> str:
    return f"{rng.randint(100, 665)}-{rng.randint(10, 99)}-{rng.randint(1000, 9999)}"


KINDS = {
    "CARD": card, "IBAN": iban, "EMAIL": email, "PHONE": phone, "IP": ip, "TOKEN": jwt, "API_KEY": vendor_key,
    "SECRET": secret, "PRIVATE_KEY": private_key, "AWS_KEY": aws_key, "SSN": ssn,
}  # fmt: skip


def planted(seed: int, n: int) -> Iterator[tuple[str, str]]:
    """(kind, value) pairs, `n` of each kind."""
    rng = random.Random(seed)
    for kind, make in KINDS.items():
        for _ in range(n):
            yield kind, make(rng)
