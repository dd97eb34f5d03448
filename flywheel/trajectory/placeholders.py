"""What stands where a value was taken out: `[EMAIL_3f9a1c2b]`, and `user-…` or `id-…` for whom and what is named.

The eight hex digits are a keyed hash of session, kind and value: equal values have equal placeholders in all
trajectories of one session, in whatever batch they come, without anybody keeping a list; between sessions they say
nothing, and nobody without the key can try values. A number in order of appearance would need a list for the first and
would not have the second; what it was good for, that conversations which differ in such values only are the same,
`Numbering` gives: content hashes are taken over it.

Not covered: two values of one kind and session with one hash (about one in a million sessions of a hundred values).
"""

from __future__ import annotations

import hashlib
import hmac
import re

PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]*_[0-9a-f]{8}\]")
PSEUDONYM = re.compile(r"(?:user|id)-[0-9a-f]{16}")
PROTECTED = re.compile(rf"{PLACEHOLDER.pattern}|(?<!\w){PSEUDONYM.pattern}(?!\w)")
"""What redaction put there and must not touch again."""
LONGEST = 64
"""Characters of the longest of them: kinds have up to 32."""
_SPELT = ("CARD", "IBAN", "PHONE", "SSN")
_NOT_WRITTEN = re.compile(r"[^0-9A-Za-z]")
# Each begins with a literal, so that the engine jumps from one to the next.
_NUMBERED = (
    re.compile(rb"\[([A-Z][A-Z0-9_]*)_[0-9a-f]{8}\]"),
    re.compile(rb"(user)-(?<![0-9A-Za-z_]user-)[0-9a-f]{16}(?![0-9A-Za-z_])"),
    re.compile(rb"(id)-(?<![0-9A-Za-z_]id-)[0-9a-f]{16}(?![0-9A-Za-z_])"),
)


def placeholder(key: bytes, session: str, kind: str, value: str) -> str:
    """The placeholder of a value. A card written with blanks is the card written without them."""
    value = _NOT_WRITTEN.sub("", value).upper() if kind in _SPELT else value.lower() if kind == "EMAIL" else value
    return f"[{kind}_{_hash(key, session, kind, value)[:8]}]"


def pseudonym(key: bytes, kind: str, value: str) -> str:
    """The name of a user or an identifier, the same in all sessions of everyone who has the key."""
    return f"{kind}-{_hash(key, kind, value)[:16]}"


class Numbering:
    """Numbers the placeholders of a trajectory in order of appearance, one piece of it after the other."""

    def __init__(self) -> None:
        self._names: dict[bytes, bytes] = {}
        self._counts: dict[bytes, int] = {}

    def __call__(self, piece: bytes) -> bytes:
        """The piece with `[EMAIL_1]`, `[EMAIL_2]`, `[user_1]`; itself where it has no placeholder."""
        for pattern in _NUMBERED:
            if pattern.search(piece) is not None:
                piece = pattern.sub(self._name, piece)
        return piece

    def _name(self, match: re.Match[bytes]) -> bytes:
        if match.group() not in self._names:
            kind = match.group(1)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[match.group()] = b"[%s_%d]" % (kind, self._counts[kind])
        return self._names[match.group()]


def numbered(text: str) -> str:
    """One text with its placeholders numbered."""
    return Numbering()(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def _hash(key: bytes, *parts: str) -> str:
    return hmac.new(key, "\0".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
