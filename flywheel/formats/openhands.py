"""OpenHands: event streams of version 0 and of version 1 (the agent SDK), in every packing they come in.

    [event, ...]   one event a line   {items: [event, ...]}      a conversation
    {history: [event, ...], instance_id?, metrics, ...}          a run of an evaluation (`output.jsonl`), one a line
    one event a file in `<conversation>/events/`, with `base_state.json` beside them

Files with one event each name no conversation: its folder does. Such events, and the base state (the agent's settings,
how far it is, what it used), are held as spans until all files of the batch are there (`whole`), then made into rows
like any stream; the spans stay, so that files of a later batch can join them. Events come out of order and, after a
resume, twice: they are sorted by time, and repeated ones left out.

Not covered: the rows (`openhands_v0.py`, `openhands_v1.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from flywheel.formats import openhands_v0, openhands_v1
from flywheel.formats.openhands_output import describe, is_output
from flywheel.formats.openhands_usage import add_states
from flywheel.formats.parse import dumps, loads
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, trajectory_id
from flywheel.formats.session import Session, word
from flywheel.formats.times import read_time
from flywheel.records import Fragment, Reject, Span, Trajectory

NAME = "openhands"
_HELD = "EVENT"  # kind of the span that holds an event of a file of its own
_STATE = {"agent", "workspace", "execution_status"}


class OpenHands:
    """The reader."""

    name = NAME
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        found = [_version(value) for value in head.values]
        known = [version for version in found if version]
        if not known:
            return None
        return Match(confidence=round(0.95 - 0.15 * (1 - len(known) / len(found)), 3), version=known[0])

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        events: list[tuple[Record, dict[str, Any]]] = []
        for record in records:
            value = as_dict(record.value)
            if is_output(value):
                yield _run(value, record, source)
            elif (packed := _packed(value)) is not None:
                events += [(record, as_dict(event)) for event in packed if event is not None]
            elif _version(value) or value.keys() >= {"id", "timestamp"}:
                events.append((record, value))
            else:
                yield record.reject("not_openhands", "the record is no event, no list of them and no run")
        if len(events) == 1 and (folder := _folder(source, events[0][1])) is not None:
            yield _held(folder, *events[0], source)
        elif events:
            first = events[0][0]
            yield _stream([event for _, event in events], _session(_native(source), first, source))


def whole(fragment: Fragment) -> Iterable[Fragment]:
    """The trajectory of a conversation whose events came one a file; any other fragment as it is."""
    held = [span for span in fragment.spans if span.kind == _HELD]
    if not held or fragment.steps:
        return (fragment,)
    head = fragment.trajectory
    source = Source(source_id=head.source_id, uri="")
    session = Session(NAME, source, fragment.key, head.native_id, fragment.record_ix)
    session.columns |= {"session_id": head.native_id, "agent_name": NAME}
    ordered = sorted(held, key=lambda span: span.name or "")
    stream = _stream([as_dict(loads(span.attributes or "{}").value) for span in ordered], session)
    return (replace(stream, spans=tuple(replace(span, trajectory_id=fragment.key) for span in ordered)),)


def _version(value: Any) -> str | None:
    """Which version wrote the record; None for one that OpenHands didn't write."""
    given = as_dict(value)
    if is_output(given) and any(openhands_v1.is_event(as_dict(event)) for event in given["history"][:8]):
        return "1"
    if is_output(given) or openhands_v0.is_event(given):
        return "0"
    if openhands_v1.is_event(given) or _is_state(given):
        return "1"
    packed = _packed(given)
    return None if packed is None else next((v for event in packed if (v := _version(event))), None)


def _is_state(value: Mapping[str, Any]) -> bool:
    return value.keys() >= _STATE and "kind" not in value


def _packed(value: Mapping[str, Any]) -> list[Any] | None:
    """The events that a document of the API or of an export holds."""
    for key in ("items", "events", "trajectory", "history"):
        events = value.get(key)
        if isinstance(events, list) and any(
            openhands_v0.is_event(as_dict(event)) or openhands_v1.is_event(as_dict(event)) for event in events
        ):
            return events
    return None


def _folder(source: Source, event: Mapping[str, Any]) -> str | None:
    """The conversation that a file with one event belongs to: the name of its folder, or the id of the base state."""
    if _is_state(event):
        return _plain(as_text(event.get("id")) or "") or None
    parts = (source.path or source.uri).replace("\\", "/").split("/")[:-1]
    parts = parts[:-1] if parts and parts[-1] in ("events", "event_cache") else parts
    return _plain(parts[-1]) if parts else None


def _native(source: Source) -> str | None:
    """The conversation that a file of many events belongs to, where its folder is named by an id."""
    parts = (source.path or source.uri).replace("\\", "/").split("/")[:-1]
    name = _plain(parts[-1]) if parts else ""
    return name if len(name) == 32 and all(letter in "0123456789abcdef" for letter in name) else None


def _plain(name: str) -> str:
    """A conversation's id is a UUID: folders have it without dashes."""
    bare = name.replace("-", "").lower()
    return bare if len(bare) == 32 else name


def _session(native: str | None, record: Record, source: Source) -> Session:
    name = native or fingerprint(record.value)
    session = Session(NAME, source, trajectory_id(NAME, name, name), native, record.ix)
    session.columns |= {"session_id": native, "agent_name": NAME}
    return session


def _held(folder: str, record: Record, event: Mapping[str, Any], source: Source) -> Fragment:
    """A file with one event, until its neighbours are there."""
    key = trajectory_id(NAME, folder, folder)
    name = (source.path or source.uri).replace("\\", "/").split("/")[-1]
    span = Span(
        trace_id=folder,
        span_id=as_text(event.get("id")),
        name=name.zfill(64),
        kind=_HELD,
        attributes=dumps(dict(event)),
        source_id=source.source_id,
    )
    trajectory = Trajectory(
        trajectory_id=key,
        content_sha256="",
        native_id=folder,
        session_id=folder,
        source_id=source.source_id,
        source_record_ix=record.ix,
        format=NAME,
        n_steps=0,
        content_complete=True,
    )
    return Fragment(key=key, record_ix=record.ix, trajectory=trajectory, partial=True, spans=(span,))


def _run(value: Mapping[str, Any], record: Record, source: Source) -> Fragment:
    """A run of an evaluation, with its outcome."""
    session = _session(None, record, source)
    describe(session, value)
    return _stream(_flat(as_list(value.get("history"))), session)


def _flat(history: list[Any]) -> list[dict[str, Any]]:
    """Older runs have pairs of an action and its observation."""
    events: list[dict[str, Any]] = []
    for item in history:
        events += [as_dict(part) for part in item] if isinstance(item, list) else [as_dict(item)]
    return events


def _stream(events: list[dict[str, Any]], session: Session) -> Fragment:
    states = [event for event in events if _is_state(event)]
    rest = _sorted(_without_repeats([event for event in events if not _is_state(event)]))
    if any("kind" in event for event in rest) or states:
        openhands_v1.add_events(session, rest)
        add_states(session, states)
    else:
        openhands_v0.add_events(session, rest)
    if not session.steps:
        session.event("no_events", states)
    return session.fragment()


def _without_repeats(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: set[str] = set()
    kept = []
    for event in events:
        name = fingerprint(event)
        if name not in seen or not word(event.get("id")):
            kept.append(event)
        seen.add(name)
    return kept


def _sorted(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In order of time, if every event has one; else as they stood."""
    times = [read_time(event.get("timestamp")).at for event in events]
    if any(time is None for time in times):
        return events
    order = sorted(range(len(events)), key=lambda ix: times[ix] or ix)
    return [events[ix] for ix in order]
