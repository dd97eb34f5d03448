"""Pi (pi-mono coding agent): session files of versions 1 to 3 as JSON lines (`pi_session.py` says how).

Other agents built on Pi load here too, unless they are known by name.

Not covered: the HTML export, the event stream of `--mode json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flywheel.formats.pi_session import heading, looks_like_entries, read_sessions
from flywheel.formats.reader import Head, Match, Record, Source, as_text
from flywheel.records import Fragment, Reject


class PiAgent:
    """The reader."""

    name = "pi_agent"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        header = heading(head.values)
        version = as_text(header.get("version"))
        if header:
            return Match(confidence=0.92 if "cwd" in header else 0.8, version=version)
        return Match(confidence=0.85) if looks_like_entries(head.values) else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        yield from read_sessions(self.name, "pi", records, source)
