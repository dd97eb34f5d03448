"""The nouns: what traces are made of and what is done with them, frozen, in the lake's column order.

Trajectory   one run of an agent on one request           Step      one message of it
ToolCall     one call, with its result paired to it       Outcome   a score, label or feedback
Task         prompt + environment + verifier + split      Verdict   what a verifier said of one rollout
Rollout      a policy on a task, once: stored as a Trajectory of format 'rollout' whose id is the rollout's
SourceFile   a landing object as it was read              Quarantine  a record in it that could not be
Report       one evaluation in numbers, task by task      Fragment  what a reader yields, joined by its key
Attachment   outcomes that came apart from their trajectory

A class with `TABLE` set is one table of the lake; its fields are the columns, in order. What the loop
itself did (failures, runs, decisions...) is in `ledger.py`. Ids are strings and are hashes of inputs
alone. JSON that users wrote stays text (`Json`): never a STRUCT, never a MAP, numbers as they were typed.

Split: `train` is learnt from, `eval` is held out, `sibling` is held out beside a failure, `sealed` is looked at rarely.
Not covered here: the columns the publisher (`store/lake.py`) stamps on every row (`batch_id`; on ledger rows also
`turn_id`, `created_at`, `code_version`), see `store/tables.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, make_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

# Column types that Python has no name for; `store/tables.py` maps the tag to an Arrow type.
Json = Annotated[str, "json"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Float32 = Annotated[float, "float32"]
Money = Annotated[Decimal, "decimal(18,9)"]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: the form every hash is taken over. Lone surrogates survive as escapes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_id(kind: str, *parts: Any) -> str:
    """`<kind>-<24 hex>`: sha256 over the kind and the canonical JSON of the parts. Same inputs, same id, anywhere."""
    digest = hashlib.sha256(f"{kind}\0{canonical_json(parts)}".encode()).hexdigest()
    return f"{kind}-{digest[:24]}"


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What there are millions of: a frozen record that is made ten times faster than a frozen dataclass.

    To `dataclasses.fields`, `replace` and `asdict` it is one; `msgspec.structs.replace` and `astuple` are faster.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_AnyRow = TypeVar("_AnyRow", bound=type[Row])


def _fields(row: _AnyRow) -> _AnyRow:
    """Tells `dataclasses` what the fields of a row are: their types as they are written, and their defaults."""
    defaults = row.__struct_defaults__
    required = (msgspec.NODEFAULT,) * (len(row.__struct_fields__) - len(defaults))
    made = make_dataclass(
        row.__name__,
        [
            (name, row.__annotations__[name], field() if default is msgspec.NODEFAULT else field(default=default))
            for name, default in zip(row.__struct_fields__, required + defaults, strict=True)
        ],
        kw_only=True,
    )
    row.__dataclass_fields__ = made.__dataclass_fields__  # type: ignore[attr-defined]
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One landing object as it was read: what it was, who read it, what came out."""

    TABLE: ClassVar[str] = "source_file"
    source_id: str  # sha256 of the bytes
    uri: str
    sha256: str
    bytes: int
    compression: str | None = None
    encoding: str | None = None
    format: str
    format_version: str | None = None
    format_confidence: float | None = None
    adapter: str
    adapter_version: str
    ingested_at: datetime
    n_records: int | None = None
    n_trajectories: int | None = None
    n_quarantined: int | None = None
    n_repaired: int | None = None
    loss_report: Json | None = None  # what the reader could not carry over


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A record that could not be read. The raw bytes stay in the landing object, from `byte_offset` on."""

    TABLE: ClassVar[str] = "quarantine"
    source_id: str
    record_ix: int | None = None
    byte_offset: int | None = None
    byte_len: int | None = None
    code: str
    message: str | None = None
    original_sha256: str | None = None
    redacted: bytes | None = None


@_fields
class Trajectory(Row, frozen=True, kw_only=True, gc=False):
    """One run of an agent on one request: the head row; its messages are `Step` rows."""

    TABLE: ClassVar[str] = "trajectory"
    trajectory_id: str  # sha256(format, source scope, native id); of the content only where there is no native id
    revision: Int32 = 0  # a longer or corrected record of the same id is a new revision
    content_sha256: str  # canonical JSON of the messages after redaction, without ids and times: exact dedup
    native_id: str | None = None
    trace_id: str | None = None
    conversation_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    tenant: str | None = None
    environment: str | None = None
    parent_trajectory_id: str | None = None
    parent_step_ix: Int32 | None = None
    continued_from: str | None = None
    branch: str | None = None
    attempt: Int32 | None = None
    source_id: str
    source_record_ix: int
    format: str
    format_version: str | None = None
    agent_name: str | None = None
    agent_version: str | None = None
    model: str | None = None
    models: tuple[str, ...] | None = None
    provider: str | None = None
    sampling: Json | None = None
    system_prompt_sha256: str | None = None
    tools: Json | None = None
    tools_sha256: str | None = None
    task_id: str | None = None  # recorded by the application; without it repair refuses
    task: Json | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: float | None = None
    time_quality: str | None = None  # exact|naive_assumed_utc|synthetic_order|missing
    n_steps: Int32
    n_llm_calls: Int32 | None = None
    n_tool_calls: Int32 | None = None
    n_tool_errors: Int32 | None = None
    input_tokens: int | None = None  # all input, cache reads and writes included
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None  # all output, reasoning included
    reasoning_tokens: int | None = None
    usage_quality: str | None = None
    cost_usd: Money | None = None
    cost_source: str | None = None
    end_reason: str | None = None  # completed|max_turns|max_tokens|context_overflow|timeout|user_abort|tool_error|...
    end_reason_raw: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    success: bool | None = None  # the headline; None is unknown and stays unknown. Detail: `outcome`
    reward: float | None = None
    success_source: str | None = None
    content_complete: bool  # False: capture was off, attributes cut, attachments missing
    quality_flags: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    metadata: Json | None = None
    extra: Json | None = None


@_fields
class Step(Row, frozen=True, kw_only=True, gc=False):
    """One message (a node of the message graph), in effective order."""

    TABLE: ClassVar[str] = "step"
    trajectory_id: str
    step_ix: Int32  # dense 0..n-1
    parent_ix: Int32 | None = None  # None: root. Branches and compaction have several leaves
    native_id: str | None = None
    native_ix: Int32 | None = None
    span_id: str | None = None
    llm_call_id: str | None = None  # response id; groups rows split from one API response
    role: str  # system|user|assistant|tool|event
    role_raw: str | None = None
    name: str | None = None
    content: str | None = None  # plain text, parts joined; None is not ''
    content_state: str  # present|null|missing|redacted|truncated|external
    parts: Json | None = None  # the original part array when content was not a plain string
    reasoning: str | None = None
    reasoning_opaque: Json | None = None  # signatures, encrypted content: verbatim
    refusal: str | None = None
    n_tool_calls: Int32 = 0
    tool_call_id: str | None = None  # on role=tool rows
    sampled: bool | None = None  # the policy said it, rather than being told it
    trainable: bool | None = None  # False: the source says not to learn from it
    is_copied_context: bool | None = None  # repeated from before a resume: not counted again
    is_synthetic: bool | None = None  # put in by a harness
    ts: datetime | None = None
    ts_end: datetime | None = None
    ts_raw: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    finish_reason_raw: str | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Money | None = None
    token_ids: tuple[Int32, ...] | None = None
    token_mask: tuple[bool, ...] | None = None
    logprobs: tuple[Float32, ...] | None = None
    error_type: str | None = None
    error_message: str | None = None
    quality_flags: tuple[str, ...] | None = None
    raw: Json | None = None
    extra: Json | None = None


@_fields
class ToolCall(Row, frozen=True, kw_only=True, gc=False):
    """One call exactly as the model emitted it, and the result that was paired to it."""

    TABLE: ClassVar[str] = "tool_call"
    trajectory_id: str
    step_ix: Int32
    call_ix: Int32
    call_id: str | None = None
    call_id_generated: bool = False
    name: str | None = None
    kind: str | None = None  # function|mcp|builtin|server|shell|custom
    args_raw: str | None = None  # verbatim; never re-serialised
    args: Json | None = None  # only when it parses to an object
    args_state: str  # ok|empty|null|invalid_json|not_object|double_encoded|lossy_reconstructed
    result_step_ix: Int32 | None = None
    result_text: str | None = None
    result_parts: Json | None = None
    result_state: str  # ok|error|missing|duplicate|orphan_repaired|truncated|rejected
    is_error: bool | None = None
    error_type: str | None = None
    paired_by: str | None = None  # id|order|parent_span
    started_at: datetime | None = None
    ended_at: datetime | None = None
    span_id: str | None = None
    subagent_trajectory_id: str | None = None
    extra: Json | None = None


@_fields
class Outcome(Row, frozen=True, kw_only=True, gc=False):
    """A score, feedback, label or reward about a trajectory or a part of one."""

    TABLE: ClassVar[str] = "outcome"
    outcome_id: str
    trajectory_id: str | None = None
    target_kind: str = "trajectory"  # session|trajectory|step|tool_call|span
    session_id: str | None = None
    step_ix: Int32 | None = None
    call_ix: Int32 | None = None
    native_target_id: str | None = None
    name: str
    value_num: float | None = None
    value_bool: bool | None = None
    value_text: str | None = None
    value_type: str  # number|boolean|text|json|null
    value_raw: str | None = None
    polarity: Int16 | None = None  # -1 bad, 0 neutral or unknown, +1 good
    explanation: str | None = None
    correction: Json | None = None  # the expected answer
    source_kind: str  # human_user|human_expert|llm_judge|verifier|environment|heuristic|system
    source_id: str | None = None
    source_version: str | None = None
    created_at: datetime | None = None
    weight: float | None = None
    source_ref: str | None = None
    metadata: Json | None = None


@_fields
class Blob(Row, frozen=True, kw_only=True, gc=False):
    """Media, and any text over 1 MiB, kept out of line."""

    TABLE: ClassVar[str] = "blob"
    sha256: str
    bytes: int | None = None
    mime: str | None = None
    uri: str | None = None
    data: Annotated[Any, "binary"] = None
    n_refs: int | None = None


@_fields
class Span(Row, frozen=True, kw_only=True, gc=False):
    """A tracing span, kept lossless for the sources that have them."""

    TABLE: ClassVar[str] = "span"
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    status: str | None = None
    status_message: str | None = None
    scope: str | None = None
    scope_version: str | None = None
    schema_url: str | None = None
    resource: Json | None = None
    attributes: Json | None = None
    events: Json | None = None
    links: Json | None = None
    dropped_attributes: Int32 | None = None
    source_id: str | None = None
    trajectory_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Prompt + environment + verifier + split. A group never stands on both sides of a split."""

    TABLE: ClassVar[str] = "task"
    task_id: str
    domain: str
    family: str  # e.g. the phrasing or template family inside a domain
    level: Json | None = None  # the axes the generator was asked for
    stage: Int16 | None = None
    split: str  # train|sibling|eval|sealed
    group_id: str  # unit of clustering in the statistics and of the split
    cluster_id: str | None = None
    prompt: Json  # list of chat messages
    tools: Json | None = None
    environment: Json | None = None  # what the verifier needs (gold); never shown to a policy
    verifier_id: str
    budgets: Json | None = None
    seed: int | None = None
    canary: str | None = None
    taskset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Three-valued: a score in [0, 1], or None with the `owner` whose fault the missing verdict is."""

    TABLE: ClassVar[str] = "verdict"
    trajectory_id: str
    verifier_id: str
    score: float | None = None
    owner: str | None = None  # of a None: infra|task|verifier
    parts: Json | None = None
    evidence: Json | None = None
    audit_flags: tuple[str, ...] | None = None
    sandbox_level: Int16 | None = None


# --- What passes between code, not tables -----------------------------------------------------------------


@_fields
class Fragment(Row, frozen=True, kw_only=True, gc=False):
    """What a reader yields: (part of) one trajectory. The assembler joins fragments with equal `key`.

    `partial`: more of this key is to be expected, in this source or another of the batch; a fragment that isn't is
    complete in itself, and of two with one key the longer or later takes the other's place. `is_path`: the steps are
    one path from the root of a message graph, and fragments of one key are merged where their paths agree.

    Two steps of paths agree if role, content and calls do (no content is empty content; reasoning and numbers may be
    missing in what a later request repeats); the row keeps what either knows. Where paths part, a step with the
    `llm_call_id` of a held one is its correction and takes its place, anything else is a branch. The `step_ix` of
    outcomes and calls are the fragment's own and move with its steps.
    """

    key: str  # native id or position; unique within a source scope
    record_ix: int
    trajectory: Trajectory
    partial: bool = False
    is_path: bool = False
    steps: tuple[Step, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    blobs: tuple[Blob, ...] = ()
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Outcomes that stand apart from their trajectory: scores and feedback in files of their own, perhaps later ones.

    Each has `trajectory_id` None and `native_target_id` (or `session_id`): the id that the trajectory, or a span or a
    message of it, has in its own format. The lake's views join them, in whatever order the two arrive.
    """

    record_ix: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A record the reader refused, with the byte range it stood at.

    `raw`: the record's bytes where the range does not give them (a row of a Parquet file, a member of an archive).
    """

    record_ix: int
    byte_offset: int
    byte_len: int
    code: str
    message: str
    raw: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a policy is asked to sample. `temperature` 0 is greedy."""

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 96
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a policy. `seed` makes the answer repeatable, `task_id` is for the scripted double only."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One assistant message, with token ids and logprobs where the engine has them."""

    message: Mapping[str, Any]  # {"role": "assistant", "content": ..., "tool_calls"?: [...]}
    finish_reason: str = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One policy on one task, once: the messages, and the verdicts of every verifier that looked."""

    rollout_id: str  # content_id("rollout", policy, task, run_ix, sampling, prompt variant)
    task_id: str
    policy: str  # identity of the policy: sha256 of its weights
    run_ix: int
    messages: Sequence[Mapping[str, Any]]  # what the policy saw, then what it said
    n_prompt: int  # how many of `messages` are prompt
    reply: Reply
    verdicts: tuple[Verdict, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task of an evaluation: `passed` of `runs` rollouts that have a verdict; `excluded` had none."""

    task_id: str
    group_id: str
    domain: str
    level: str
    runs: int
    passed: int
    excluded: int = 0
    output_tokens: int = 0  # summed over the runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One policy on one task set, k runs a task, in numbers. Two reports compare only if task set and k agree."""

    evaluation_id: str
    policy: str
    taskset: str
    taskset_sha256: str
    k: int
    results: tuple[TaskResult, ...]
    oracle_pass: float  # share of tasks the oracle passes: below 1 the task set is at fault
    null_pass: float  # share of tasks a do-nothing agent passes: above 0 likewise
