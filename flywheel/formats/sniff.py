"""Which reader reads a source: by content, with a confidence, or by name. The list of readers is here.

A zip archive is either one source to a reader that knows its members by name, or each of its members is a source.
Not covered: archives inside archives.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from flywheel.errors import FormatError
from flywheel.formats.agent_jsonl import AgentJsonl
from flywheel.formats.anthropic_messages import AnthropicMessages
from flywheel.formats.anthropic_sessions import AnthropicSessions
from flywheel.formats.archive import Member, MemberBytes, member_records, members_of
from flywheel.formats.atif import Atif
from flywheel.formats.atof import Atof
from flywheel.formats.claude_code import ClaudeCode
from flywheel.formats.codex_cli import CodexCli
from flywheel.formats.codex_exec import CodexExec
from flywheel.formats.containers import container_of, head_of, records_of, spooled
from flywheel.formats.copilot_cli import CopilotCli
from flywheel.formats.cursor import Cursor
from flywheel.formats.droid import Droid
from flywheel.formats.feedback_jsonl import FeedbackJsonl
from flywheel.formats.gemini_cli import GeminiCli
from flywheel.formats.harbor_job import HarborJob
from flywheel.formats.headless_stream import HeadlessStream
from flywheel.formats.hermes_agent import HermesAgent
from flywheel.formats.hf_corpora import HFCorpora
from flywheel.formats.inspect_log import InspectLog
from flywheel.formats.langfuse import Langfuse
from flywheel.formats.langsmith import LangSmith
from flywheel.formats.mast import Mast
from flywheel.formats.mini_swe_agent import MiniSweAgent
from flywheel.formats.mlflow import MLflow
from flywheel.formats.nemo_gym import NemoGym
from flywheel.formats.omp import Omp
from flywheel.formats.openai_chat import OpenAIChat
from flywheel.formats.openai_responses import OpenAIResponses
from flywheel.formats.openclaw import OpenClaw
from flywheel.formats.opencode import OpenCode
from flywheel.formats.openhands import OpenHands
from flywheel.formats.openinference import OpenInference
from flywheel.formats.otlp import Otlp
from flywheel.formats.pi_agent import PiAgent
from flywheel.formats.preference_pairs import PreferencePairs
from flywheel.formats.read import Chunks, read_lines
from flywheel.formats.reader import Container, Head, Item, Match, Reader, Record, Source
from flywheel.formats.sharegpt import ShareGPT
from flywheel.formats.swe_agent import SweAgent
from flywheel.formats.swe_bench_results import SweBenchResults
from flywheel.formats.tau2_bench import Tau2Bench
from flywheel.formats.tau_bench import TauBench
from flywheel.formats.tensorzero import TensorZero
from flywheel.formats.terminal_bench import TerminalBench
from flywheel.formats.trail import Trail
from flywheel.formats.verifiers import Verifiers
from flywheel.formats.who_and_when import WhoAndWhen
from flywheel.records import Reject

READERS: tuple[Reader, ...] = (
    AgentJsonl(),
    AnthropicMessages(),
    AnthropicSessions(),
    Atif(),
    Atof(),
    HFCorpora(),
    FeedbackJsonl(),
    Langfuse(),
    LangSmith(),
    Mast(),
    InspectLog(),
    NemoGym(),
    OpenAIChat(),
    OpenAIResponses(),
    PreferencePairs(),
    ShareGPT(),
    Tau2Bench(),
    TauBench(),
    TensorZero(),
    Trail(),
    ClaudeCode(),
    Cursor(),
    Droid(),
    Omp(),
    OpenClaw(),
    MLflow(),
    OpenInference(),
    Otlp(),
    PiAgent(),
    TerminalBench(),
    HarborJob(),
    Verifiers(),
    WhoAndWhen(),
    CodexCli(),
    CopilotCli(),
    GeminiCli(),
    HeadlessStream(),
    HermesAgent(),
    MiniSweAgent(),
    OpenCode(),
    OpenHands(),
    SweAgent(),
    SweBenchResults(),
    CodexExec(),
)
AUTO = "auto"
_MAGIC = (
    (b"BZh", "a bzip2 stream"),
    (b"\x28\xb5\x2f\xfd", "a zstd stream inside another container"),
    (b"\xfd7zXZ", "an xz stream"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive"),
)


@dataclass(slots=True)
class Reading:
    """A source with the reader chosen for it. Iterate `items` to the end; only then are the counts complete."""

    chunks: Chunks
    source: Source
    reader: Reader
    match: Match
    container: Container = "json"
    archive: BinaryIO | None = None  # that is read as one source
    members: tuple[Member, ...] = ()
    lines_from: int | None = None  # the chunks are whole lines of the source, from this offset on
    member: MemberBytes | None = None  # of an archive, which the chunks are
    n_records: int = 0
    n_repaired: int = 0
    _undecoded: list[Reject] = field(default_factory=list)
    _refuse: Callable[[Reject], None] | None = field(default=None, init=False)

    def items(self, refuse: Callable[[Reject], None] | None = None) -> Iterator[Item]:
        """What the reader yields, and the records that could not even be decoded: between the items, or to `refuse`.

        Among the items they wait for the reader's next one, however many they are. Ranges of a member of an archive say
        nothing of the archive's own bytes, so refusals of its records are placed where the member lies.
        """
        self._refuse = refuse
        for item in self.reader.read(self._records(), self.source):
            yield from self._undecoded
            self._undecoded.clear()
            yield self.member.placed(item) if self.member is not None and isinstance(item, Reject) else item
        yield from self._undecoded

    def _records(self) -> Iterator[Record]:
        quick = getattr(self.reader, "quick", None)
        if self.archive is not None:
            found = member_records(self.archive, self.members)
        elif self.lines_from is not None:
            found = read_lines(self.chunks, self.lines_from, quick)
        else:
            found = records_of(self.chunks, self.container, self.match.unit, quick)
        for item in found:
            self.n_records += 1
            if isinstance(item, Reject):
                placed = item if self.member is None else self.member.placed(item)
                (self._refuse or self._undecoded.append)(placed)
            else:
                self.n_repaired += bool(item.repairs)
                yield item


def open_readings(chunks: Chunks, source: Source, format_name: str = AUTO) -> Iterator[Reading | Reject]:
    """The source with the best reader for it, or with the named one; a Reject of the whole where nobody reads it.

    An archive gives one reading a member, unless a reader takes it as a whole; use each before you ask for the next.
    Errors: FormatError for a name that is no format.
    """
    named = None if format_name == AUTO else reader_named(format_name)
    container = container_of(chunks)
    if container == "archive":
        yield from _open_archive(chunks, source, named)
    else:
        yield _open(chunks, source, container, named)


def _open_archive(chunks: Chunks, source: Source, named: Reader | None) -> Iterator[Reading | Reject]:
    with spooled(chunks) as file:
        try:
            members, refused = members_of(file)
        except zipfile.BadZipFile as error:
            yield _refused(chunks, "damaged_zip", f"the zip archive is damaged or was cut off: {error}; pack it again")
            return
        yield from refused
        paths = tuple(member.path for member in members)
        found = _best(Head(values=(), in_array=False, container="archive", paths=paths, uri=source.uri), named)
        if found is not None:
            yield Reading(chunks, source, *found, "archive", file, members)
            return
        for ix, member in enumerate(members):
            part = member.chunks(file)
            container = container_of(part)
            if container == "archive":
                yield part.placed(
                    _refused(part, "nested_archive", "an archive inside an archive is not opened; unpack it first")
                )
            else:
                opened = _open(part, replace(source, path=member.path), container, named)
                if isinstance(opened, Reading):
                    opened.member = part
                yield part.placed(opened) if isinstance(opened, Reject) else opened
                if part.damage is not None:  # told by now: whoever asks for the next has used this one
                    yield member.reject(ix, part.damage.code, str(part.damage))
        if not members and not refused:
            yield _refused(chunks, "empty", "the archive has no files")


def _open(chunks: Chunks, source: Source, container: Container, named: Reader | None) -> Reading | Reject:
    head = head_of(chunks, container, source.path or source.uri)
    found = _best(head, named)
    if found is not None:
        return Reading(chunks, source, *found, container=container)
    if named is not None:
        return Reading(chunks, source, named, Match(confidence=0.0), container=container)
    code, message = _why_not(chunks, container, decodable=bool(head.values))
    return _refused(chunks, code, message)


def _best(head: Head, named: Reader | None) -> tuple[Reader, Match] | None:
    readers = READERS if named is None else (named,)
    found = [
        (reader, match) for reader in readers if (match := reader.sniff(head)) is not None and match.confidence > 0
    ]
    return max(found, key=lambda pair: (pair[1].confidence, pair[0].name)) if found else None


def reader_named(name: str) -> Reader:
    """The reader of that format. Errors: FormatError with the names there are."""
    for reader in READERS:
        if reader.name == name:
            return reader
    known = ", ".join(sorted(reader.name for reader in READERS))
    raise FormatError(f"no format {name!r}; use auto, or one of: {known}")


def _refused(chunks: Chunks, code: str, message: str) -> Reject:
    return Reject(record_ix=0, byte_offset=0, byte_len=sum(map(len, chunks())), code=code, message=message)


def _why_not(chunks: Chunks, container: Container, decodable: bool) -> tuple[str, str]:
    """A code and a sentence for a source that no reader accepts."""
    if decodable:
        known = ", ".join(sorted(reader.name for reader in READERS))
        kind = "JSON" if container == "json" else container
        return "unknown_format", f"{kind}, but of no format that is read here ({known}); --format NAME forces one"
    first = next((chunk for chunk in chunks() if chunk), b"")
    for magic, what in _MAGIC:
        if first.startswith(magic):
            return "unread_container", f"{what}: this container is not read; export JSON or JSON lines"
    reject = next((item for item in records_of(chunks, container, "record") if isinstance(item, Reject)), None)
    if reject is None:
        return "empty", "there is nothing but blanks in it"
    return reject.code, reject.message
