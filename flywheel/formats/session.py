"""What the transcripts of coding agents have in common: a session that grows entry by entry, often as a tree.

`Session` holds the rows of one trajectory while its source is read: the conversation, which row stands for which entry
of the source (entries name the entry they follow), what is said once for the whole (`metadata`), what is learnt of a
call after its result (`patches`), and why it ended. `fragment` gives the rows. A session is held whole until its source
ends, because a later line may change an earlier row: that is as much memory as its trajectory needs anyway.

Not covered: what entries mean; each format's reader says that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from flywheel.formats.messages import Conversation
from flywheel.formats.parse import dumps, loads
from flywheel.formats.reader import Source, as_dict, as_text
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage
from flywheel.records import Fragment, Outcome, Step, ToolCall, Trajectory

_EXIT_FIRST = re.compile(r"^(?:Process exited with code|Exit code:?) (-?\d{1,5})\b", re.MULTILINE)
_EXIT_LAST = re.compile(r"^(?:<exited with exit code|Command exited with code) (-?\d{1,5})\b", re.MULTILINE)
MODEL_ENDS: Mapping[str, str] = {
    "end_turn": "completed",
    "stop_sequence": "completed",
    "stop": "completed",
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "model_context_window_exceeded": "context_overflow",
    "aborted": "user_abort",
    "error": "model_error",
}
"""How the last answer ended to how the session ended, in the words that several agents share."""
_OVERFLOW = re.compile(
    r"prompt is too long|context[ _](?:length|window)|maximum context|too many tokens|input is too long", re.IGNORECASE
)


@dataclass(slots=True)
class Session:
    """One trajectory on its way. The dictionaries are filled by the reader; `columns` are those of the trajectory."""

    format: str
    source: Source
    trajectory_id: str
    native_id: str | None
    record_ix: int
    columns: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, None] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    patches: dict[str, dict[str, Any]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    conversation: Conversation = field(init=False)

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.trajectory_id)

    @property
    def steps(self) -> list[Step]:
        """The rows so far."""
        return self.conversation.steps

    @property
    def last_ix(self) -> int | None:
        """The row that an entry follows that names none."""
        return len(self.steps) - 1 if self.steps else None

    def set(self, step_ix: int, **columns: Any) -> None:
        """Change columns of a row."""
        self.steps[step_ix] = msgspec.structs.replace(self.steps[step_ix], **columns)

    def more(self, step_ix: int, rest: Mapping[str, Any]) -> None:
        """Add what no column took to a row's `extra`; what is there already stays."""
        held = self.steps[step_ix].extra
        if rest:
            self.set(step_ix, extra=dumps({**dict(rest), **_held(held)}))

    def common(self, entry: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
        """Take what each entry repeats of the whole session into `metadata`; gives what differs from it."""
        differs = {}
        for key in keys:
            value = entry.get(key)
            if value is not None and self.metadata.setdefault(key, value) != value:
                differs[key] = value
        return differs

    def counted(self, kind: str) -> None:
        """One more entry of that kind: `extra` says how many of each there were, also of those that made no row."""
        entries = self.extra.setdefault("entries", {})
        entries[kind] = entries.get(kind, 0) + 1

    def event(self, kind: str | None, value: Any, content: Any = None, **columns: Any) -> int:
        """Append a row for something that is no message; `value` is kept as it is."""
        text = content if isinstance(content, str) else None
        return self.conversation.add(
            role="event",
            role_raw=kind,
            content=text,
            content_state="missing" if text is None else "present",
            raw=dumps(value),
            **columns,
        )

    def place(self, first_ix: int, entry: str | None, parent: str | None = None, is_root: bool = False) -> None:
        """Say which entry the rows from `first_ix` on stand for, and which entry they follow.

        Without a known parent they follow the row before them, unless the entry is a root.
        """
        if is_root:
            self.set(first_ix, parent_ix=None)
        elif parent is not None and parent in self.rows:
            self.set(first_ix, parent_ix=self.rows[parent])
        if entry is not None and self.last_ix is not None:
            self.rows[entry] = self.last_ix

    def stamp(self, first_ix: int, time: Any) -> None:
        """Give the rows from `first_ix` on their time, where they have none."""
        read = read_time(time)
        for ix in range(first_ix, len(self.steps)):
            if self.steps[ix].ts_raw is None:
                self.set(ix, ts=read.at, ts_raw=read.raw)

    def patch(self, call_id: str | None, **columns: Any) -> None:
        """What is known of a call besides what it said: applied to the last call with that id."""
        if call_id is not None:
            self.patches.setdefault(call_id, {}).update(columns)

    def fail(self, kind: str | None, message: str | None, reason: str = "model_error") -> None:
        """The session ended in an error, as far as is known by now."""
        overflow = message is not None and _OVERFLOW.search(message) is not None
        self.columns |= {
            "end_reason": "context_overflow" if overflow else reason,
            "error_type": kind,
            "error_message": message,
        }

    def go_on(self) -> None:
        """It went on after what looked like its end."""
        for name in ("end_reason", "end_reason_raw", "error_type", "error_message"):
            self.columns.pop(name, None)

    def fragment(self) -> Fragment:
        """The rows."""
        steps, calls = self.conversation.finish()
        last = {call.call_id: ix for ix, call in enumerate(calls)}
        patched = tuple(
            _patched(call, self.patches.get(call.call_id or "")) if last[call.call_id] == ix else call
            for ix, call in enumerate(calls)
        )
        trajectory = Trajectory(
            **{
                "trajectory_id": self.trajectory_id,
                "content_sha256": "",
                "native_id": self.native_id,
                "source_id": self.source.source_id,
                "source_record_ix": self.record_ix,
                "format": self.format,
                "n_steps": len(steps),
                "content_complete": True,
                "quality_flags": tuple(self.flags) or None,
                "metadata": dumps(self.metadata) if self.metadata else None,
                "extra": dumps(self.extra) if self.extra else None,
                **self.columns,
            }
        )
        return Fragment(
            key=self.trajectory_id,
            record_ix=self.record_ix,
            trajectory=trajectory,
            steps=steps,
            tool_calls=patched,
            outcomes=tuple(self.outcomes),
        )


def _held(extra: str | None) -> dict[str, Any]:
    """An `extra` as it was before it became text, numbers as they were typed."""
    return as_dict(loads(extra).value) if extra else {}


def _patched(call: ToolCall, columns: Mapping[str, Any] | None) -> ToolCall:
    if not columns:
        return call
    rest = dict(columns)
    more = rest.pop("extra", None)
    if more:
        rest["extra"] = dumps({**_held(call.extra), **more})
    if rest.get("is_error") is True and call.result_state == "ok":
        rest.setdefault("result_state", "error")
    return msgspec.structs.replace(call, **rest)


def usage_columns(usage: Usage) -> dict[str, Any]:
    """The columns of a row for the tokens of its call."""
    return {name: getattr(usage, name) for name in usage.__dataclass_fields__}


def exit_code(text: str | None) -> int | None:
    """The exit code that an agent's shell wrote before or after what a command printed, in its own words."""
    found = None if not text else _EXIT_FIRST.search(text[:400]) or _EXIT_LAST.search(text[-200:])
    return None if found is None else int(found[1])


def failure(code: int | None) -> dict[str, Any]:
    """The columns of a call whose command ended with that exit code (None: not known)."""
    if code is None:
        return {}
    return {"is_error": code != 0} | ({"error_type": f"exit_code_{code}"} if code else {})


def without(value: Any, *keys: str) -> dict[str, Any]:
    """The object without some of its keys, and without those that are null."""
    return {key: item for key, item in as_dict(value).items() if key not in keys and item is not None}


def text_of(value: Any) -> str | None:
    """A text as it is; anything else but null as JSON."""
    return value if value is None or isinstance(value, str) else dumps(value)


def word(value: Any) -> str:
    """The text of a discriminator (`type`, `kind`, `role`), '' if it is none."""
    return as_text(value) or ""
