"""OMP (oh-my-pi): session files as JSON lines, as Pi has them, with entries of its own (`pi_session.py` says how).

Known by those entries: a session without any of them among its first is read as Pi, with the same rows.

Not covered: blobs that a session names by hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flywheel.formats.pi_session import heading, read_sessions
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_text
from flywheel.formats.session import word
from flywheel.records import Fragment, Reject

_OWN = {
    "session_init",
    "title",
    "title_change",
    "service_tier_change",
    "mode_change",
    "ttsr_injection",
    "mcp_tool_selection",
}


class Omp:
    """The reader."""

    name = "omp"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        header = heading(head.values)
        own = _OWN & {word(as_dict(value).get("type")) for value in head.values}
        return Match(confidence=0.95, version=as_text(header.get("version"))) if header and own else None

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        yield from read_sessions(self.name, "omp", records, source)
