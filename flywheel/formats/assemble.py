"""Fragments to whole trajectories: parts with one key are joined, then counted, summed and hashed.

`assemble` joins what readers yield; `complete` fills in what no reader has to compute, after redaction, because the
content hash is taken over what is stored. Two fragments with one key are parts of one trajectory if their steps don't
overlap. If they do, one is a longer or corrected record of the other and takes its place: within a source the later
one, between sources (which have no order) the longer one. Paths of a message graph are merged first (`paths.py`).

Not covered: parts that came in an earlier batch (`flywheel/ingest_rejoin.py` joins them by these rules).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import reduce
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from flywheel.formats.finish import finish
from flywheel.formats.paths import merge_paths
from flywheel.formats.times import read_time, worst
from flywheel.records import Fragment, Step, ToolCall, Trajectory
from flywheel.trajectory.placeholders import Numbering

_MOST_COST = 10**9  # what the lake's column holds
_CUT = {"redacted", "truncated", "external"}
_LOST = ("invalid_utf8", "invalid_utf16")


def assemble(fragments: Iterable[Fragment]) -> list[Fragment]:
    """One fragment a key, in order of first appearance; traces are made into trajectories (`finish.py`)."""
    by_key: dict[str, list[Fragment]] = {}
    for fragment in fragments:
        by_key.setdefault(fragment.key, []).append(fragment)
    return [whole for found in by_key.values() for whole in join(found)]


def join(fragments: Sequence[Fragment]) -> list[Fragment]:
    """The trajectories of all fragments of one key, later ones last. One, unless a trace holds several."""
    paths = [fragment for fragment in fragments if fragment.is_path]
    rest = [fragment for fragment in fragments if not fragment.is_path]
    parts = [merge_paths(paths), *rest] if paths else rest
    whole = parts[0] if len(parts) == 1 else _union(parts) if _is_disjoint(parts) else reduce(_join, parts)
    return list(finish(whole))


def _is_disjoint(parts: Sequence[Fragment]) -> bool:
    return len({step.step_ix for part in parts for step in part.steps}) == sum(len(part.steps) for part in parts)


def complete(fragment: Fragment) -> Fragment:
    """The fragment with its trajectory's counts, sums, times, flags and hashes. Idempotent."""
    head, steps, calls = fragment.trajectory, fragment.steps, fragment.tool_calls
    models = tuple(dict.fromkeys([step.model for step in steps if step.model])) or ((head.model,) if head.model else ())
    flags = dict.fromkeys(head.quality_flags or ())
    for step_flags in [step.quality_flags for step in steps if step.quality_flags]:
        flags |= dict.fromkeys(step_flags)
    cut = not _CUT.isdisjoint({step.content_state for step in steps}) or any(flag in flags for flag in _LOST)
    system = next((step.content for step in steps if step.role == "system"), None)
    trajectory = replace(
        head,
        content_sha256=content_sha256(steps, calls),
        system_prompt_sha256=None if system is None else _sha256(system),
        tools_sha256=None if head.tools is None else _sha256(head.tools),
        n_steps=len(steps),
        n_llm_calls=_n_llm_calls(steps),
        n_tool_calls=len(calls),
        n_tool_errors=sum(call.is_error is True for call in calls),
        model=head.model or next(iter(models), None),
        models=models or None,
        content_complete=head.content_complete and not cut,
        quality_flags=tuple(flags) or None,
        **_times(head, steps),
        **_sums(head, steps),
    )
    return replace(fragment, trajectory=trajectory)


def content_sha256(steps: Sequence[Step], calls: Sequence[ToolCall]) -> str:
    """sha256 of the messages without ids and times: equal for the same conversation, wherever it came from."""
    by_step: dict[int, list[Any]] = {}
    for call in calls:
        by_step.setdefault(call.step_ix, []).append([call.name, call.args_raw if call.args is None else call.args])
    rows = [
        [step.role, step.name, step.content, step.parts, step.reasoning, step.refusal, by_step.get(step.step_ix, [])]
        for step in steps
    ]
    is_plain = all(step.content is None or step.content.isascii() for step in steps)
    text = _canonical(rows) if is_plain else b"[" + b",".join(map(_canonical, rows)) + b"]"
    return hashlib.sha256(Numbering()(text)).hexdigest()  # what redaction took out makes no difference


def _canonical(rows: list[Any]) -> bytes:
    """`canonical_json` of lists of texts, several times faster where they are plain ASCII, as most are."""
    try:
        quick = msgspec.json.encode(rows)
    except UnicodeEncodeError:  # a lone surrogate
        quick = b"\x7f"
    if quick.isascii() and b"\x7f" not in quick:
        return quick
    if rows and isinstance(rows[0], list):
        return b"[" + b",".join(map(_canonical, rows)) + b"]"
    return _EXACT.encode(rows).encode()


_EXACT = json.JSONEncoder(separators=(",", ":"))  # as `canonical_json`: there are no objects whose keys it would sort


def _join(held: Fragment, later: Fragment) -> Fragment:
    if _is_disjoint((held, later)):
        return _union((held, later))
    if held.trajectory.source_id != later.trajectory.source_id and len(held.steps) > len(later.steps):
        held, later = later, held
    return replace(_union((held, later)), record_ix=later.record_ix, steps=later.steps, tool_calls=later.tool_calls)


def _union(parts: Sequence[Fragment]) -> Fragment:
    """Fragments whose steps don't overlap, as one."""
    steps = sorted((step for part in parts for step in part.steps), key=lambda step: step.step_ix)
    calls = sorted((call for part in parts for call in part.tool_calls), key=lambda call: (call.step_ix, call.call_ix))
    return Fragment(
        key=parts[0].key,
        record_ix=parts[0].record_ix,
        trajectory=reduce(merged, (part.trajectory for part in parts)),
        steps=tuple(steps),
        tool_calls=tuple(calls),
        outcomes=tuple({outcome.outcome_id: outcome for part in parts for outcome in part.outcomes}.values()),
        blobs=tuple({blob.sha256: blob for part in parts for blob in part.blobs}.values()),
        spans=tuple(span for part in parts for span in part.spans),
    )


def merged(held: Trajectory, later: Trajectory) -> Trajectory:
    """The later row, with what it doesn't know taken from the earlier."""
    known = zip(later.__struct_fields__, astuple(held), astuple(later), strict=True)
    return replace(later, **{name: old for name, old, new in known if new is None and old is not None})


def _n_llm_calls(steps: Sequence[Step]) -> int:
    """Answers of the model, those of one API response counted once; copied context was counted where it came from."""
    answers = [s for s in steps if s.role == "assistant" and s.sampled is not False and not s.is_copied_context]
    return len({step.llm_call_id or step.step_ix for step in answers})


def _times(head: Trajectory, steps: Sequence[Step]) -> dict[str, Any]:
    stamps = [step.ts for step in steps if step.ts is not None]
    stamps += [step.ts_end for step in steps if step.ts_end is not None]
    started = head.started_at or min(stamps, default=None)
    ended = head.ended_at or max(stamps, default=None)
    duration = head.duration_ms
    if duration is None and started is not None and ended is not None and ended > started:
        duration = (ended - started).total_seconds() * 1000
    quality = head.time_quality
    if quality in (None, "missing"):
        quality = worst(read_time(step.ts_raw).quality for step in steps)
    return {"started_at": started, "ended_at": ended, "duration_ms": duration, "time_quality": quality}


def _sums(head: Trajectory, steps: Sequence[Step]) -> dict[str, Any]:
    """Tokens and cost: the sum over the calls where the calls have them, else what was recorded for the whole."""
    own = [step for step in steps if not step.is_copied_context]
    columns = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    per_call = any(step.input_tokens is not None or step.output_tokens is not None for step in own)
    sums: dict[str, Any] = {name: getattr(head, name) for name in columns}
    if per_call:
        for name in columns:
            known = [n for n in map(attrgetter(name), own) if n is not None]
            sums[name] = sum(known) if known else None
    recorded = sums["input_tokens"] is not None or sums["output_tokens"] is not None
    costs = [step.cost_usd for step in own if step.cost_usd is not None]
    if head.cost_usd is None and costs and sum(costs) < _MOST_COST:
        sums |= {"cost_usd": sum(costs, Decimal(0)), "cost_source": "recorded"}
    return {**sums, "usage_quality": "per_call" if per_call else "total_only" if recorded else "missing"}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
