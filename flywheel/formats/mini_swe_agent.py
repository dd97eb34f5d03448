"""mini-swe-agent trajectories: version 1 (`{info, messages}`, first a bare list) and 2 (`trajectory_format`).

Rows are the messages as the model saw them: an observation of the text agents stays a user's message. What stands in
`extra` (the whole response, actions, exit codes, cost) goes to columns as far as there are any. Messages may be items
of the Responses API. The last message of version 2, of role `exit`, says how the run ended, as `info` does.
A run is known by the id of its first response or its first time, else by its content; its instance is `native_id`.

Not covered: `results.json` and `preds.json` (`swe_bench_results.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flywheel.formats.openai_messages import add_message
from flywheel.formats.openai_response_items import add_items, is_item
from flywheel.formats.parse import dumps
from flywheel.formats.reader import (
    Head,
    Match,
    Record,
    Source,
    as_dict,
    as_int,
    as_list,
    as_text,
    fingerprint,
    first_text,
)
from flywheel.formats.reader import trajectory_id as id_of
from flywheel.formats.session import Session, failure, text_of, usage_columns
from flywheel.formats.times import read_time
from flywheel.formats.usage import Usage, count, money, openai_usage
from flywheel.records import Fragment, Reject

_RETURNED = re.compile(r"\s*<returncode>(-?\d+)</returncode>")
_WORDS = ("mswea_bash_command", "<returncode>", "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_ENDS = {
    "Submitted": "completed", "LimitsExceeded": "max_turns", "TimeExceeded": "timeout",
    "ContextWindowExceededError": "context_overflow", "UserInterruption": "user_abort",
    "KeyboardInterrupt": "user_abort", "TimeoutExpired": "env_error", "CalledProcessError": "env_error",
    "RepeatedFormatError": "agent_error",
}  # fmt: skip
_MODEL = ("APIError", "APIConnectionError", "RateLimitError", "AuthenticationError", "BadRequestError",
          "InternalServerError", "ServiceUnavailableError", "NotFoundError", "PermissionDeniedError", "Timeout",
          "UnsupportedParamsError")  # fmt: skip
_SERVED = {"id", "model", "usage", "choices", "object", "created", "output"}


class MiniSweAgent:
    """The reader."""

    name = "mini_swe_agent"
    version = "1"

    def sniff(self, head: Head) -> Match | None:
        if head.in_array:
            texts = [text_of(as_dict(value).get("content")) or "" for value in head.values]
            shaped = all("role" in as_dict(value) and "content" in as_dict(value) for value in head.values)
            marked = any(word in text for text in texts for word in _WORDS)
            return Match(confidence=0.9, version="1", unit="document") if shaped and marked else None
        known = [as_dict(value) for value in head.values if _is_document(value)]
        if not known:
            return None
        return Match(confidence=0.95, version=as_text(known[0].get("trajectory_format")) or "1")

    def read(self, records: Iterable[Record], source: Source) -> Iterator[Fragment | Reject]:
        for record in records:
            value = {"messages": record.value} if isinstance(record.value, list) else record.value
            messages = as_list(as_dict(value).get("messages"))
            if not any(isinstance(message, dict) for message in messages):
                yield record.reject("not_mini_swe_agent", "the record has no messages")
            else:
                yield _Run(value, record, source).read().fragment()


def _is_document(value: Any) -> bool:
    document = as_dict(value)
    info = as_dict(document.get("info"))
    named = (as_text(document.get("trajectory_format")) or "").startswith("mini-swe-agent")
    own = "exit_status" in info and ("submission" in info or "model_stats" in info)
    return isinstance(document.get("messages"), list) and "trajectory" not in document and (named or own)


class _Run:
    """One document on its way to rows."""

    def __init__(self, document: dict[str, Any], record: Record, source: Source) -> None:
        self.document, self.messages = document, as_list(document["messages"])
        instance = first_text(document, "instance_id") or first_text(as_dict(document.get("info")), "instance_id")
        extras = [as_dict(as_dict(message).get("extra")) for message in self.messages]
        mark = next((extra["response"]["id"] for extra in extras if as_dict(extra.get("response")).get("id")), None)
        mark = mark or next(
            (m.get("timestamp") for m in (*extras, *map(as_dict, self.messages)) if m.get("timestamp")), None
        )
        print_of = fingerprint(document if mark is None else [instance, mark])
        name = MiniSweAgent.name
        self.session = Session(name, source, id_of(name, print_of, print_of), instance, record.ix)
        self.session.columns |= {"task_id": instance, "agent_name": "mini-swe-agent"}

    def read(self) -> Session:
        session = self.session
        for message in self.messages:
            first = len(session.steps)
            self._message(as_dict(message), message)
            if len(session.steps) == first:  # a response without items
                session.event("response", message)
        self._head()
        return session

    def _head(self) -> None:
        session, info = self.session, as_dict(self.document.get("info"))
        config, stats = as_dict(info.get("config")), as_dict(info.get("model_stats"))
        cost, raw = money(stats.get("instance_cost")), as_text(info.get("exit_status"))
        model, kwargs = as_dict(config.get("model")), as_dict(as_dict(config.get("model")).get("model_kwargs"))
        session.columns |= {
            "format_version": as_text(self.document.get("trajectory_format")),
            "agent_version": first_text(info, "mini_version"),
            "model": first_text(model, "model_name"),
            "sampling": dumps(kwargs) if kwargs else None,
            "cost_usd": cost,
            "cost_source": None if cost is None else "recorded",
        }
        self._ended(raw)
        if info.get("traceback") is not None:
            session.columns |= {
                "error_type": raw,
                "error_message": text_of(info.get("exception_str", info["traceback"])),
            }
        known = ("messages", "trajectory_format", "instance_id", "info")
        session.extra |= {key: item for key, item in self.document.items() if key not in known}
        session.extra |= {"info": info} if info else {}

    def _ended(self, raw: str | None) -> None:
        if raw:
            reason = _ENDS.get(raw) or ("model_error" if raw in _MODEL else "agent_error")
            self.session.columns |= {"end_reason": reason, "end_reason_raw": raw}

    def _message(self, message: Mapping[str, Any], value: Any) -> None:
        session, extra, first = self.session, as_dict(message.get("extra")), len(self.session.steps)
        bare = {key: item for key, item in message.items() if key not in ("extra", "timestamp")} if message else value
        if as_text(message.get("role")) == "exit":
            session.event("exit", {**bare, "extra": extra}, message.get("content"))
            self._ended(as_text(extra.get("exit_status")))
        elif isinstance(message.get("output"), list) and "role" not in message:
            add_items(session.conversation, message["output"], sampled=True)
            self._answered(message, extra)
        elif is_item(message):
            add_items(session.conversation, [bare])
        elif message.get("role") == "assistant":
            add_message(session.conversation, bare, sampled=True)
            self._answered(as_dict(extra.get("response")), extra)
        else:
            add_message(session.conversation, bare)
        if len(session.steps) > first:
            self._observed(len(session.steps) - 1, extra)
            session.stamp(first, message.get("timestamp", extra.get("timestamp")))
            kept = {key: item for key, item in extra.items() if key not in ("response", "timestamp")}
            if message.get("timestamp") is not None and extra.get("timestamp") not in (None, message["timestamp"]):
                kept["timestamp"] = extra["timestamp"]
            session.more(first, kept)

    def _answered(self, response: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        session, usage = self.session, as_dict(response.get("usage"))
        if not session.steps:
            return
        choices = as_list(response.get("choices"))
        finish = as_text(as_dict(next(iter(choices), None)).get("finish_reason")) or as_text(response.get("status"))
        rest = {key: item for key, item in response.items() if key not in _SERVED and key not in ("extra",)}
        rest |= {"usage": usage} if usage else {}
        rest |= {"created": response["created"]} if response.get("created") is not None else {}
        rest |= {"choices": self._unsaid(choices)} if self._unsaid(choices) else {}
        ix = len(session.steps) - 1
        session.set(
            ix,
            llm_call_id=as_text(response.get("id")),
            model=as_text(response.get("model")),
            finish_reason=finish,
            finish_reason_raw=finish,
            cost_usd=money(extra.get("cost")),
            ts_end=read_time(response.get("created")).at,
            **usage_columns(openai_usage(usage) if "prompt_tokens" in usage else _responses_usage(usage)),
        )
        session.more(ix, {"response": rest} if rest else {})

    def _unsaid(self, choices: list[Any]) -> list[Any]:
        """What the choices say that the message does not repeat."""
        message = self.session.steps[-1]
        kept = []
        for choice in map(as_dict, choices):
            said = as_dict(choice.get("message"))
            inner = {key: item for key, item in said.items() if key not in ("role", "tool_calls") and item is not None}
            if inner.get("content") == message.content:
                del inner["content"]
            rest = {key: item for key, item in choice.items() if key not in ("message", "finish_reason", "index")}
            kept += [rest | ({"message": inner} if inner else {})] if rest or inner else []
        return kept

    def _observed(self, ix: int, extra: Mapping[str, Any]) -> None:
        """How the command went whose output a message shows."""
        session, step = self.session, self.session.steps[ix]
        if step.role == "assistant":
            return
        returned = _RETURNED.match(step.content or "")
        code = as_int(extra.get("returncode"))
        code = int(returned[1]) if code is None and returned is not None and len(returned[1]) < 9 else code
        kind = as_text(extra.get("interrupt_type"))
        exception = text_of(extra.get("exception_info")) or None
        if step.role == "tool":
            columns = failure(code) | ({"is_error": True, "error_type": "exception"} if exception else {})
            session.patch(step.tool_call_id, **columns)
        if code or kind or exception:
            session.set(ix, error_type=kind or failure(code).get("error_type") or "exception", error_message=exception)


def _responses_usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        cache_read_tokens=count(as_dict(usage.get("input_tokens_details")).get("cached_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        reasoning_tokens=count(as_dict(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )
