"""A trajectory as an ATIF 1.8 document: steps of the system, the user and the agent, results folded into their call's.

ATIF wants a message that is text or parts, and arguments that are an object. What that can't say stands in `extra`,
where the schema lets it: `arguments_raw` of a call (the model's own text), and `flywheel` of a step (that its content
was null, who spoke, whether to train on it). `atif.py` reads both. Of a graph with branches the path to its last step
is written. Parts of OpenAI's form become ATIF's where they can. The file's own extras of a trajectory that was read
from ATIF are written again.

Not covered: rewards and feedback (the format has no place for them), events, other parts than text and images,
subagents inside their parent (each is a document of its own); `losses.py` counts what is left out.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flywheel.formats.export_openai import export_id, loaded, main_path
from flywheel.formats.parse import NumberText, dumps
from flywheel.formats.reader import as_dict
from flywheel.formats.times import read_time
from flywheel.records import Fragment, Step, ToolCall, Trajectory

VERSION = "ATIF-v1.8"
_SOURCES = {"system": "system", "user": "user", "assistant": "agent"}
_PARTS = {"text": {"type", "text"}, "image": {"type", "source"}, "audio": {"type", "source"}}
_OWN_FORMATS = ("atif", "harbor_job")
_ROOT = ("notes", "continued_trajectory_ref", "extra")
_RESULT = ("subagent_trajectory_ref", "extra")


def document(fragment: Fragment) -> tuple[dict[str, Any], list[int]]:
    """The document, and which step each row that it gives was made from."""
    head, calls = fragment.trajectory, fragment.tool_calls
    path = main_path(fragment.steps)
    if head.format not in _OWN_FORMATS:  # what others keep in `extra` only looks like ATIF's
        path = [replace(step, extra=None) for step in path]
    kept = {step.step_ix for step in path}
    results: dict[int | None, ToolCall] = {
        call.result_step_ix: call for call in calls if call.result_step_ix in kept and call.step_ix in kept
    }
    folded: dict[int, list[Step]] = {}
    last: int | None = None
    for step in path:
        if step.role == "assistant":
            last = step.step_ix
        elif step.role == "tool":
            call = results.get(step.step_ix)
            owner = last if call is None else call.step_ix
            if owner is not None:
                folded.setdefault(owner, []).append(step)
                waiting = _waiting(calls, owner, step, results) if call is None else None
                results |= {step.step_ix: waiting} if waiting is not None else {}
    steps: list[dict[str, Any]] = []
    order: list[int] = []
    for step in path:
        if step.role not in _SOURCES:
            continue
        own = [call for call in calls if call.step_ix == step.step_ix]
        answers = folded.get(step.step_ix, [])
        steps.append(_step(len(steps) + 1, step, own, answers, results))
        order += [step.step_ix, *(answer.step_ix for answer in answers)]
    return {**_root(head), "steps": steps, "final_metrics": _final(head, len(steps)), **_rest(head)}, order


def _waiting(
    calls: Sequence[ToolCall], owner: int, answer: Step, results: Mapping[int | None, ToolCall]
) -> ToolCall | None:
    """The call that a result without one answers, as a reader will take it: the first of its step that has none."""
    taken = {call.call_ix for call in results.values() if call.step_ix == owner}
    own = (call for call in calls if call.step_ix == owner and call.call_ix not in taken)
    return None if answer.tool_call_id else next((c for c in own if answer.name in (None, c.name)), None)


def _root(head: Trajectory) -> dict[str, Any]:
    agent: dict[str, Any] = {"name": head.agent_name or "unknown", "version": head.agent_version or "unknown"}
    agent |= {"model_name": head.model} if head.model else {}
    tools = loaded(head.tools)
    agent |= {"tool_definitions": tools} if isinstance(tools, list) else {}
    agent |= as_dict(as_dict(loaded(head.extra)).get("agent")) if head.format in _OWN_FORMATS else {}
    root: dict[str, Any] = {"schema_version": VERSION}
    root |= {"session_id": head.session_id} if head.session_id else {}
    return {**root, "trajectory_id": export_id(head), "agent": agent}


def _rest(head: Trajectory) -> dict[str, Any]:
    extra = as_dict(loaded(head.extra)) if head.format in _OWN_FORMATS else {}
    return {key: extra[key] for key in _ROOT if key in extra}


def _final(head: Trajectory, n_steps: int) -> dict[str, Any]:
    numbers = {
        "total_prompt_tokens": head.input_tokens,
        "total_completion_tokens": head.output_tokens,
        "total_cached_tokens": head.cache_read_tokens,
        "total_cost_usd": None if head.cost_usd is None else NumberText(format(head.cost_usd, "f")),
    }
    return {**{key: item for key, item in numbers.items() if item is not None}, "total_steps": n_steps}


def _step(
    number: int, step: Step, calls: Sequence[ToolCall], answers: Sequence[Step], results: Mapping[int | None, ToolCall]
) -> dict[str, Any]:
    made: dict[str, Any] = {"step_id": number}
    if step.ts is not None:
        exact = step.ts_raw is not None and read_time(step.ts_raw).at == step.ts and "T" in step.ts_raw
        made["timestamp"] = step.ts_raw if exact else step.ts.isoformat()
    made |= {"source": _SOURCES[step.role], "message": _content(step)}
    if step.role == "assistant":
        made |= {"model_name": step.model} if step.model else {}
        made |= {"reasoning_content": step.reasoning} if step.reasoning else {}
    if calls:
        made["tool_calls"] = [_call(call) for call in sorted(calls, key=lambda call: call.call_ix)]
    if answers:
        made["observation"] = {"results": [_result(answer, results.get(answer.step_ix)) for answer in answers]}
    metrics = _metrics(step)
    made |= {"metrics": metrics} if metrics else {}
    made |= {"is_copied_context": step.is_copied_context} if step.is_copied_context is not None else {}
    extra = as_dict(loaded(step.extra))
    if step.sampled is not None and step.role == "assistant":
        made["llm_call_count"] = extra.get("llm_call_count", int(step.sampled))
    more = dict(as_dict(extra.get("extra")))
    own = _own(step)
    more |= {"flywheel": own} if own else {}
    return made | ({"extra": more} if more else {})


def _content(step: Step) -> Any:
    """Parts if they are ATIF's own or can be, else the text; no content is an empty text (`_own` says it was none)."""
    parts = loaded(step.parts)
    made = [_part(part) for part in parts] if isinstance(parts, list) else [None]
    return [part for part in made if part is not None] if None not in made else step.content or ""


def _part(part: Any) -> dict[str, Any] | None:
    """ATIF's own part as it is, one of OpenAI's in ATIF's form, or None for what has no place."""
    given = as_dict(part)
    kind = given.get("type")
    if isinstance(kind, str) and given.keys() == _PARTS.get(kind):
        return given
    if kind in ("text", "input_text", "output_text") and isinstance(given.get("text"), str):
        return {"type": "text", "text": given["text"]}
    url = given.get("image_url")
    url = url.get("url") if isinstance(url, dict) else url
    if not isinstance(url, str):
        return None
    media = url[5:].partition(";")[0] if url.startswith("data:") else mimetypes.guess_type(url)[0]
    return {"type": "image", "source": {"media_type": media, "path": url}} if media else None


def _own(step: Step) -> dict[str, Any]:
    said = {"name": step.name, "refusal": step.refusal, "trainable": step.trainable}
    own = {key: item for key, item in said.items() if item is not None}
    return own | ({"content_state": step.content_state} if step.content is None else {})


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = loaded(call.args) if call.args is not None else {}
    extra = dict(as_dict(as_dict(loaded(call.extra)).get("extra")))
    raw = call.args_raw
    if raw is None and call.args_state == "not_object":
        raw = dumps(as_dict(loaded(call.extra)).get("arguments"))
    extra |= {"arguments_raw": raw} if raw is not None else {}
    made = {"tool_call_id": call.call_id, "function_name": call.name, "arguments": arguments}
    return made | ({"extra": extra} if extra else {})


def _result(answer: Step, call: ToolCall | None) -> dict[str, Any]:
    held = as_dict(loaded(answer.extra))
    extra = {key: held[key] for key in _RESULT if key in held}
    call_id = call.call_id if call is not None else answer.tool_call_id
    made: dict[str, Any] = {"source_call_id": call_id} if call_id is not None else {}
    made |= {"content": _content(answer)} if answer.content is not None or answer.content_state != "missing" else {}
    own: dict[str, Any] = {"name": answer.name} if answer.name else {}
    if call is not None and call.is_error is not None:
        own |= {"is_error": call.is_error}
    if own:
        extra["extra"] = {**as_dict(extra.get("extra")), "flywheel": own}
    return made | extra


def _metrics(step: Step) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "prompt_tokens": step.input_tokens,
        "completion_tokens": step.output_tokens,
        "cached_tokens": step.cache_read_tokens,
        "cost_usd": None if step.cost_usd is None else NumberText(format(step.cost_usd, "f")),
        "completion_token_ids": list(step.token_ids) if step.token_ids else None,
        "logprobs": list(step.logprobs) if step.logprobs else None,
    }
    known = {key: item for key, item in metrics.items() if item is not None}
    known |= as_dict(as_dict(loaded(step.extra)).get("metrics"))
    if step.reasoning_tokens is not None:
        known["extra"] = {**as_dict(known.get("extra")), "reasoning_tokens": step.reasoning_tokens}
    return known if step.role == "assistant" else {}
