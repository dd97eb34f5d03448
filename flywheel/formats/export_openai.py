"""A trajectory as a line of OpenAI chat JSONL: messages and tools as trainers take them, and what is known beside them.

    {id, attempt?, model?, messages, tools?, metadata?, feedback?, session_id?, user_id?, tags?, started_at?, ...}

Arguments are the model's own text, character by character. `weight` is the loss mask: 0 where the source says not to
learn from a message or where the policy did not say it, 1 where it says to. Outcomes of the whole are `feedback`;
where they don't give the trajectory's verdict, one more says it.
Of a graph with branches the path to its last step is written. Without an `attempt` a record with a session would be
joined with others of it when it is read again, so it gets one.

Not covered: steps that are no messages (events), outcomes of single steps, usage; `losses.py` counts what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from flywheel.formats import feedback
from flywheel.formats.exchange import application, exchanges_of
from flywheel.formats.messages import ROLES, read_content
from flywheel.formats.openai_chat_call import SAMPLING
from flywheel.formats.parse import NumberText, dumps, try_loads
from flywheel.formats.reader import as_dict
from flywheel.records import Fragment, Outcome, Step, ToolCall, Trajectory

_LAKE_ID = re.compile(r"trajectory-[0-9a-f]{24}")
_WIRE_ROLES = {"system", "developer", "user", "assistant", "tool"}
_OPAQUE = {"reasoning_details", "thinking_blocks", "reasoning"}
_IDS = ("session_id", "conversation_id", "trace_id", "user_id", "tenant", "model", "provider")


def record(fragment: Fragment) -> tuple[dict[str, Any], list[int]]:
    """The record, and which step each of its messages was made from."""
    head = fragment.trajectory
    steps = [step for step in main_path(fragment.steps) if step.role != "event"]
    calls: dict[int, list[ToolCall]] = {}
    for call in fragment.tool_calls:
        calls.setdefault(call.step_ix, []).append(call)
    answered = _answered(steps, fragment.tool_calls)
    messages = [_message(step, calls.get(step.step_ix, ()), answered.get(step.step_ix)) for step in steps]
    metadata = _metadata(head)
    known = _in_metadata(metadata)
    given: dict[str, Any] = {"id": export_id(head)}
    if head.attempt is not None or any(
        known[name] or getattr(head, name) for name in ("session_id", "conversation_id")
    ):
        given["attempt"] = head.attempt or 0
    ids = ((name, getattr(head, name)) for name in _IDS)
    given |= {name: value for name, value in ids if value is not None and value != known[name]}
    given["messages"] = messages
    given |= {"tools": _tools(head.tools)} if head.tools else {}
    sampling = as_dict(loaded(head.sampling))
    given |= {key: sampling[key] for key in SAMPLING if sampling.get(key) is not None}
    given |= {"tags": list(head.tags)} if head.tags and head.tags != known["tags"] else {}
    started = head.started_at or head.ended_at  # who reads an end alone takes it for the start, too
    given |= {"started_at": started.isoformat()} if started is not None else {}
    given |= {"ended_at": head.ended_at.isoformat()} if head.ended_at is not None else {}
    given |= {"cost": NumberText(format(head.cost_usd, "f"))} if head.cost_usd is not None else {}
    given |= {"metadata": metadata} if metadata else {}
    said = _feedback(fragment)
    given |= {"feedback": said} if said else {}
    return given, [step.step_ix for step in steps]


def _answered(steps: Sequence[Step], calls: Sequence[ToolCall]) -> dict[int, ToolCall]:
    """The call that each tool's message answers. One that answers none will be read as the next open call's answer."""
    found = {call.result_step_ix: call for call in calls if call.result_step_ix is not None}
    waiting = [call for call in calls if call.result_step_ix is None]
    for step in steps:
        if step.role == "tool" and step.step_ix not in found and not step.tool_call_id:
            before = (call for call in waiting if call.step_ix < step.step_ix and step.name in (None, call.name))
            call = next(before, None)
            if call is not None:
                waiting.remove(call)
                found[step.step_ix] = call
    return found


def export_id(head: Trajectory) -> str:
    """The trajectory's id in the lake it first was in: the same however often it goes out and in."""
    native = head.native_id or ""
    return native if _LAKE_ID.fullmatch(native) else head.trajectory_id


def main_path(steps: Sequence[Step]) -> list[Step]:
    """The steps from the root to the last one."""
    by_ix = {step.step_ix: step for step in steps}
    path: list[Step] = []
    at = steps[-1] if steps else None
    while at is not None:
        path.append(at)
        at = None if at.parent_ix is None or at.parent_ix >= at.step_ix else by_ix.get(at.parent_ix)
    return path[::-1]


def loaded(text: str | None) -> Any:
    """The value of a JSON column; the text itself where it is none."""
    decoded = None if text is None else try_loads(text)
    return text if decoded is None else decoded.value


def _message(step: Step, calls: Sequence[ToolCall], answers: ToolCall | None) -> dict[str, Any]:
    raw = step.role_raw if step.role_raw in _WIRE_ROLES and ROLES[step.role_raw] == step.role else step.role
    message: dict[str, Any] = {"role": raw}
    message |= {"name": step.name} if step.name is not None else {}
    parts = None if step.parts is None else loaded(step.parts)
    if step.content_state != "missing" or step.content is not None:
        message["content"] = step.content if step.parts is None else parts
    message |= {"reasoning_content": step.reasoning} if step.reasoning is not None else {}
    opaque = loaded(step.reasoning_opaque)
    if isinstance(opaque, dict) and opaque.keys() <= _OPAQUE:
        message |= {key: item for key, item in opaque.items() if key != "reasoning"}
    if step.refusal is not None and read_content(message).refusal != step.refusal:
        message["refusal"] = step.refusal
    if calls:
        message["tool_calls"] = [_call(call) for call in sorted(calls, key=lambda call: call.call_ix)]
    if step.role == "tool":
        call_id = step.tool_call_id or (answers and answers.call_id)
        message |= {"tool_call_id": call_id} if call_id else {}
        message |= {"is_error": answers.is_error} if answers is not None and answers.is_error is not None else {}
    if step.role == "assistant":
        weight = step.trainable if step.trainable is not None else False if step.sampled is False else None
        message |= {"weight": int(weight)} if weight is not None else {}
    return message


def _call(call: ToolCall) -> dict[str, Any]:
    arguments: Any = call.args_raw if call.args_raw is not None else call.args
    if arguments is None and call.args_state == "not_object":
        arguments = as_dict(loaded(call.extra)).get("arguments")
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _tools(text: str) -> Any:
    """Tool definitions in OpenAI's form; those of other protocols (flat ones) are wrapped."""
    tools = loaded(text)
    return [_tool(tool) for tool in tools] if isinstance(tools, list) else tools


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or "function" in tool:
        return tool
    parameters = next((tool[key] for key in ("parameters", "input_schema", "inputSchema") if key in tool), None)
    known = ("name", "description", "parameters", "input_schema", "inputSchema", "type")
    rest = {key: item for key, item in tool.items() if key not in known}
    function = {"name": tool["name"], "description": tool.get("description"), "parameters": parameters, **rest}
    return {"type": "function", "function": {key: item for key, item in function.items() if item is not None}}


def _metadata(head: Trajectory) -> dict[str, Any]:
    held = loaded(head.metadata)
    metadata = dict(held) if isinstance(held, dict) else {} if held is None else {"metadata": held}
    for name in ("task_id", "environment"):
        value = getattr(head, name)
        if value is not None and str(metadata.get(name)) != value:
            metadata[name] = value
    return metadata


def _in_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What who reads the record takes out of its metadata, under whatever names they have there."""
    (exchange,) = exchanges_of({"messages": [], "metadata": metadata})
    model, provider = exchange.text("model"), exchange.text("provider", "custom_llm_provider")
    return {**application(exchange), "model": model, "provider": provider}


def _feedback(fragment: Fragment) -> list[dict[str, Any]]:
    """Outcomes of the whole, in an order that depends on them alone, and the verdict where they don't give it."""
    said = [_outcome(o) for o in fragment.outcomes if o.target_kind == "trajectory" and o.step_ix is None]
    said.sort(key=dumps)
    head = fragment.trajectory
    told = feedback.headline(feedback.read_feedback(said, head.trajectory_id))
    if head.success is not None and told.success != head.success:
        said = [item for item in said if item["name"] != "success"]
        said.append({"name": "success", "score": head.success, "source": {"type": "system"}})
    return said


def _outcome(outcome: Outcome) -> dict[str, Any]:
    source = {"type": outcome.source_kind} | ({"id": outcome.source_id} if outcome.source_id is not None else {})
    item: dict[str, Any] = {"name": outcome.name, "score": _value(outcome), "source": source}
    item |= {"comment": outcome.explanation} if outcome.explanation is not None else {}
    item |= {"correction": loaded(outcome.correction)} if outcome.correction is not None else {}
    item |= {"created_at": outcome.created_at.isoformat()} if outcome.created_at is not None else {}
    more = loaded(outcome.metadata)
    rest: Mapping[str, Any] = more if isinstance(more, dict) else {} if more is None else {"metadata": more}
    item |= {key: value for key, value in rest.items() if key not in item}
    (read,) = feedback.read_feedback(item, "")
    return item if read.polarity == outcome.polarity else item | {"polarity": outcome.polarity}


def _value(outcome: Outcome) -> Any:
    if outcome.value_raw is not None:
        return loaded(outcome.value_raw)
    return next((v for v in (outcome.value_bool, outcome.value_num, outcome.value_text) if v is not None), None)
