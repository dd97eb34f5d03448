"""One landing object (or a part of one) to staged rows, holding one record and one row group at a time.

Trajectories that are complete in themselves are redacted, completed and written while the object is read. Fragments
that wait for others of their key are given away (`store/held.py`) and come back joined, to `store_whole`. What can't be
read becomes a `quarantine` row with its byte range, a code, a sentence, redacted bytes and the hash of the original.

Not covered: which objects there are and what becomes of the batch (`ingest.py`), several processes (`ingest_pool.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as changed

from flywheel.formats.assemble import complete, join
from flywheel.formats.read import encoding_of
from flywheel.formats.reader import Item, Match, Source
from flywheel.formats.sniff import Reading, open_readings, reader_named
from flywheel.records import Attachment, Fragment, Quarantine, Reject
from flywheel.store.held import Packed, packed
from flywheel.store.lake_stage import PartWriter
from flywheel.store.landing import Excerpt, LandingBytes, excerpts, uri_of
from flywheel.trajectory.outofline import externalise
from flywheel.trajectory.redact import Redaction

KEPT_BYTES = 16 << 10  # of a refused record; all of it stays in the landing object
_CUT_MARGIN = 1 << 10  # redacted with it and then dropped, so that no secret survives by being cut in two
RANGE_BITS = 40  # a held fragment of a byte range carries the range's number above its place in the range


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """Whole lines of an object that several processes share. What one reader knows at its start is given here."""

    number: int
    start: int
    stop: int
    reader: str
    match: Match
    first_record: str  # its fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """What was read of one object. `losses` counts what was redacted or found wanting, by kind."""

    sha256: str
    compression: str | None
    encoding: str
    readers: tuple[tuple[str, str, Match, int], ...]  # name, version, match and number of records of each reading
    n_records: int
    n_repaired: int
    n_quarantined: int
    losses: dict[str, int] = field(default_factory=dict)
    starts: tuple[int, ...] = (0,)  # the first record of each of its byte ranges


def read_source(
    source: LandingBytes,
    part: ByteRange | None,
    format_name: str,
    redaction: Redaction,
    writer: PartWriter,
    hold: Callable[[Packed], None],
) -> SourceReport:
    """Read one object to its end. Errors: ObjectError, LakeError."""
    intake = _Intake(source, part, redaction, writer, hold)
    if part is None:
        for opened in open_readings(source, intake.source, format_name):
            if isinstance(opened, Reject):
                intake.n_refused += 1
                intake.refuse(opened)
            else:
                intake.read(opened)
    else:
        lines = Reading(
            lambda: source.between(part.start, part.stop), intake.source, reader_named(part.reader), part.match
        )
        lines.lines_from = part.start
        intake.read(lines)
    return intake.finish()


def store_whole(fragment: Fragment, redaction: Redaction, writer: PartWriter) -> Counter[str]:
    """Redact one trajectory, put its media out of line, complete and write it; what it lost on the way, by kind."""
    removed: Counter[str] = Counter()
    whole = complete(externalise(redaction.fragment(fragment, removed)))
    losses = _named(removed)
    losses.update(whole.trajectory.quality_flags or ())
    writer.add_fragment(whole)
    return losses


def _named(removed: Counter[str]) -> Counter[str]:
    return Counter({f"redacted {kind}": n for kind, n in removed.items()})


class _Intake:
    """Takes in what the readings of one object yield."""

    def __init__(
        self,
        landing: LandingBytes,
        part: ByteRange | None,
        redaction: Redaction,
        writer: PartWriter,
        hold: Callable[[Packed], None],
    ) -> None:
        self._landing, self._part, self._writer, self._hold = landing, part, writer, hold
        self._redaction = redaction
        stored = landing.stored
        self.source = Source(
            source_id=stored.sha256, uri=uri_of(stored), first_record=part.first_record if part else None
        )
        self.n_refused = 0  # sources (the object, or members of an archive) that no reader accepts
        self._encoding = encoding_of(next(iter(landing()), b""))
        self._readings: list[Reading] = []
        self._base = 0  # records of the readings before this one
        self._losses: Counter[str] = Counter()
        self._unseen: list[Reject] = []  # refused, with bytes that have to be looked up
        self._n_quarantined = 0

    def read(self, reading: Reading) -> None:
        """One reading, to its end."""
        self._readings.append(reading)
        for item in reading.items(self.refuse):
            self._take(item)
        self._base += reading.n_records

    def _take(self, item: Item) -> None:
        if isinstance(item, Fragment):
            if item.partial or item.is_path:
                number = self._part.number << RANGE_BITS if self._part else 0
                self._hold(packed(changed(item, record_ix=number + self._base + item.record_ix)))
            else:
                for whole in join([item]):
                    self._losses += store_whole(whole, self._redaction, self._writer)
        elif isinstance(item, Reject):
            self.refuse(item)
        elif isinstance(item, Attachment):
            removed: Counter[str] = Counter()
            self._writer.add("outcome", self._redaction.outcomes(item.outcomes, removed))
            self._losses += _named(removed)

    def refuse(self, reject: Reject) -> None:
        """Keep a refusal, with the bytes it is about where they are at hand."""
        if self._base:
            reject = replace(reject, record_ix=self._base + reject.record_ix)
        self._n_quarantined += 1
        if reject.raw is None:
            self._unseen.append(reject)
        else:
            head = reject.raw[: KEPT_BYTES + _CUT_MARGIN]
            self._quarantine(reject, Excerpt(head, hashlib.sha256(reject.raw).hexdigest()), "utf-8")

    def finish(self) -> SourceReport:
        """Look up the bytes of refusals that came without, and say what was read."""
        if self._unseen:
            spans = [(reject.byte_offset, reject.byte_len) for reject in self._unseen]
            found = excerpts(self._landing(), spans, KEPT_BYTES + _CUT_MARGIN)
            for reject in self._unseen:
                self._quarantine(reject, found[reject.byte_offset, reject.byte_len], self._encoding)
        damage = self._landing.damage
        if damage is not None:
            row = Quarantine(
                source_id=self.source.source_id, byte_offset=self._landing.size, code=damage[0], message=damage[1]
            )
            self._writer.add("quarantine", [row])
        # A source that no reader accepts counts as one record; the unread rest of a damaged one as another.
        return SourceReport(
            sha256=self.source.source_id,
            compression=self._landing.compression,
            encoding=self._encoding,
            readers=tuple((r.reader.name, r.reader.version, r.match, r.n_records) for r in self._readings),
            n_records=self._base + self.n_refused + (damage is not None),
            n_repaired=sum(reading.n_repaired for reading in self._readings),
            n_quarantined=self._n_quarantined + (damage is not None),
            losses=dict(self._losses),
        )

    def _quarantine(self, reject: Reject, excerpt: Excerpt, encoding: str) -> None:
        removed: Counter[str] = Counter()
        kept = self._redaction.data(excerpt.head, encoding, removed)[:KEPT_BYTES]
        self._losses += _named(removed)
        row = Quarantine(
            source_id=self.source.source_id,
            record_ix=reject.record_ix,
            byte_offset=reject.byte_offset,
            byte_len=reject.byte_len,
            code=reject.code,
            message=reject.message,
            original_sha256=excerpt.sha256,
            redacted=kept,
        )
        self._writer.add("quarantine", [row])
