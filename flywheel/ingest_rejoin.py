"""Parts of a trajectory that arrive when the lake has other parts of it: all of them joined, by the rules of one batch.

The lake's rows are redacted already and what arrives isn't, so it is redacted before they are compared, with the
placeholders that the lake's rows have. A trace's trajectory is made anew from all its spans; paths
of a conversation are laid over its graph. Where both know a thing the later part counts.

Not covered: which parts the lake has (`store/lake_known.py`); a trace of which only a later part tells the session: it
keeps the placeholders that it has, which are not the session's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from msgspec.structs import replace

from flywheel.formats.assemble import complete, join, merged
from flywheel.formats.paths import paths_of
from flywheel.records import Fragment, Outcome, Span, Trajectory
from flywheel.store.lake_known import Known
from flywheel.trajectory.placeholders import PLACEHOLDER, PSEUDONYM, pseudonym
from flywheel.trajectory.redact import Redaction, session_of

_KEYS = 1000  # that are looked up at a time
_TEXT = 8 << 20  # and characters of what waits for the answer, or a little more
_IDENTITY = ("session_id", "conversation_id", "trace_id", "native_id", "user_id")  # what placeholders hang on
_WORD = re.compile(r"[\w.@+:-]{6,128}")  # what a user id that is looked for in texts may be
_PLACE = ("source_id", "source_record_ix", "content_sha256", "n_steps", "content_complete", "quality_flags")
_REPAIRS = {"invalid_utf8", "invalid_utf16", "lone_surrogate", "nonfinite_number", "duplicate_keys", "concatenated"}
# What a reader of spans says of a trace itself; everything else is told by the spans, and told anew.
_OF_TRACE = ("trajectory_id", "native_id", "trace_id", "source_id", "source_record_ix", "format")
_OF_MLFLOW = (
    "conversation_id", "session_id", "user_id", "tenant", "task_id", "format_version", "agent_name", "started_at",
    "ended_at", "time_quality", "metadata", "extra",
)  # fmt: skip


def with_known(known: Known, groups: Iterable[list[Fragment]]) -> Iterator[tuple[list[Fragment], Fragment | None]]:
    """Each group of fragments of one key, with what the lake has of it."""
    if known.is_empty:
        yield from ((group, None) for group in groups)
        return
    waiting: dict[str, list[Fragment]] = {}
    text = 0
    for group in groups:
        waiting[group[0].key] = group
        text += sum(map(_weight, group))
        if len(waiting) >= _KEYS or text >= _TEXT:
            yield from _looked_up(known, waiting)
            waiting, text = {}, 0
    yield from _looked_up(known, waiting)


def _looked_up(known: Known, waiting: dict[str, list[Fragment]]) -> Iterator[tuple[list[Fragment], Fragment | None]]:
    for key, stored in known.of(list(waiting)):
        yield waiting.pop(key), stored
    yield from ((group, None) for group in waiting.values())


def _weight(fragment: Fragment) -> int:
    texts = [span.attributes for span in fragment.spans]
    for step in fragment.steps:
        texts += (step.content, step.parts, step.raw, step.extra)
    return sum(len(text) for text in texts if text)


def rejoined(stored: Fragment, parts: Sequence[Fragment], redaction: Redaction, losses: Counter[str]) -> list[Fragment]:
    """The trajectories of all parts, redacted; they name a source of the new parts. `losses` counts what was taken out.

    None where everything in the parts is in the lake already.
    """
    removed: Counter[str] = Counter()
    join_all = _trace if stored.spans else _steps
    sources = {part.trajectory.source_id for part in parts}
    newest = parts[-1].trajectory
    wholes = []
    for whole in join_all(stored, parts, redaction, removed):
        head = whole.trajectory
        if head.source_id not in sources:
            head = replace(head, source_id=newest.source_id, source_record_ix=newest.source_record_ix)
        wholes.append(replace(whole, trajectory=head))
    losses.update({f"redacted {kind}": n for kind, n in removed.items()})
    return wholes


def _trace(stored: Fragment, parts: Sequence[Fragment], redaction: Redaction, removed: Counter[str]) -> list[Fragment]:
    """A trace is finished twice: to learn whose it is, then again from redacted spans."""
    unplaced = tuple(map(_unplaced, stored.outcomes))
    base = replace(stored, trajectory=_of_trace(stored.trajectory), steps=(), tool_calls=(), outcomes=unplaced)
    arrived = {whole.key: whole.trajectory for whole in join(parts)}
    user = next((head.user_id for head in arrived.values() if head.user_id is not None), None)
    user = user or _user(stored.trajectory.user_id, parts, redaction.key)
    wholes = [_named(whole, arrived.get(whole.key), user) for whole in join([base, *parts])]
    held = _placeholders(stored)
    spans = tuple(span for whole in wholes for span in _consistent(whole, held, redaction, removed).spans)
    heads = [_redacted(replace(part, spans=()), wholes[0].trajectory, held, redaction, removed) for part in parts]
    if _has_all(stored, spans, heads):
        return []
    return join([replace(base, spans=()), *heads[:-1], replace(heads[-1], spans=spans)])


def _named(whole: Fragment, arrived: Trajectory | None, user: str | None) -> Fragment:
    """The trajectory under the names that stand in the new parts, where the lake's are pseudonyms.

    Only so can they be found in the texts, and only so do values have the placeholders that they had.
    """
    given: dict[str, Any] = {} if arrived is None else {name: getattr(arrived, name) for name in _IDENTITY}
    head = whole.trajectory
    names = {
        name: value
        for name, value in {**given, "user_id": user}.items()
        if value is not None and PSEUDONYM.fullmatch(getattr(head, name) or "") is not None
    }
    return replace(whole, trajectory=replace(head, **names)) if names else whole


def _user(known: str | None, parts: Iterable[Fragment], key: bytes) -> str | None:
    """Who it is that the lake knows by a pseudonym, if the new parts say the name anywhere; else the pseudonym."""
    if known is None or PSEUDONYM.fullmatch(known) is None:
        return known
    words = {word for part in parts for text in _texts(part) for word in _WORD.findall(text)}
    words |= {word.strip(".:-") for word in words}
    return next((word for word in words if pseudonym(key, "user", word) == known), known)


def _texts(fragment: Fragment) -> Iterator[str]:
    for row in (*fragment.steps, *fragment.tool_calls, *fragment.spans):
        for name in row.__struct_fields__:
            value = getattr(row, name)
            if isinstance(value, str):
                yield value


def _unplaced(outcome: Outcome) -> Outcome:
    """A score that a tracing tool gave to a span, as it came: the span's step is found anew."""
    if outcome.native_target_id is None or outcome.target_kind not in ("step", "span"):
        return outcome
    return replace(outcome, target_kind="step", step_ix=None)


def _of_trace(head: Trajectory) -> Trajectory:
    kept = (*_OF_TRACE, *(_OF_MLFLOW if head.format == "mlflow" else ()))
    flags = tuple(flag for flag in head.quality_flags or () if flag in _REPAIRS)
    return Trajectory(
        **{name: getattr(head, name) for name in kept},
        content_sha256="",
        n_steps=0,
        content_complete=True,
        quality_flags=flags or None,
    )


def _has_all(stored: Fragment, spans: Iterable[Span], heads: Iterable[Fragment]) -> bool:
    """Whether the lake has every one of the spans, outcomes and columns."""
    if not {_bare(span) for span in spans} <= {_bare(span) for span in stored.spans}:
        return False
    outcomes = {outcome.outcome_id for outcome in stored.outcomes}
    for part in heads:
        if not {outcome.outcome_id for outcome in part.outcomes} <= outcomes:
            return False
        said = ((name, getattr(part.trajectory, name)) for name in part.trajectory.__struct_fields__)
        if any(v is not None and v != getattr(stored.trajectory, n) for n, v in said if n not in _PLACE):
            return False
    return True


def _bare(span: Span) -> Span:
    return replace(span, source_id=None, trajectory_id=None)


def _steps(stored: Fragment, parts: Sequence[Fragment], redaction: Redaction, removed: Counter[str]) -> list[Fragment]:
    dated = any(part.trajectory.ended_at is not None for part in parts)
    base = replace(stored, trajectory=_uncounted(stored, dated))
    identity = reduce(merged, (part.trajectory for part in parts), base.trajectory)
    if identity.user_id is not None and PSEUDONYM.fullmatch(identity.user_id):
        identity = replace(identity, user_id=_user(identity.user_id, parts, redaction.key))
    held = _placeholders(stored)
    clean = [_redacted(part, identity, held, redaction, removed) for part in parts]
    return join([*(paths_of(base) if any(part.is_path for part in parts) else [base]), *clean])


def _redacted(
    part: Fragment, identity: Trajectory, held: set[str], redaction: Redaction, removed: Counter[str]
) -> Fragment:
    """A part, redacted as one of the trajectory that it belongs to; its head says no more than it did."""
    own = part.trajectory
    whose = {name: getattr(identity, name) for name in _IDENTITY}
    clean = _consistent(replace(part, trajectory=replace(own, **whose)), held, redaction, removed)
    unsaid = {name: None for name in _IDENTITY if getattr(own, name) is None}
    return replace(clean, trajectory=replace(clean.trajectory, **unsaid)) if unsaid else clean


def _consistent(whole: Fragment, held: set[str], redaction: Redaction, removed: Counter[str]) -> Fragment:
    """The fragment, redacted with the placeholders that the lake's rows have, whichever of its ids those hang on.

    It may have been stored before anybody told its session.
    """
    head = whole.trajectory
    best, fewest, counts = whole, None, Counter[str]()
    ids = (session_of(head), head.conversation_id, head.trace_id, head.native_id, head.trajectory_id)
    for session in dict.fromkeys(name for name in ids if name is not None):
        found = Counter[str]()
        clean = redaction.fragment(replace(whole, trajectory=replace(head, session_id=session)), found)
        unknown = len(_placeholders(clean) - held)
        if fewest is None or unknown < fewest:
            best, fewest, counts = clean, unknown, found
        if not fewest or not held:
            break
    removed.update(counts)
    said = redaction.fragment(Fragment(key=whole.key, record_ix=0, trajectory=head)).trajectory.session_id
    return replace(best, trajectory=replace(best.trajectory, session_id=said))


def _placeholders(fragment: Fragment) -> set[str]:
    return {found for text in _texts(fragment) for found in PLACEHOLDER.findall(text)}


def _uncounted(stored: Fragment, dated: bool) -> Trajectory:
    """The head without what was told by its steps: they may be more now. Inverse of `complete`.

    `dated`: its times stay, since what joins it has times of its own.
    """
    head = stored.trajectory
    names = ["duration_ms", "time_quality", "cost_usd", "cost_source", "model"]
    told: dict[str, Any] = dict.fromkeys(names if dated else [*names, "started_at", "ended_at"])
    again = complete(replace(stored, trajectory=replace(head, **told))).trajectory
    changes = {name: None for name in told if getattr(again, name) == getattr(head, name)}
    flags = {flag for step in stored.steps for flag in step.quality_flags or ()}
    left = [flag for flag in head.quality_flags or () if flag not in flags]
    if "no_messages" in left and not stored.steps:  # the result of a trial whose messages came later (`harbor_job.py`)
        left.remove("no_messages")
        head = replace(head, content_complete=True)
    return replace(head, **changes, quality_flags=tuple(left) or None)
