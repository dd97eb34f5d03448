"""OpenClaw: session files as JSON lines, as Pi has them (`pi_session.py` says how).

Known by the version of the header (Pi stopped at 3) or by entries of its own; other sessions of it are read as Pi,
with the same rows.

Not covered: `sessions.json`, which says which channel a session belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flywheel.formats.pi_session import heading, read_sessions
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_int, as_text
from flywheel.records import Fragment, Reject

_LAST_OF_PI = 3


class OpenClaw:
    """The reader."""

    name = "openclaw"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        header = heading(head.values)
        version = as_int(header.get("version"))
        own = any(
            (as_text(as_dict(value).get("customType")) or "").startswith(("openclaw", "model-snapshot"))
            or as_dict(as_dict(value).get("message")).get("provider") == "openclaw"
            for value in head.values
        )
        if not header or not (own or (version or 0) > _LAST_OF_PI):
            return None
        return Match(confidence=0.95, version=as_text(version))

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        yield from read_sessions(self.name, "openclaw", records, source)
