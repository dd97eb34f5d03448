"""The formats that trajectories can be written in, each with its reader, and what is lost on the way.

    openai_chat    OpenAI chat JSONL, for trainers and everything that reads it
    atif           ATIF 1.8, one document a line

What was written is read back by the format's own reader, so a loss is what that reader can't find again.
Not covered: choosing trajectories and writing files (`flywheel/export.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flywheel.formats import export_atif, export_openai
from flywheel.formats.assemble import assemble, complete
from flywheel.formats.atif import Atif
from flywheel.formats.losses import losses
from flywheel.formats.openai_chat import OpenAIChat
from flywheel.formats.parse import dumps, loads
from flywheel.formats.reader import Reader, Record, Source
from flywheel.records import Fragment

Write = Callable[[Fragment], tuple[dict[str, Any], list[int]]]

EXPORTERS: Mapping[str, tuple[Write, Reader]] = {
    "openai_chat": (export_openai.record, OpenAIChat()),
    "atif": (export_atif.document, Atif()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One line of the file, and how much of the trajectory is not in it, by kind."""

    line: str
    losses: Counter[str]
    copy: Fragment | None  # what reading the line gives


def _on_main_path(fragment: Fragment) -> Fragment:
    """The fragment without its other branches; its sums are those of what is left."""
    path = export_openai.main_path(fragment.steps)
    if len(path) == len(fragment.steps):
        return fragment
    kept = {step.step_ix for step in path}
    calls = tuple(call for call in fragment.tool_calls if call.step_ix in kept)
    return complete(replace(fragment, steps=tuple(path), tool_calls=calls))


def exported(fragment: Fragment, format_name: str) -> Exported:
    """The trajectory in that format. `format_name` is a key of `EXPORTERS`."""
    write, reader = EXPORTERS[format_name]
    whole = complete(fragment)
    value, order = write(_on_main_path(whole))
    line = dumps(value)
    record = Record(ix=0, offset=0, length=len(line), value=loads(line).value)
    items = reader.read(iter((record,)), Source(source_id=whole.trajectory.source_id, uri=""))
    copies = [complete(copy) for copy in assemble(item for item in items if isinstance(item, Fragment))]
    copy = copies[0] if copies else None
    return Exported(line=line, losses=losses(whole, copy, order), copy=copy)
