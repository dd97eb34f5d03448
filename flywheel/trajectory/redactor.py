"""Takes secrets and personal data out of the texts of one trajectory.

Plain text loses what the patterns find. JSON is redacted value by value and stays JSON, three levels deep (JSON inside
a string inside JSON), so that escapes hide nothing and a number that is a card number becomes a placeholder; text that
holds nothing is returned as it is, character by character. Redaction is idempotent: it goes on until nothing is found.

Not covered: rows and tables (`redact.py`), what to look for (`patterns.py`), how quickly (`scan.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from flywheel.formats.parse import NumberText, dumps, try_loads
from flywheel.trajectory import checks
from flywheel.trajectory.patterns import ESCAPES
from flywheel.trajectory.placeholders import PROTECTED, PSEUDONYM, placeholder, pseudonym
from flywheel.trajectory.scan import ESCAPED, NAMED, Rules, Suspicion, built_in
from flywheel.trajectory.secret_patterns import SECRET_NAME, TOKEN_NAME
from flywheel.trajectory.texts import Rule

_CUT_OFF = re.compile(
    r"(?:[\w.%+-]{1,128}@[\w.-]{0,255}|[+(]?[0-9](?:[ .()-]{0,2}[0-9]){5,30}[ .()-]{0,2}"
    r"|(?=\D{0,80}\d)[\w-]{12,300})\s{0,9}\Z"
)
_USER_KEY = re.compile(r"(?i)user|customer|account|email|\bsub\b|\buid\b")
_NESTED = 3  # JSON inside JSON inside JSON is parsed; beyond that it's taken as text
_NESTED_DEPTH = 64
_SHORT_NUMBER = 7
_LONG_TOKEN = 16
_LONGEST_CUT = 400


class Redactor:
    """Redacts the texts of one trajectory. `counts` says how many values of each kind were replaced.

    `session` is what values have the same placeholder in (`placeholders.py`).
    """

    def __init__(self, key: bytes, session: str = "", rules: Rules | None = None) -> None:
        self._key, self._session = key, session
        self.rules = built_in() if rules is None else rules
        self._seen: dict[tuple[str, str], str] = {}
        self._users: dict[str, str] = {}
        self._named: re.Pattern[str] | None = None  # user ids that are distinctive enough to be looked for in texts
        self.counts: Counter[str] = Counter()

    def user(self, user_id: str) -> str:
        """The pseudonym of a user id; from now on it stands for that id in texts too.

        An id like `7` or `anonymous` is a word of its own: it's replaced under names such as `user_id` only.
        """
        if PSEUDONYM.fullmatch(user_id):
            return user_id
        self._users[user_id] = pseudonym(self._key, "user", user_id)
        self.counts["USER"] += 1
        distinctive = [re.escape(user) for user in self._users if len(user) >= 6 and not user.isalpha()]
        if distinctive:
            self._named = re.compile(rf"(?<!\w)(?:{'|'.join(distinctive)})(?!\w)")
        return self._users[user_id]

    def concerned(self, texts: Sequence[str]) -> set[int]:
        """Which texts hold a known user id and have to be looked at, whatever the patterns say."""
        return {ix for user in self._users for ix, text in enumerate(texts) if user in text}

    def apply(self, rule: Rule, text: str, suspicion: Suspicion) -> str:
        """Redact the text of a column."""
        if rule == "identifier":
            return self.identifier(text, suspicion)
        return self.json(text, suspicion) if rule == "json" else self.text(text, suspicion)

    def text(self, text: str, suspicion: Suspicion | None = None) -> str:
        """A text without what the patterns find; JSON inside it stays JSON."""
        return self._text(text, self.rules.suspicion(text) if suspicion is None else suspicion, nested=0)

    def ruin(self, text: str) -> str:
        """A text that may have been cut off: what it ends in may be the beginning of something, so it goes too."""
        text = self.text(text)
        match = _CUT_OFF.search(text, max(0, len(text) - _LONGEST_CUT))
        return text if match is None else text[: match.start()] + self._placeholder("CUT", match.group())

    def json(self, text: str, suspicion: Suspicion | None = None) -> str:
        """JSON text, redacted value by value."""
        suspicion = self.rules.suspicion(text) if suspicion is None else suspicion
        if self._users and any(user in text for user in self._users) and _USER_KEY.search(text):
            return self._inside(text, nested=0) or self._unescaped(text, suspicion)
        return self._text(text, suspicion, nested=0)

    def identifier(self, value: str, suspicion: Suspicion | None = None) -> str:
        """An id as it is, or its keyed hash where it holds personal data: it must stay comparable between rows."""
        if value in self._users:
            return self._users[value]
        spans = self.rules.spans(value, self.rules.suspicion(value) if suspicion is None else suspicion)
        self.counts.update(span.kind for span in spans)
        named = self._named is not None and self._named.search(value) is not None
        if named:
            self.counts["USER"] += 1
        return pseudonym(self._key, "id", value) if spans or named else value

    def _text(self, text: str, suspicion: Suspicion, nested: int) -> str:
        named = self._named is not None and self._named.search(text) is not None
        if not suspicion and not named:
            return text
        if nested < _NESTED and text.lstrip()[:1] in ("{", "["):
            told = not named and ESCAPED not in suspicion and NAMED not in suspicion and "\\" not in text
            if told and not self.rules.spans(text, suspicion):
                return text
            inside = self._inside(text, nested)
            if inside is not None:
                return inside
        return self._unescaped(text, suspicion)

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
            return self._same(value, self._text(value, self.rules.suspicion(value), nested + 1))
        if isinstance(value, dict):
            pairs = []
            for key, item in value.items():
                name = self._text(key, self.rules.suspicion(key), _NESTED)
                pairs.append((self._same(key, name), self._entry(key, item, nested)))
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
        if isinstance(item, str) and item and self._is_secret(key, item) and not PROTECTED.search(item):
            return self._placeholder("SECRET", item)
        return self._value(item, nested)

    @staticmethod
    def _is_secret(key: str, item: str) -> bool:
        if SECRET_NAME.fullmatch(key):
            return not checks.is_mask(item)
        if len(item) < _LONG_TOKEN or " " in item or "\n" in item or TOKEN_NAME.fullmatch(key) is None:
            return False
        return checks.is_secret_under(key, item)

    def _number(self, value: int | float | NumberText) -> Any:
        """A card or phone number may be typed as a number; a placeholder then takes its place as a string."""
        text = value.text if isinstance(value, NumberText) else str(value)
        return value if len(text) < _SHORT_NUMBER else self._same(value, self._plain(text), text)

    @staticmethod
    def _same(value: Any, redacted: str, text: str | None = None) -> Any:
        return value if redacted == (value if text is None else text) else redacted

    def _unescaped(self, text: str, suspicion: Suspicion) -> str:
        r"""Plain redaction that isn't fooled by `jane\u0040example.com` in JSON nobody could parse."""
        if ESCAPED in suspicion:
            decoded = ESCAPES.sub(lambda match: match.group(2) or chr(int(match.group(1), 16)), text)
            redacted = self._plain(decoded)
            return text if redacted == decoded else redacted
        return self._plain(text, suspicion)

    def _plain(self, text: str, suspicion: Suspicion | None = None) -> str:
        """Until nothing is found: what is left of one match may be the beginning of another."""
        if self._named is not None and (found := self._named.sub(self._name, text)) != text:
            text, suspicion = found, None
        suspicion = self.rules.suspicion(text) if suspicion is None else suspicion
        while suspicion and (spans := self.rules.spans(text, suspicion)):
            out, done = [], 0
            for start, end, kind in spans:
                out += [text[done:start], self._placeholder(kind, text[start:end])]
                done = end
            text = "".join([*out, text[done:]])
            suspicion = self.rules.suspicion(text)
        return text

    def _name(self, match: re.Match[str]) -> str:
        self.counts["USER"] += 1
        return self._users[match.group()]

    def _placeholder(self, kind: str, value: str) -> str:
        self.counts[kind] += 1
        if (kind, value) not in self._seen:
            self._seen[kind, value] = placeholder(self._key, self._session, kind, value)
        return self._seen[kind, value]
