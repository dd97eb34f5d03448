"""Failure labels of one trajectory: the registry of detectors, the text and outcome detectors, and the root cause.

`detect(trace)` runs all of them; `root_cause(labels)` picks one by owner (infra > task > user > harness > agent), then
the earliest step. Labels say what went wrong where; they never say whether the trajectory failed: an unknown outcome
stays unknown. Definitions: methods.md section 2; tool-call detectors are in `call_detectors.py`.

Not covered: detectors that need gold (stop.premature, write.unneeded, claim.false, test.fail), `timeout`, prompt share
of the context limit (the limit is not recorded), and judgement by a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flywheel.records import Outcome
from flywheel.trajectory import call_detectors as calls
from flywheel.trajectory.call_detectors import Finding
from flywheel.trajectory.trace import Label, Trace, parse, quote

VERSION = "1"
OWNERS = ("infra", "task", "user", "harness", "agent")

MONOLOGUE = 3
REPHRASED = 0.6  # token Jaccard with an earlier user turn
REPHRASED_MIN = 4  # judgement: shorter turns ("yes please") repeat by nature

CALL_MARKUP = re.compile(
    r"<tool_calls?>|<\|tool_calls?(?:_begin)?\|>|\[TOOL_CALLS\]|<function[=_]|<invoke |<\|python_tag\|>"
    r"|```tool_(?:call|code)"
)
JSON_ASKED = re.compile(
    r"(?i)\b(?:reply|respond|answer|return|output|produce|give|extract|write)\b[^.\n]{0,100}\bJSON\b"
    r"|\bJSON\b(?: object)? only\b|\bonly\b[^.\n]{0,30}\bJSON\b|\bin JSON\b"
)
FENCE = re.compile(r"\A```(?:json)?\s*\n(.*?)\n?```\Z", re.DOTALL)
OVERFLOW = re.compile(
    r"(?i)context[_ ]length|maximum context|context window|prompt is too long|exit_context|too many tokens"
)
BUDGET = re.compile(r"(?i)\bexit_cost\b|\bmax_(?:steps|turns|iterations|cost)\b|\b(?:step|turn|cost|iteration) limit\b")
INFRA = re.compile(
    r"(?i)\b(?:HTTP |status(?:_code)?\W{1,3}|error(?: code)?\W{1,3})(?:429|50[0234]|529)\b|internal server error"
    r"|bad gateway|service unavailable|gateway time-?out|rate.?limit|too many requests|overloaded_error|getaddrinfo"
    r"|ENOTFOUND|name resolution|connection (?:refused|reset|aborted|timed out)|ECONN(?:REFUSED|RESET)|read timed out"
    r"|sandbox (?:died|crashed|closed|unavailable|error)|container (?:exited|died|killed)|OOMKilled|no space left on"
)
REFUSAL = re.compile(
    r"(?i)\b(?:I(?:'m| am) sorry,? but I (?:can(?:no|')t|am (?:not able|unable))"
    r"|I (?:can(?:no|')t|won't|am unable to|am not able to)"
    r" (?:help|assist|comply|provide|do|fulfil+|answer|process|complete)|as an AI(?: language model)?,? I)"
)
OBJECTION = re.compile(
    r"(?i)\bthat(?:'s| is|s) (?:wrong|incorrect|not (?:right|correct|what))|\b(?:you(?:'re| are) wrong)\b"
    r"|\bI(?:'ve| have)? already (?:said|told|gave|given|provided|mentioned)\b"
    r"|\bnot what I (?:asked|wanted|meant|said)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One detector: its code, whose fault a finding is, how bad, how sure, and the function that finds."""

    code: str
    find: Callable[[Trace], Iterator[Finding]]
    severity: int
    confidence: float
    owner: str = "agent"


def empty_answer(trace: Trace) -> Iterator[Finding]:
    """The final message has no text, no call and no refusal, and the text was captured."""
    final = trace.final
    if final is None or final.n_tool_calls or final.refusal or final.parts:
        return
    if final.content_state in ("present", "null") and not (final.content or "").strip():
        yield final.step_ix, "", None, ""


def refusal(trace: Trace) -> Iterator[Finding]:
    """The final message refuses and nothing was written. Tasks whose expected outcome is a refusal are excepted."""
    final = trace.final
    expected = parse(trace.trajectory.task)
    if final is None or (isinstance(expected, dict) and expected.get("expected_refusal")):
        return
    said = final.refusal or (final.content or "")[:200]
    if (final.refusal or REFUSAL.search(said.replace("’", "'"))) and not any(
        a.writes and not a.error for a in trace.acts
    ):
        yield final.step_ix, quote(said), None, ""


def monologue(trace: Trace) -> Iterator[Finding]:
    """Three assistant messages in a row without a call or anyone else's turn."""
    run = 0
    for step in trace.steps:
        run = run + 1 if step.role == "assistant" and not step.n_tool_calls else 0
        if run == MONOLOGUE:
            yield step.step_ix, quote(step.content), None, ""
            return


def bad_format(trace: Trace) -> Iterator[Finding]:
    """Arguments that are no JSON object, call markup in the text, a promised call or the asked-for JSON missing."""
    for act in trace.acts:
        if act.call.args_state in ("invalid_json", "not_object", "double_encoded"):
            yield act.step_ix, quote(act.call.args_raw), act.name or None, f"arguments: {act.call.args_state}"
    for step in trace.steps:
        if step.role != "assistant" or step.n_tool_calls:
            continue
        if CALL_MARKUP.search(step.content or ""):
            yield step.step_ix, quote(step.content), None, "call markup in the text"
        elif step.finish_reason == "tool_calls":
            yield step.step_ix, quote(step.content), None, "finish_reason tool_calls without a call"
    final = trace.final
    answer = (final.content or "").strip() if final else ""
    if final and answer and not trace.acts and final.content_state == "present" and _json_asked(trace):
        fenced = FENCE.match(answer)
        if not isinstance(parse(fenced.group(1) if fenced else answer), dict | list):
            yield final.step_ix, quote(answer), None, "answer is not JSON"


def overflow(trace: Trace) -> Iterator[Finding]:
    """The context was exceeded: the harness let it grow. (A reply cut at the output limit is `cut_reply`.)"""
    head = trace.trajectory
    if head.end_reason == "context_overflow" or OVERFLOW.search(_head_text(trace)):
        yield _last_ix(trace), quote(head.error_message or head.end_reason_raw or head.end_reason), None, "context"


def cut_reply(trace: Trace) -> Iterator[Finding]:
    """A reply that ran into the output limit (finish_reason length)."""
    for step in trace.steps:
        if step.role == "assistant" and step.finish_reason == "length":
            yield step.step_ix, quote((step.content or "")[-200:]), None, "reply cut"
            return


def out_of_budget(trace: Trace) -> Iterator[Finding]:
    """The harness ended the run for its number of steps or its cost."""
    head = trace.trajectory
    if head.end_reason == "max_turns" or BUDGET.search(_head_text(trace)):
        yield _last_ix(trace), quote(head.end_reason_raw or head.error_message or head.end_reason), None, ""


def infrastructure(trace: Trace) -> Iterator[Finding]:
    """Server, network or sandbox failed and the run did not get over it."""
    head = trace.trajectory
    text = _head_text(trace)
    if head.end_reason in ("model_error", "env_error") or INFRA.search(text):
        yield _last_ix(trace), quote(head.error_message or head.error_type or head.end_reason), None, text
        return
    for step in trace.steps:
        said = f"{step.error_type or ''} {step.error_message or ''}"
        if step is trace.steps[-1] and INFRA.search(said):
            yield step.step_ix, quote(said), None, said
            return
    for index, act in enumerate(trace.acts):
        recovered = any(a.name == act.name and not a.error for a in trace.acts[index + 1 :])
        said = f"{act.call.error_type or ''} {act.observation[:1000]}"
        if act.error and not recovered and INFRA.search(said):
            yield act.step_ix, quote(act.observation or said), act.name or None, said
            return


def user_objects(trace: Trace) -> Iterator[Finding]:
    """A thumb down, an abandoned run, an objection in words, or a question asked again. A hint, never a root cause."""
    for outcome in trace.outcomes:
        if outcome.source_kind == "human_user" and negative(outcome):
            yield outcome.step_ix, quote(outcome.explanation or outcome.value_raw or outcome.name), None, "feedback"
            return
    if trace.trajectory.end_reason == "user_abort":
        yield _last_ix(trace), quote(trace.trajectory.end_reason_raw or "user_abort"), None, "abandoned"
        return
    earlier: list[frozenset[str]] = []
    answered = False
    for step in trace.steps:
        answered = answered or step.role == "assistant"
        if step.role != "user":
            continue
        words = frozenset(re.findall(r"\w+", (step.content or "").lower()))
        again = len(words) >= REPHRASED_MIN and any(len(words & e) >= REPHRASED * len(words | e) for e in earlier)
        if answered and (again or OBJECTION.search((step.content or "").replace("’", "'"))):
            yield step.step_ix, quote(step.content), None, "asked again" if again else "objection"
            return
        earlier.append(words)


def wrong_answer(trace: Trace) -> Iterator[Finding]:
    """The headline outcome is negative; the evidence is what the application said of it. Silent where infra failed."""
    if trace.trajectory.success is not False or next(infrastructure(trace), None):
        return
    said = sorted((o for o in trace.outcomes if negative(o)), key=lambda o: (not o.explanation, not o.correction))
    first = said[0] if said else None
    evidence = (first.explanation or first.correction or first.value_raw or first.name) if first else "success=false"
    final = trace.final
    yield final.step_ix if final else None, quote(evidence), None, _gist(first) if first else ""


def negative(outcome: Outcome) -> bool:
    """Does this outcome count against the run? By its polarity; else by a boolean no or a score of 0."""
    no = outcome.value_bool is False or (outcome.value_num is not None and outcome.value_num <= 0)
    return outcome.polarity == -1 or (outcome.polarity is None and no)


def _gist(outcome: Outcome) -> str:
    """What was wrong, without how much: an explanation that is a JSON object of scores gives the names that failed."""
    parts = parse(outcome.explanation)
    if isinstance(parts, dict) and parts and all(isinstance(v, bool | int | float) for v in parts.values()):
        return "wrong: " + ", ".join(sorted(str(name) for name, score in parts.items() if not score))
    return outcome.explanation or outcome.name


# Ties at one step go to the earlier line: `answer.wrong` is the last resort, it says that but not why.
DETECTORS: tuple[Detector, ...] = (
    Detector(code="infra", find=infrastructure, severity=3, confidence=0.9, owner="infra"),
    Detector(code="ctx.overflow", find=overflow, severity=3, confidence=0.95, owner="harness"),
    Detector(code="loop.error", find=calls.loop_error, severity=3, confidence=0.95),
    Detector(code="loop.same", find=calls.loop_same, severity=3, confidence=0.95),
    Detector(code="loop.alternate", find=calls.loop_alternate, severity=3, confidence=0.9),
    Detector(code="err.retry_same", find=calls.retry_same, severity=2, confidence=0.9),
    Detector(code="tool.unknown", find=calls.unknown_tool, severity=2, confidence=0.95),
    Detector(code="args.invalid", find=calls.invalid_args, severity=2, confidence=0.95),
    Detector(code="format.json", find=bad_format, severity=2, confidence=0.95),
    Detector(code="ctx.overflow", find=cut_reply, severity=2, confidence=0.9),
    Detector(code="empty", find=empty_answer, severity=3, confidence=0.95),
    Detector(code="refusal", find=refusal, severity=2, confidence=0.8),
    Detector(code="budget.steps", find=out_of_budget, severity=3, confidence=0.95),
    Detector(code="err.ignored", find=calls.error_ignored, severity=2, confidence=0.7),
    Detector(code="repeat", find=calls.repeat, severity=1, confidence=0.85),
    Detector(code="monologue", find=monologue, severity=2, confidence=0.8),
    Detector(code="args.ungrounded", find=calls.ungrounded_args, severity=2, confidence=0.6),
    Detector(code="answer.wrong", find=wrong_answer, severity=3, confidence=0.9),
    Detector(code="user.neg", find=user_objects, severity=1, confidence=0.35),
)


def detect(trace: Trace) -> list[Label]:
    """All labels of one trajectory, in the order of `DETECTORS`; at most one per code, step and detector."""
    labels: dict[tuple[str, int | None, str], Label] = {}
    for detector in DETECTORS:
        for step_ix, evidence, tool, detail in detector.find(trace):
            label = Label(
                code=detector.code,
                step_ix=step_ix,
                evidence=evidence,
                owner=detector.owner,
                severity=detector.severity,
                confidence=detector.confidence,
                detector=detector.find.__name__,
                detector_version=VERSION,
                tool=tool,
                detail=detail,
            )
            labels.setdefault((label.code, step_ix, label.detector), label)
    return list(labels.values())


def root_cause(labels: Sequence[Label]) -> Label | None:
    """The label that names the cause: by owner, then earliest step, then the order of `DETECTORS`.

    A user's objection is a symptom and is the cause only where nothing else was found.
    """
    causes = [label for label in labels if label.code != "user.neg"] or list(labels)
    last = 1 + max((label.step_ix or 0 for label in labels), default=0)
    ordered = {id(label): place for place, label in enumerate(labels)}
    return min(
        causes,
        key=lambda c: (OWNERS.index(c.owner), last if c.step_ix is None else c.step_ix, ordered[id(c)]),
        default=None,
    )


def _json_asked(trace: Trace) -> bool:
    """Was the answer to be JSON? By response_format, or by the system prompt or the last user message."""
    sampling = parse(trace.trajectory.sampling)
    wanted = sampling.get("response_format") if isinstance(sampling, dict) else None
    if isinstance(wanted, dict) and str(wanted.get("type", "")).startswith("json"):
        return True
    system = next((s for s in trace.steps if s.role == "system"), None)
    user = next((s for s in reversed(trace.steps) if s.role == "user"), None)
    return any(JSON_ASKED.search(s.content or "") for s in (system, user) if s)


def _head_text(trace: Trace) -> str:
    head = trace.trajectory
    return " ".join(t for t in (head.error_type, head.error_message, head.end_reason_raw) if t)


def _last_ix(trace: Trace) -> int | None:
    return trace.steps[-1].step_ix if trace.steps else None
