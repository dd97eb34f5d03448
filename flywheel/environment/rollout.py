"""Rollouts: a policy tries tasks k times, and the domain's verifiers judge each try.

Answers are made in batches (`Policy.act`) and each batch is one durable result of the executor, so a killed
evaluation goes on where it stopped. Verdicts are computed afterwards from the answers: they are pure and cheap.

Not covered: multi-turn episodes with tools (issue C); every task here is one question and one answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flywheel.environment.domain import Domain, open_domain
from flywheel.environment.executor import Executor
from flywheel.environment.policy import Policy
from flywheel.progress import Progress, silent
from flywheel.records import Reply, Request, Rollout, Sampling, Task, Verdict, canonical_json, content_id

BATCH = 64  # one durable result; the local policy makes a batch for each core of it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try that is to be made: task, run number, and the exact request."""

    task: Task
    run_ix: int
    request: Request


def attempts(tasks: Sequence[Task], k: int, shots: int, base_seed: int) -> list[Attempt]:
    """k attempts a task. Neighbours share what stands before the question, then have questions of like length."""
    planned = []
    for task in tasks:
        prompt = open_domain(task.domain).prompt(task, shots)
        for run_ix in range(k):
            planned.append(Attempt(task, run_ix, _seeded(prompt, task, run_ix, base_seed)))
    return sorted(planned, key=lambda a: (*_likeness(a.request), a.task.task_id, a.run_ix))


def run_rollouts(
    policy: Policy,
    tasks: Sequence[Task],
    *,
    k: int,
    sampling: Sampling,
    executor: Executor,
    shots: int = 0,
    progress: Progress = silent,
) -> list[Rollout]:
    """k judged rollouts of every task, in task order. Errors: PolicyError when the engine fails (never a score)."""
    planned = attempts(tasks, k, shots, sampling.seed)
    batches = [planned[i : i + BATCH] for i in range(0, len(planned), BATCH)]
    variant = f"{shots}-shot"
    identity = policy.identity

    def answer(batch: Sequence[Attempt]) -> list[dict[str, Any]]:
        return [asdict(reply) for reply in policy.act([a.request for a in batch], sampling)]

    def key(batch: Sequence[Attempt]) -> str:
        return content_id("answers", identity, asdict(sampling), variant, [(a.task.task_id, a.run_ix) for a in batch])

    done: dict[tuple[str, int], Rollout] = {}
    progress(0, len(planned), "rollouts")
    for batch, replies in zip(batches, executor.map(answer, batches, key), strict=True):
        for attempt, reply in zip(batch, replies, strict=True):
            rollout = judge(attempt, _reply(reply), identity, sampling, variant)
            done[attempt.task.task_id, attempt.run_ix] = rollout
        progress(len(done), len(planned), "rollouts")
    return [done[task.task_id, run_ix] for task in tasks for run_ix in range(k)]


def judge(attempt: Attempt, reply: Reply, policy: str, sampling: Sampling, variant: str) -> Rollout:
    """The rollout of one answer, with a verdict of each of the domain's verifiers."""
    task = attempt.task
    messages = (*attempt.request.messages, reply.message)
    unjudged = Rollout(
        rollout_id=content_id("rollout", policy, task.task_id, attempt.run_ix, asdict(sampling), variant),
        task_id=task.task_id,
        policy=policy,
        run_ix=attempt.run_ix,
        messages=messages,
        n_prompt=len(attempt.request.messages),
        reply=reply,
        metadata={"variant": variant},
    )
    verdicts = open_domain(task.domain).verify(task, unjudged)
    return replace(unjudged, verdicts=verdicts)


def control(domain: Domain, task: Task, message: Mapping[str, Any]) -> tuple[Verdict, ...]:
    """What the verifiers say of a given message: used for the oracle and the null agent."""
    request = domain.prompt(task)
    rollout = Rollout(
        rollout_id=content_id("rollout", "control", task.task_id, dict(message)),
        task_id=task.task_id,
        policy="control",
        run_ix=0,
        messages=(*request.messages, message),
        n_prompt=len(request.messages),
        reply=Reply(message=message),
    )
    return domain.verify(task, rollout)


def score(verdicts: Sequence[Verdict]) -> float | None:
    """The selecting verifier's score: the first verdict. None (no verdict) stays None."""
    return verdicts[0].score if verdicts else None


def _seeded(prompt: Request, task: Task, run_ix: int, base_seed: int) -> Request:
    digest = hashlib.sha256(f"{task.task_id}\0{run_ix}\0{base_seed}".encode()).digest()
    return Request(
        messages=prompt.messages, tools=prompt.tools, seed=int.from_bytes(digest[:4], "big"), task_id=task.task_id
    )


def _likeness(request: Request) -> tuple[str, int]:
    """What makes a batch cheap: an equal beginning is computed once, like lengths carry little padding."""
    *before, question = request.messages
    return canonical_json([dict(m) for m in before]), len(str(question.get("content") or ""))


def _reply(stored: Mapping[str, Any]) -> Reply:
    """A reply as it comes back from a durable result (JSON has no tuples)."""
    fields = dict(stored)
    for name in ("token_ids", "logprobs"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    return Reply(**fields)
