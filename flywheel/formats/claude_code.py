"""Claude Code: the JSON lines of `~/.claude/projects`, of subagents' files beside them, and of `--output-format
stream-json`.

A source may hold lines of several sessions (resumed ones repeat what they continue) and of subagents (`isSidechain`,
`parent_tool_use_id`); each becomes a trajectory, a subagent's points to its parent. Lines are gathered by session and
made into rows when the source ends (`claude_code_rows.py`): one message of the API stands on several lines.
Lines without a `uuid` (titles, queues, file snapshots) belong to no place in the tree and are kept in `extra`.

Costs: the first versions wrote one a line (`costUSD`), the stream's last line has one of the whole; else there is none.

Not covered: the `.meta.json` files beside subagents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flywheel.formats.claude_code_lines import Line, linked
from flywheel.formats.claude_code_rows import build
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_text,
    fingerprint,
    first_text,
    trajectory_id,
)
from flywheel.formats.session import Session, word
from flywheel.records import Fragment, Reject

_LOOSE = {
    "summary", "queue-operation", "file-history-snapshot", "file-history-delta", "ai-title", "custom-title",
    "last-prompt", "agent-name", "agent-color", "agent-setting", "pr-link", "tag", "mode", "permission-mode", "result",
    "rate_limit_event", "stream_event", "attribution-snapshot", "worktree-state", "content-replacement",
}  # fmt: skip
_TREE = {"user", "assistant", "system", "attachment", "progress"}


class ClaudeCode:
    """The reader."""

    name = "claude_code"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        lines = [as_dict(value) for value in head.values]
        sure = [line for line in lines if _is_line(line)]
        if not sure:
            loose = [line for line in lines if word(line.get("type")) in _LOOSE and _session(line, "")]
            return Match(confidence=0.9) if loose and len(loose) == len(lines) else None
        version = next((as_text(line["version"]) for line in sure if "version" in line), None)
        return Match(confidence=0.95, version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        gathered = _Gathered(source)
        for record in records:
            reject = gathered.add(record)
            if reject is not None:
                yield reject
        yield from gathered.fragments()


def _session(line: Mapping[str, Any], default: str) -> str:
    return first_text(line, "sessionId", "session_id") or default


def _is_line(line: Mapping[str, Any]) -> bool:
    """Whether the line is one that only Claude Code writes."""
    kind, message = word(line.get("type")), as_dict(line.get("message"))
    if kind not in _TREE:
        return False
    if "uuid" in line and ("parentUuid" in line or "sessionId" in line):
        return True
    streamed = "session_id" in line and ("parent_tool_use_id" in line or "subtype" in line)
    return streamed and (bool(message) or kind == "system")


@dataclass(slots=True)
class _Group:
    """The lines of one session or subagent."""

    key: str
    session_id: str
    record_ix: int
    agent: str | None = None
    lines: list[Line] = field(default_factory=list)
    loose: list[dict[str, Any]] = field(default_factory=list)


class _Gathered:
    """The lines of a source by session."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.first: str | None = None
        self.groups: dict[str, _Group] = {}
        self.chains: dict[str, str] = {}  # uuid of a sidechain's line -> the agent it belongs to
        self.session = ""  # of the line before: some lines name none
        self.unplaced: list[tuple[Record, dict[str, Any]]] = []

    def add(self, record: Record) -> Reject | None:
        line = as_dict(record.value)
        self.first = self.first or fingerprint(record.value)
        kind = word(line.get("type"))
        if not kind or not (kind in _LOOSE or kind in _TREE or "uuid" in line or _session(line, "")):
            return record.reject("not_claude_code", "the line is none that Claude Code writes")
        self.session = _session(line, self.session)
        if kind in _LOOSE or (kind not in _TREE and "uuid" not in line):
            self.unplaced.append((record, line | ({"sessionId": self.session} if self.session else {})))
            return None
        agent = self._agent(line)
        self._group(record, self.session, agent).lines.append(Line(record.ix, line))
        return None

    def _agent(self, line: Mapping[str, Any]) -> str | None:
        """The subagent that the line belongs to; one without a name is named by the first line of its chain."""
        uuid, parent = as_text(line.get("uuid")), first_text(line, "parentUuid")
        spawned = as_text(line.get("parent_tool_use_id"))
        if line.get("isSidechain") is not True and spawned is None:
            return None
        agent = as_text(line.get("agentId")) or spawned or self.chains.get(parent or "") or uuid or "sidechain"
        if uuid is not None:
            self.chains[uuid] = agent
        return agent

    def _group(self, record: Record, session_id: str, agent: str | None) -> _Group:
        native = session_id if agent is None else f"{session_id}/{agent}"
        if native not in self.groups:
            self.groups[native] = _Group(self.id_of(native), session_id, record.ix, agent)
        return self.groups[native]

    def id_of(self, native: str) -> str:
        return trajectory_id(ClaudeCode.name, native, self.first or "")

    def fragments(self) -> Iterator[Fragment]:
        self._place_loose()
        built = {native: self._build(native, group) for native, group in self.groups.items()}
        self._mark_copies(list(built.values()))
        made = {native: session.fragment() for native, session in built.items()}
        for native, fragment in made.items():
            children = {child: made[child] for child in made if child.startswith(f"{native}/")}
            yield linked(fragment, children, native)

    def _place_loose(self) -> None:
        """Each line without a place to the session that it names, or that has the line it names, or to the first."""
        owners = {
            uuid: native
            for native, group in self.groups.items()
            for line in group.lines
            if (uuid := as_text(line.value.get("uuid"))) is not None
        }
        for record, line in self.unplaced:
            named = owners.get(first_text(line, "leafUuid", "messageId") or "")
            session_id = _session(line, "")
            agents = [native for native, group in self.groups.items() if group.session_id == session_id]
            native = named or next(iter(agents), None) or next(iter(self.groups), None)
            group = self.groups[native] if native else self._group(record, session_id, None)
            group.loose.append({key: item for key, item in line.items() if key != "sessionId" or item != session_id})

    def _build(self, native: str, group: _Group) -> Session:
        session = Session(ClaudeCode.name, self.source, group.key, native or None, group.record_ix)
        session.columns |= {"session_id": group.session_id or None, "agent_name": "claude-code"}
        if group.agent is not None:
            session.columns["parent_trajectory_id"] = self.id_of(group.session_id)
            session.metadata["agentId"] = group.agent
        build(session, group.lines, group.loose, lambda agent: self.id_of(f"{group.session_id}/{agent}"))
        return session

    def _mark_copies(self, sessions: list[Session]) -> None:
        """A message of the API that an earlier session of this source has was copied by a resume: it counts there."""
        owner: dict[str, Session] = {}
        for session in sessions:
            for ix, step in enumerate(session.steps):
                entry = step.llm_call_id or step.native_id
                if entry is None or owner.setdefault(entry, session) is session:
                    continue
                session.set(ix, is_copied_context=True)
                session.columns.setdefault("continued_from", owner[entry].trajectory_id)
