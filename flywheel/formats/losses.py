"""What a trajectory loses when it is written in a format: found by reading back what was written.

Every column that had a value and has another one (or none) after the way out and in again counts as one loss of its
kind (`step.reasoning_opaque`, `tool_call.args_raw`, `outcome.metadata`, ...), every step or outcome that is not there
as one of `steps.<role>` or `outcomes`. What the way adds is no loss, and neither is what names the source (ids of the
lake, format, place) or follows from other columns (counts, hashes, qualities).

Not covered: what the reader of the original had lost before (its quality flags say so).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from flywheel.formats.parse import dumps, try_loads
from flywheel.records import Fragment, Outcome, Row, Trajectory

_ADDRESS = {"trajectory_id", "source_id", "source_record_ix", "format", "format_version", "revision", "native_id"}
_DERIVED = {
    "content_sha256", "models", "system_prompt_sha256", "tools_sha256", "n_steps", "n_llm_calls", "n_tool_calls",
    "n_tool_errors", "time_quality", "usage_quality", "cost_source", "quality_flags", "success_source", "args_state",
    "call_id_generated", "paired_by", "role_raw", "parent_ix", "step_ix", "native_ix", "call_ix", "result_step_ix",
    "outcome_id",
}  # fmt: skip
_EXACT = {"role", "name", "content", "parts", "reasoning", "refusal", "args"}  # here an addition is a change, too
_OPEN = {"metadata", "extra", "sampling"}  # objects that may grow on the way


def losses(before: Fragment, after: Fragment | None, order: Sequence[int]) -> Counter[str]:
    """Losses by kind. `order`: which step of the original each step of the copy was made from."""
    found: Counter[str] = Counter()
    if after is None:
        found["trajectory"] = 1
        return found
    head = before.trajectory
    _rows("trajectory", replace(head, extra=_without_id(head)), after.trajectory, found)
    written = dict(zip(order, after.steps, strict=False))
    for step in before.steps:
        if step.step_ix in written:
            _rows("step", step, written[step.step_ix], found)
        else:
            found[f"steps.{step.role}"] += 1
    found["step_order"] += sum(later < earlier for earlier, later in pairwise(order))
    _calls(before, after, order, found)
    _outcomes(before, after, found)
    return +found


def _calls(before: Fragment, after: Fragment, order: Sequence[int], found: Counter[str]) -> None:
    """Calls are compared place by place within the step that made them."""
    place = {step_ix: ix for ix, step_ix in enumerate(order)}
    copies = {(call.step_ix, call.call_ix): call for call in after.tool_calls}
    for call in before.tool_calls:
        if call.step_ix not in place:
            continue  # it went with its step, which is counted
        copy = copies.get((place[call.step_ix], call.call_ix))
        if copy is None:
            found["tool_calls"] += 1
            continue
        _rows("tool_call", call, copy, found)
        if call.args is None and call.args_raw is None and copy.args_raw is not None:
            found["tool_call.args_raw"] += 1  # a text that the model never wrote
        answered = None if call.result_step_ix is None else place.get(call.result_step_ix)
        if call.result_step_ix is not None and copy.result_step_ix != answered:
            found["tool_call.result_step_ix"] += 1


def _outcomes(before: Fragment, after: Fragment, found: Counter[str]) -> None:
    """Outcomes that the copy has with the same name, value and source, whatever their order."""
    left = list(after.outcomes)
    for outcome in before.outcomes:
        copy = next((other for other in left if _same(outcome, other)), None)
        if copy is None:
            found["outcomes"] += 1
            continue
        left.remove(copy)
        _rows("outcome", outcome, copy, found)


def _same(outcome: Outcome, other: Outcome) -> bool:
    columns = ("name", "value_raw", "value_type", "source_kind", "source_id")
    return all(getattr(outcome, name) == getattr(other, name) for name in columns)


def _rows(kind: str, before: Row, after: Row, found: Counter[str]) -> None:
    names = (name for name in before.__struct_fields__ if name not in _DERIVED)
    for name in names:
        if name in _ADDRESS and not (kind == "outcome" and name == "source_id"):
            continue
        old, new = getattr(before, name), getattr(after, name)
        told = (name in _EXACT and kind != "outcome") or old not in (None, (), "")
        if told and old != new and not (name in _OPEN and _grown(old, new)):
            found[f"{kind}.{name}"] += 1


def _without_id(head: Trajectory) -> str | None:
    """`extra` without the keys that hold the native id once more: it's an address."""
    held = None if head.extra is None else try_loads(head.extra)
    if held is None or not isinstance(held.value, dict):
        return head.extra
    left = {key: item for key, item in held.value.items() if item != head.native_id}
    return dumps(left) if left else None


def _grown(old: str, new: str | None) -> bool:
    """Whether an object has all its keys, with their values, in the other."""
    held, now = try_loads(old), None if new is None else try_loads(new)
    if held is None or now is None or not isinstance(held.value, dict) or not isinstance(now.value, dict):
        return False
    return all(key in now.value and now.value[key] == item for key, item in held.value.items())
