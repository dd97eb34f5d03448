"""SWE-agent trajectories (`.traj`) of versions 0 and 1: one document `{trajectory, history, info, ...}`.

The rows are the messages of `history`, with the roles that the model saw: where the agent acts by words, an observation
stays a user's message and makes no call. `trajectory` has what was really sent and seen: its state, times and
observations go to the step that acted, and its prompts as far as they differ from the history (old observations are
left out of them). A step without a message (the agent was stopped) is an event.
An instance is solved by many runs, so a trajectory is known by its instance and by the first execution time that was
measured, which stays when the file grows; without one, by its content.

Not covered: whether the instance was resolved, which files of their own say (`swe_bench_results.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.openai_messages import add_message
from flywheel.formats.parse import try_loads
from flywheel.formats.reader import Head, Match, Record, Source, as_dict, as_list, as_text, fingerprint, first_text
from flywheel.formats.reader import trajectory_id as id_of
from flywheel.formats.session import Session, exit_code, failure, text_of
from flywheel.formats.usage import count, money
from flywheel.records import Fragment, Reject

_TOP = {"trajectory", "history", "info"}
_STEP = {"response", "thought", "action", "messages", "query"}
_ENDS = {
    "submitted": "completed", "exit_forfeit": "completed", "exit_cost": "max_turns", "exit_context": "context_overflow",
    "exit_format": "agent_error", "exit_error": "agent_error", "exit_environment_error": "env_error",
    "exit_api": "model_error", "exit_command_timeout": "timeout", "exit_total_execution_time": "timeout",
    "early_exit": "cancelled", "skipped": "cancelled", "exit_command": "completed",
}  # fmt: skip


class SweAgent:
    """The reader."""

    name = "swe_agent"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        known = [value for value in head.values if _is_document(value)]
        if not known:
            return None
        steps = as_list(as_dict(known[0])["trajectory"])
        version = "1" if steps and isinstance(as_dict(steps[0]).get("state"), dict) else "0" if steps else None
        return Match(confidence=round(0.95 * len(known) / len(head.values), 3), version=version)

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        for record in records:
            if not _is_document(record.value):
                yield record.reject("not_swe_agent", "the record has no trajectory with its history and info")
                continue
            session = _Document(record, source).read()
            if session.steps:
                yield session.fragment()
            else:
                yield record.reject("no_messages", "the trajectory has neither messages nor steps")


def _is_document(value: Any) -> bool:
    document = as_dict(value)
    steps = document.get("trajectory")
    if not isinstance(steps, list) or not ({"history", "info", "environment"} & document.keys()):
        return False
    if not steps:
        return isinstance(document.get("history"), list) and "messages" not in document
    return any({"action", "observation"} <= as_dict(step).keys() for step in steps)


class _Document:
    """One document on its way to rows."""

    def __init__(self, record: Record, source: Source) -> None:
        self.document = as_dict(record.value)
        self.trajectory = [as_dict(step) for step in as_list(self.document["trajectory"])]
        self.history = as_list(self.document.get("history"))
        config = self.document.get("replay_config")
        opened = try_loads(config) if isinstance(config, str) else None
        self.config = as_dict(config if opened is None else opened.value)
        problem = as_dict(self.config.get("problem_statement"))
        instance = first_text(problem, "id") or first_text(as_dict(self.config.get("agent")), "name")
        instance = instance or first_text(self.document, "instance_id")
        measured = next((step["execution_time"] for step in self.trajectory if step.get("execution_time")), None)
        print_of = fingerprint(record.value if measured is None else [instance, measured])
        self.session = Session(SweAgent.name, source, id_of(SweAgent.name, print_of, print_of), instance, record.ix)
        self.session.columns |= {"task_id": instance, "agent_name": "SWE-agent"}
        self.sent: dict[int, str] = {}  # place in the prompt -> what stood there last
        self.texts: set[str] = set()

    def read(self) -> Session:
        self._head()
        self.texts = {text for message in self.history if (text := text_of(as_dict(message).get("content")))}
        acted: list[int] = []
        for message in self.history:
            ix = self._message(as_dict(message), message)
            if self.session.steps[ix].role == "assistant" and as_dict(message).get("is_demo") is not True:
                acted.append(ix)
        aligned = len(acted) == len(self.trajectory)
        for step, odd in zip(self.trajectory, as_list(self.document["trajectory"]), strict=True):
            fits = aligned or (bool(acted) and self._fits(acted[0], step))
            self._step(acted.pop(0) if fits else None, step if step else {"odd": odd})
        return self.session

    def _fits(self, ix: int, step: Mapping[str, Any]) -> bool:
        said = self.session.steps[ix].content
        return said in (step.get("response"), step.get("thought")) or step.get("response") in (None, "") or not said

    def _head(self) -> None:
        session, info = self.session, as_dict(self.document.get("info"))
        stats, raw = as_dict(info.get("model_stats")), as_text(info.get("exit_status"))
        sent, received = count(stats.get("tokens_sent")), count(stats.get("tokens_received"))
        ran = bool(sent or received)  # a replay counts nothing
        cost = money(stats.get("instance_cost")) if ran or stats.get("instance_cost") else None
        agent = as_dict(self.config.get("agent"))
        inner = raw.removeprefix("submitted (").removesuffix(")") if raw else ""
        session.columns |= {
            "agent_version": first_text(info, "swe_agent_version"),
            "model": first_text(as_dict(agent.get("model")), "name"),
            "environment": first_text(self.document, "environment"),
            "input_tokens": sent if ran else None,
            "output_tokens": received if ran else None,
            "cost_usd": cost,
            "cost_source": None if cost is None else "recorded",
            "end_reason": _ENDS.get(inner, "unknown") if raw else None,
            "end_reason_raw": raw,
        }
        session.extra |= {key: item for key, item in self.document.items() if key not in _TOP and key != "environment"}
        session.extra |= {"info": info} if info else {}

    def _message(self, message: Mapping[str, Any], value: Any) -> int:
        session = self.session
        ids = as_list(message.get("tool_call_ids"))
        rest = {key: item for key, item in message.items() if key != "tool_call_ids" and item is not None}
        rest |= {"content": message["content"]} if "content" in message else {}
        if message.get("thought") == message.get("content"):
            rest.pop("thought", None)
        given = {**rest, **({"tool_call_id": ids[0]} if ids else {})} if message else value
        is_answer, demo = message.get("role") == "assistant", message.get("is_demo") is True
        columns = {"sampled": not demo} if is_answer else {}
        ix = add_message(session.conversation, given, is_synthetic=True if demo else None, **columns)
        session.more(ix, {"tool_call_ids": ids} if len(ids) > 1 else {})
        step = session.steps[ix]
        if step.role == "tool" and (code := exit_code(step.content)) is not None:
            session.patch(step.tool_call_id, **failure(code))
        return ix

    def _step(self, ix: int | None, step: Mapping[str, Any]) -> None:
        """What a step of the trajectory says, at the message that it made; a step without one as an event."""
        session = self.session
        told = {key: item for key, item in step.items() if key not in _STEP}
        if ix is None:
            told |= {key: step[key] for key in ("response", "thought", "action") if key in step}
            ix = session.event("trajectory_step", told, step.get("thought") or step.get("observation"))
            told = {}
        for key in ("response", "thought", "action"):
            value = step.get(key)
            if value is not None and value not in (session.steps[ix].content, *self._known(ix)):
                told[key] = value
        if any((text_of(told.get("observation")) or "").strip() in text for text in self.texts):
            told.pop("observation", None)
        state = told.get("state")
        opened = try_loads(state) if isinstance(state, str) else None
        told |= {} if opened is None else {"state": opened.value}
        prompt = self._prompt(as_list(step.get("messages") or step.get("query")))
        session.more(ix, {"step": told | ({"prompt": prompt} if prompt else {})})

    def _known(self, ix: int) -> tuple[Any, ...]:
        extra = self.session.steps[ix].extra
        held = as_dict(getattr(try_loads(extra), "value", None)) if extra else {}
        return (held.get("action"), held.get("thought"))

    def _prompt(self, messages: list[Any]) -> dict[str, Any]:
        """The messages of a prompt that neither the history nor the prompt before has, by their place."""
        changed = {}
        for place, message in enumerate(messages):
            content = text_of(as_dict(message).get("content"))
            if content is None or content in self.texts or self.sent.get(place) == content:
                continue
            self.sent[place] = content
            changed[str(place)] = message
        return changed
