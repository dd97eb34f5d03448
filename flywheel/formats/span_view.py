"""One span on its way from rows to steps: its attributes decoded, its log events beside it, and what a dialect found.

`Found` is what any dialect can say of a span; each says what it knows, and of two that know the same the first counts:
spans often speak several dialects at once.

Not covered: the dialects themselves, how spans make a trajectory (`traces.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from flywheel.formats.parse import try_loads
from flywheel.formats.reader import as_dict, as_list, as_text
from flywheel.formats.span_messages import Message
from flywheel.formats.spans import BODY, LOG
from flywheel.formats.usage import Usage, count
from flywheel.records import Span

KINDS = ("llm", "tool", "agent", "chain", "retriever", "reranker", "embedding", "guardrail", "evaluator")

_SHARED = ("gen_ai.system", "gen_ai.provider.name", "gen_ai.conversation.id", "session.id", "user.id")
"""Attributes of any log event that hold for its span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a span, or a log record that belongs to it."""

    name: str
    attributes: Mapping[str, Any]
    body: Any = None
    at: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A span decoded. `attributes` are its own, completed by those of its `inference.operation.details` event."""

    row: Span
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[Event, ...] = ()
    has_span: bool = True  # False: only log events of it are known

    def text(self, *keys: str) -> str | None:
        """The first of the attributes that is a text or an int."""
        return next((text for key in keys if (text := as_text(self.attributes.get(key))) is not None), None)

    def first(self, *keys: str) -> Any:
        """The first of the attributes that is there."""
        return next((self.attributes[key] for key in keys if self.attributes.get(key) is not None), None)

    def below(self, *prefixes: str) -> dict[str, Any]:
        """The attributes below a prefix, without it; of two prefixes that have one key the first counts."""
        found: dict[str, Any] = {}
        for prefix in prefixes:
            for key, value in self.attributes.items():
                if key.startswith(prefix):
                    found.setdefault(key[len(prefix) :], value)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a dialect says of a span; None where it doesn't. Messages are of OpenAI's shape."""

    kind: str | None = None  # one of KINDS
    inputs: list[Message] | None = None
    outputs: list[list[Message]] | None = None  # one list a choice: what the model said
    input: Any = None  # of spans that are no call of a model
    output: Any = None
    tools: Any = None
    tool_name: str | None = None
    tool_call_id: str | None = None
    tool_kind: str | None = None
    usage: Usage | None = None
    cost: Any = None
    model: str | None = None
    provider: str | None = None
    sampling: Mapping[str, Any] | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    conversation_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    environment: str | None = None
    metadata: Mapping[str, Any] | None = None
    tags: tuple[str, ...] | None = None
    documents: Any = None
    flags: tuple[str, ...] = ()

    def over(self, other: Found) -> Found:
        """What this one says, else the other."""
        if self is NOTHING or other is NOTHING:  # most dialects say nothing of most spans
            return other if self is NOTHING else self
        gaps = {f.name: getattr(other, f.name) for f in fields(self) if getattr(self, f.name) is None}
        metadata = {**(other.metadata or {}), **(self.metadata or {})} or None
        flags = tuple(dict.fromkeys((*self.flags, *other.flags)))
        return replace(self, **{**gaps, "metadata": metadata, "flags": flags})


NOTHING = Found()


def view_of(row: Span | None, logs: Iterable[Span]) -> View:
    """A span and its log events, or log events alone (then the first stands for the span). Never raises."""
    logs = list(logs)
    head = row if row is not None else replace(logs[0], span_id=logs[0].parent_span_id, parent_span_id=None)
    own = decoded_object(row.attributes) if row is not None else {}
    events = [_event(as_dict(item)) for item in as_list(_decoded(row.events))] if row is not None else []
    for log in logs:
        given = decoded_object(log.attributes)
        body = given.pop(BODY, None)
        events.append(Event(name=log.name or "", attributes=given, body=body, at=log.start_ns))
        details = log.name == "gen_ai.client.inference.operation.details"
        own = {**{key: value for key, value in given.items() if details or key in _SHARED}, **own}
    return View(
        row=head,
        attributes=own,
        resource=decoded_object(head.resource),
        events=tuple(events),
        has_span=row is not None and row.kind != LOG,
    )


def _event(item: Mapping[str, Any]) -> Event:
    at = next((item[key] for key in ("timeUnixNano", "time_unix_nano", "timestamp", "time") if key in item), None)
    return Event(
        name=as_text(item.get("name")) or "",
        attributes=as_dict(item.get("attributes")),
        body=item.get("body"),
        at=at,
    )


def _decoded(text: str | None) -> Any:
    decoded = None if text is None else try_loads(text)
    return None if decoded is None else decoded.value


def decoded_object(text: str | None) -> dict[str, Any]:
    """The object in a JSON text, or an empty one."""
    return as_dict(_decoded(text))


def loosely(value: Any) -> Any:
    """The object or list in a text that may be JSON; anything else as it stands."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        decoded = try_loads(value)
        return value if decoded is None else decoded.value
    return value


def tokens(
    *, input: Any, output: Any, read: Any = None, write: Any = None, reasoning: Any = None, total: Any = None
) -> Usage | None:
    """Counts of one call in the normal form. None where there are none.

    Input should include what the cache held. Anthropic's own counts, passed on by some instrumentations, don't: told by
    the total, or, where there is none, by a cache that is larger than the input.
    """
    given, said, cached, written = count(input), count(output), count(read), count(write)
    whole = count(total)
    in_cache = (cached or 0) + (written or 0)
    if given is not None and in_cache:
        apart = whole == given + (said or 0) + in_cache if whole is not None else in_cache > given
        if apart or in_cache > given:
            given += in_cache
    if all(number is None for number in (given, said, cached, written)):
        return None
    return Usage(
        input_tokens=given,
        output_tokens=said,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=count(reasoning),
    )


def nested(flat: Mapping[str, Any]) -> Any:
    """Flat attributes (`0.message.role`) as the object or list they were flattened from; a list where keys count up.

    Where a key is a value and a prefix at once (`a`, `a.b`), the deeper ones win and the value stays under ``.
    """
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        at = tree
        *path, last = key.split(".")
        for name in path:
            inner = at.get(name)
            if not isinstance(inner, dict) or not inner.get(_BRANCH):
                inner = {_BRANCH: True} if inner is None else {_BRANCH: True, "": inner}
                at[name] = inner
            at = inner
        held = at.get(last)
        if isinstance(held, dict) and held.get(_BRANCH):
            held[""] = value
        else:
            at[last] = value
    return _listed({**tree, _BRANCH: True})


_BRANCH = "\0branch"


def _listed(value: Any) -> Any:
    if not isinstance(value, dict) or not value.get(_BRANCH):
        return value
    items = {key: _listed(item) for key, item in value.items() if key != _BRANCH}
    if items and all(key.isdecimal() and len(key) < 10 for key in items):
        return [items[key] for key in sorted(items, key=int)]
    return items
