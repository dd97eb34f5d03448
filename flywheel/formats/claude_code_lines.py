"""Lines of Claude Code before and after they are rows: repeats, one message's blocks, subagents by their calls.

Not covered: the rows (`claude_code_rows.py`), which lines belong together (`claude_code.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_text
from flywheel.formats.session import text_of
from flywheel.records import Fragment


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and which record it was."""

    record_ix: int
    value: dict[str, Any]


def without_repeats(lines: Sequence[Line]) -> list[Line]:
    """The lines without those that repeat an earlier one with the same uuid: a resume writes its history again."""
    seen: dict[str, list[dict[str, Any]]] = {}
    kept = []
    for line in lines:
        uuid = as_text(line.value.get("uuid"))
        bare = {key: item for key, item in line.value.items() if key != "sessionId"}
        if uuid is None or bare not in seen.setdefault(uuid, []):
            kept.append(line)
            seen.setdefault(uuid or "", []).append(bare)
    return kept


def blocks_of_all(contents: Sequence[Any]) -> Any:
    """The blocks of all lines of a message, each once; a call that was written while it streamed counts as it ended."""
    if len(contents) == 1:
        return contents[0]
    blocks: list[Any] = []
    for content in contents:
        before = len(blocks)
        for block in content if isinstance(content, list) else [{"type": "text", "text": text_of(content) or ""}]:
            call_id = as_dict(block).get("id")
            same = next((ix for ix, held in enumerate(blocks) if call_id and as_dict(held).get("id") == call_id), None)
            if same is not None:
                blocks[same] = block
            elif block not in blocks[:before]:
                blocks.append(block)
    return blocks


def linked(fragment: Fragment, children: Mapping[str, Fragment], native: str) -> Fragment:
    """The session with its calls pointing to the subagents of the same source that they started.

    Told by the call's id where lines name it, else by the prompt that the subagent was given.
    """
    calls = list(fragment.tool_calls)
    prompts = _prompts(fragment) if children else {}
    for name, child in children.items():
        agent = name.removeprefix(f"{native}/")
        prompt = next((step.content for step in child.steps if step.role == "user"), None)
        told = (
            ix for ix, call in enumerate(calls) if call.subagent_trajectory_id == child.key or call.call_id == agent
        )
        found = next(told, prompts.get(prompt))
        if found is not None and calls[found].subagent_trajectory_id in (None, child.key):
            calls[found] = msgspec.structs.replace(calls[found], subagent_trajectory_id=child.key)
    return msgspec.structs.replace(fragment, tool_calls=tuple(calls))


def _prompts(fragment: Fragment) -> dict[str | None, int]:
    """The calls that give a subagent its prompt, by the prompt; of equal ones the first."""
    found: dict[str | None, int] = {}
    for ix, call in enumerate(fragment.tool_calls):
        if call.args is not None and '"prompt"' in call.args:
            prompt = as_text(as_dict(getattr(try_loads(call.args), "value", None)).get("prompt"))
            found.setdefault(prompt, ix)
    found.pop(None, None)
    return found
