"""The same failure, wherever it happened: a stable name for a label, without the values of the day.

`normalise` strips what differs between two occurrences of one failure (ids, numbers, dates, quoted values, uuids,
paths, addresses); `cluster_of` hashes code, tool, normal form and task family. Pure, so the same failure gets the same
id in every turn and on every machine.

Not covered: paraphrases. Two wordings of one cause are two clusters until something measures their similarity.
"""

from __future__ import annotations

import json
import re
from datetime import datetime

from flywheel.ledger import Cluster
from flywheel.records import content_id
from flywheel.trajectory.trace import Label

SIGNATURE_CHARS = 160
READ_CHARS = 4000  # an error names itself early; a traceback in its last line

MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
# In this order: wider shapes first, so that a path is not eaten as numbers.
RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\bhttps?://[^\s\"'<>)]+"), "<url>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>"),
    (re.compile(r"\"[^\"\n]{0,300}\"|`[^`\n]{1,300}`|(?<!\w)'[^'\n]{0,300}'(?!\w)|“[^”\n]{0,300}”"), "<str>"),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\s?(?:z|utc|[a-z]{3}|[+-]\d\d:?\d\d))?)?\b"
        ),
        "<date>",
    ),
    (
        re.compile(rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)? {MONTH}|{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?)(?:,? \d{{4}})?\b"),
        "<date>",
    ),
    (re.compile(r"\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\b\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s?[ap]m)?\b"), "<date>"),
    (re.compile(r"(?<![\w<])(?:[a-z]:)?(?:[/\\][\w.+~-]+){2,}[/\\]?|(?<![\w<])~?/[\w.+-]+\.\w+"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"(?<![\w<])#?(?:(?=[\w-]*[a-z])(?=[\w-]*\d)[\w-]{3,}|\d+[a-z][\w-]*)\b"), "<id>"),
    (re.compile(r"(?<![\w<])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?%?"), "<n>"),
    (re.compile(r"(?:<n>[\s,;]*){2,}"), "<n> "),
    (re.compile(r"(?:<str>\s*,\s*)+<str>"), "<str>"),
    (re.compile(r"\s+"), " "),
)

TITLES = {
    "answer.wrong": "Wrong answer",
    "args.invalid": "Arguments break the tool's schema",
    "args.ungrounded": "Argument that nobody mentioned",
    "budget.steps": "Ran out of steps or budget",
    "ctx.overflow": "Ran into the length limit",
    "empty": "Empty final answer",
    "err.ignored": "Claims success over an unresolved error",
    "err.retry_same": "Retries a failed call unchanged",
    "format.json": "Not the JSON that was asked for",
    "infra": "Infrastructure failed",
    "loop.alternate": "Alternates between two calls",
    "loop.error": "Repeats a failing call",
    "loop.same": "Repeats a call to the same result",
    "monologue": "Talks to itself",
    "refusal": "Refuses",
    "repeat": "Repeats calls already made",
    "tool.unknown": "Calls a tool that does not exist",
    "user.neg": "The user objects",
}


def normalise(text: str) -> str:
    """The text without the values of the day, lower case, at most 160 characters. Idempotent on its own output."""
    normal = _message(text[:READ_CHARS] if "Traceback (most recent" not in text else text[-READ_CHARS:]).lower()
    for pattern, mark in RULES:
        normal = pattern.sub(mark, normal)
    return normal.strip()[:SIGNATURE_CHARS].strip()


def cluster_of(label: Label, domain: str, family: str = "", first_seen: datetime | None = None) -> Cluster:
    """The cluster of a label that was seen in a task of that domain and family ('' where the trace names none)."""
    signature = normalise(label.detail)
    tool = label.tool or ""
    return Cluster(
        cluster_id=content_id("cluster", label.code, tool, signature, family or domain),
        code=label.code,
        tool=label.tool,
        signature=signature,
        domain=domain or family or None,
        title=_title(label.code, tool, signature, family or domain),
        first_seen=first_seen,
    )


def _title(code: str, tool: str, signature: str, family: str) -> str:
    title = TITLES.get(code, code)
    if tool:
        title += f" ({tool})"
    if signature:
        title += f": {signature[:100]}"
    return f"{title} [{family}]" if family else title


def _message(text: str) -> str:
    """What an error says of itself: the message field of a JSON error, the last line of a traceback, else the text."""
    stripped = text.strip()
    if "Traceback (most recent" in stripped:
        return stripped.splitlines()[-1]
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped)
        except (ValueError, RecursionError):  # cut or malformed: the raw text is the message
            return stripped
        for key in ("error", "message", "detail", "exception", "msg"):
            inner = value.get(key)
            if isinstance(inner, dict):
                inner = inner.get("message") or inner.get("type")
            if isinstance(inner, str) and inner.strip():
                return inner
    return stripped
