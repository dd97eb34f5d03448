"""Secrets and personal data out of everything that is stored: the one choke point between readers and the lake.

A `Redactor` serves one trajectory: equal values get equal placeholders (`[EMAIL_1]`, `[CARD_2]`), numbered in order of
appearance, so references survive inside it and say nothing outside of it. Who the user is becomes a keyed hash
(`user-3f...`), the same in every trajectory of this workspace. Identifiers that hold personal data likewise.

Every text column of every row passes through, unless it is named in `_EXEMPT`: a new column is redacted by default.
JSON is redacted value by value and stays JSON; text that holds nothing is returned as it is, character by character.
Redaction is idempotent.

Not covered: images and audio; what the patterns don't look for (see `patterns.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from flywheel.formats.parse import NumberText, dumps, try_loads
from flywheel.records import Blob, Fragment, Outcome, Span, Step, ToolCall, Trajectory
from flywheel.trajectory.patterns import Pattern, suspects

_EXEMPT = {
    "trajectory_id", "parent_trajectory_id", "subagent_trajectory_id", "continued_from", "outcome_id", "task_id",
    "content_sha256", "system_prompt_sha256", "tools_sha256", "sha256",
}  # fmt: skip
_IDENTIFIERS = {
    "native_id", "conversation_id", "session_id", "trace_id", "span_id", "parent_span_id", "tenant", "source_id",
    "native_target_id", "source_ref",
}  # fmt: skip
_PLACEHOLDER = re.compile(r"\[[A-Z_]+_\d+\]")
_PSEUDONYM = re.compile(r"(?:user|id)-[0-9a-f]{16}")
_ESCAPED = re.compile(r"\\u00([2-7][0-9a-fA-F])")
_SECRET_KEY = re.compile(
    r"(?i)(?:.*[_-])?(?:password|passwd|passphrase|secret|api_?key|access_?key|access_?token|auth_?token|refresh_?token|"
    r"client_?secret|private_?key|authorization)"
)
_USER_KEY = re.compile(r"(?i)user|customer|account|email|^sub$|^uid$")
_NESTED = 3  # JSON inside JSON inside JSON is parsed; beyond that it's taken as text
_NESTED_DEPTH = 64


class Redactor:
    """Redacts the texts of one trajectory. `counts` says how many values of each kind were replaced."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._seen: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._users: dict[str, str] = {}
        self._named: re.Pattern[str] | None = None  # user ids that are distinctive enough to be looked for in texts
        self.counts: Counter[str] = Counter()

    def user(self, user_id: str) -> str:
        """The pseudonym of a user id; from now on it stands for that id in texts too.

        An id like `7` or `anonymous` is a word of its own: it's replaced under names such as `user_id` only.
        """
        if _PSEUDONYM.fullmatch(user_id):
            return user_id
        self._users[user_id] = self._pseudonym("user", user_id)
        self.counts["USER"] += 1
        distinctive = [re.escape(user) for user in self._users if len(user) >= 6 and not user.isalpha()]
        if distinctive:
            self._named = re.compile(rf"(?<!\w)(?:{'|'.join(distinctive)})(?!\w)")
        return self._users[user_id]

    def identifier(self, value: str) -> str:
        """An id as it is, or its keyed hash where it holds personal data: it must stay comparable between rows."""
        if value in self._users:
            return self._users[value]
        return value if self._plain(value, count=False) == value else self._pseudonym("id", value)

    def text(self, text: str) -> str:
        """A text without what the patterns find; JSON inside it stays JSON."""
        return self._text(text, nested=0)

    def json(self, text: str) -> str:
        """JSON text, redacted value by value."""
        if self._is_clean(text) and not any(user in text for user in self._users):
            return text
        return self._inside(text, nested=0) or self._unescaped(text)

    def _is_clean(self, text: str) -> bool:
        """Whether nothing can be found in the text, told without decoding it. Where that can't be told: False."""
        if self._named is not None and self._named.search(text) is not None:
            return False
        candidates = suspects(text)
        if not candidates:
            return "\\u00" not in text and "\\/" not in text
        if _is_json_like(text) and ("\\" in text or any(pattern.kind == "SECRET" for pattern in candidates)):
            return False  # an escape may hide a match, and the name of a member may make its value a secret
        return "\\u00" not in text and not any(pattern.regex.search(text) for pattern in candidates)

    def _text(self, text: str, nested: int) -> str:
        if self._is_clean(text):
            return text
        if nested < _NESTED and _is_json_like(text):
            inside = self._inside(text, nested)
            if inside is not None:
                return inside
        return self._unescaped(text)

    def _inside(self, text: str, nested: int) -> str | None:
        """The text redacted as the JSON that it is; None where it's none."""
        decoded = try_loads(text, _NESTED_DEPTH) if nested else try_loads(text)
        if decoded is None:
            return None
        value = self._value(decoded.value, nested)
        return text if value is decoded.value else dumps(value)

    def _value(self, value: Any, nested: int) -> Any:
        """A decoded value, redacted; the very same object where nothing was found."""
        if isinstance(value, str):
            return self._same(value, self._text(value, nested + 1))
        if isinstance(value, dict):
            pairs = []
            for key, item in value.items():
                pairs.append((self._same(key, self._text(key, _NESTED)), self._entry(key, item, nested)))
            kept = all(a is c and b is d for (a, b), (c, d) in zip(pairs, value.items(), strict=True))
            return value if kept else dict(pairs)
        if isinstance(value, list):
            items = []
            for item in value:
                items.append(self._value(item, nested))
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if isinstance(value, (int, float, NumberText)) and not isinstance(value, bool):
            return self._number(value)
        return value

    def _entry(self, key: str, item: Any, nested: int) -> Any:
        """A member of an object: a text under a name like `password` is a secret whatever it looks like."""
        if isinstance(item, (str, int)) and str(item) in self._users and _USER_KEY.search(key):
            return self._users[str(item)]
        if isinstance(item, str) and item and _SECRET_KEY.fullmatch(key) and not _PLACEHOLDER.search(item):
            return self._placeholder("SECRET", item)
        return self._value(item, nested)

    def _number(self, value: int | float | NumberText) -> Any:
        """A card or phone number may be typed as a number; a placeholder then takes its place as a string."""
        text = value.text if isinstance(value, NumberText) else str(value)
        return value if len(text) < 7 else self._same(value, self._plain(text), text)

    @staticmethod
    def _same(value: Any, redacted: str, text: str | None = None) -> Any:
        return value if redacted == (value if text is None else text) else redacted

    def _unescaped(self, text: str) -> str:
        r"""Plain redaction that isn't fooled by `jane\u0040example.com` in JSON nobody could parse."""
        if "\\u00" in text:
            decoded = _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), text)
            redacted = self._plain(decoded)
            return text if redacted == decoded else redacted
        return self._plain(text)

    def _plain(self, text: str, count: bool = True) -> str:
        if self._named is not None:
            text = self._named.sub(lambda match: self._users[match.group()], text)
        for pattern in suspects(text):
            text = self._sub(pattern, text, count)
        return text

    def _sub(self, pattern: Pattern, text: str, count: bool) -> str:
        out, done, at = [], 0, 0
        while (match := pattern.regex.search(text, at)) is not None:
            span = pattern.check(match)
            if span is None:
                at = match.start() + 1  # the next one may begin inside what was no match
                continue
            value = text[span[0] : span[1]]
            out += [text[done : span[0]], self._placeholder(pattern.kind, value) if count else "[]"]
            done = at = max(span[1], match.start() + 1)
        return text if not out else "".join([*out, text[done:]])

    def _placeholder(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        if (kind, value) not in self._seen:
            self._numbers[kind] += 1
            self._seen[kind, value] = f"[{kind}_{self._numbers[kind]}]"
        return self._seen[kind, value]

    def _pseudonym(self, kind: str, value: str) -> str:
        digest = hmac.new(self._key, f"{kind}\0{value}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:16]}"


def _is_json_like(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[")


@dataclass(frozen=True, slots=True)
class Redacted:
    """A fragment that may be stored, and how many values of each kind it lost."""

    fragment: Fragment
    counts: Mapping[str, int]


def redact_fragment(fragment: Fragment, key: bytes) -> Redacted:
    """Every text of every row of a trajectory, redacted with one set of placeholders."""
    redactor = Redactor(key)
    user_id = fragment.trajectory.user_id
    if user_id is not None:
        redactor.user(user_id)
    clean = Fragment(
        key=fragment.key,
        record_ix=fragment.record_ix,
        trajectory=_row(fragment.trajectory, redactor),
        steps=tuple(_row(row, redactor) for row in fragment.steps),
        tool_calls=tuple(_row(row, redactor) for row in fragment.tool_calls),
        outcomes=tuple(_row(row, redactor) for row in fragment.outcomes),
        blobs=tuple(_blob(row, redactor) for row in fragment.blobs),
        spans=tuple(_row(row, redactor) for row in fragment.spans),
    )
    return Redacted(clean, dict(redactor.counts))


def redact_outcomes(outcomes: Iterable[Outcome], key: bytes) -> list[Outcome]:
    """Outcomes that came without their trajectory, redacted with one set of placeholders."""
    redactor = Redactor(key)
    return [_row(outcome, redactor) for outcome in outcomes]


def redact_bytes(data: bytes, encoding: str, key: bytes) -> bytes:
    """Raw bytes of a refused record as UTF-8 that may be stored."""
    return Redactor(key).text(data.decode(encoding, "replace")).encode("utf-8", "replace")


def _blob(blob: Blob, redactor: Redactor) -> Blob:
    row: Blob = _row(blob, redactor)
    is_text = blob.mime is None or blob.mime.startswith("text/") or "json" in blob.mime
    if not is_text or not isinstance(blob.data, bytes):
        return row
    return replace(row, data=redactor.text(blob.data.decode("utf-8", "replace")).encode())


def _row(row: Any, redactor: Redactor) -> Any:
    """The row with its text columns redacted; the same row where nothing was found."""
    changes = dict(_changes(row, redactor))
    return replace(row, **changes) if changes else row


def _changes(row: Any, redactor: Redactor) -> Iterator[tuple[str, Any]]:
    for name, rule in _RULES[type(row)]:
        value = getattr(row, name)
        if value is None:
            continue
        apply = _APPLY[rule]
        redacted = (
            tuple(apply(redactor, item) for item in value) if isinstance(value, tuple) else apply(redactor, value)
        )
        if redacted != value:
            yield name, redacted


_APPLY: Mapping[str, Callable[[Redactor, str], str]] = {
    "text": Redactor.text,
    "json": Redactor.json,
    "identifier": Redactor.identifier,
    "user": Redactor.user,
}


def _rules_of(row: type) -> tuple[tuple[str, str], ...]:
    """(column, rule) of the columns that hold text. Read off the annotations, which are strings in records.py."""
    rules = []
    for field in fields(row):
        kind = str(field.type)
        is_own_source = field.name == "source_id" and row is not Outcome  # elsewhere it's a hash of bytes
        if field.name in _EXEMPT or is_own_source or not ("str" in kind or "Json" in kind):
            continue
        if field.name == "user_id":
            rules.append((field.name, "user"))
        elif field.name in _IDENTIFIERS:
            rules.append((field.name, "identifier"))
        else:
            rules.append((field.name, "json" if "Json" in kind else "text"))
    return tuple(rules)


_RULES = {row: _rules_of(row) for row in (Trajectory, Step, ToolCall, Outcome, Blob, Span)}
