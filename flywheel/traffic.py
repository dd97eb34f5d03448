"""Traffic: the policy in production answers a stream of requests, and the traces land as an application would log them.

One file of OpenAI chat JSONL a call: request, response, the application's metadata (`task_id`, user, session) and its
feedback. The feedback is what the application found out by itself when it used the answer (here: whether the order it
looked up was the customer's), which is also why a failing trace has a label without anybody reading it.

Not covered: serving over HTTP (issue F); this is the demo's and the tests' source of real failures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from flywheel.config import Config
from flywheel.environment.executor import LocalExecutor
from flywheel.environment.rollout import run_rollouts, score
from flywheel.progress import Progress, silent
from flywheel.records import Rollout, Sampling, content_id
from flywheel.store.objects import Notes, open_store
from flywheel.store.registry import Registry
from flywheel.store.tasks import load_tasks
from flywheel.trainers import open_policy
from flywheel.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficResult:
    """The file that landed."""

    key: str  # in the landing zone
    requests: int
    failed: int
    policy: str


def serve_traffic(
    workspace: Workspace,
    config: Config,
    *,
    taskset: str,
    at: datetime,
    every: timedelta = timedelta(seconds=30),
    progress: Progress = silent,
) -> TrafficResult:
    """Let the production policy answer each task of the set once; one trace a request, `every` apart from `at` on."""
    tasks = load_tasks(workspace, taskset)
    policy = open_policy(Registry(workspace).checked_out(), tasks)
    sampling = Sampling(temperature=config.evaluate.temperature, max_tokens=config.evaluate.max_tokens, seed=1)
    work = workspace.data / "traffic" / content_id("traffic", policy.identity, taskset)
    rollouts = run_rollouts(
        policy, list(tasks.values()), k=1, sampling=sampling, executor=LocalExecutor(work), progress=progress
    )
    name = f"{taskset}-{policy.identity[:12]}.jsonl"
    stored = open_store(workspace, config).put(name, _lines(rollouts, policy.identity, at, every).encode())
    failed = sum(score(r.verdicts) == 0.0 for r in rollouts)
    return TrafficResult(key=stored.key, requests=len(rollouts), failed=failed, policy=policy.identity)


def has_landed(workspace: Workspace, config: Config, taskset: str) -> bool:
    """Whether an earlier call for this task set landed its file."""
    keys = (stored.key for stored in open_store(workspace, config).list(Notes()))
    return any(fnmatchcase(key, f"{taskset}-{'[0-9a-f]' * 12}.jsonl") for key in keys)


def _lines(rollouts: Sequence[Rollout], policy: str, at: datetime, every: timedelta) -> str:
    return "".join(json.dumps(_trace(r, policy, at + i * every, i)) + "\n" for i, r in enumerate(rollouts))


def _trace(rollout: Rollout, policy: str, at: datetime, index: int) -> dict[str, object]:
    verdict = rollout.verdicts[0]
    return {
        "request": {"model": policy[:12], "messages": list(rollout.messages[: rollout.n_prompt])},
        "response": {
            "id": f"chatcmpl-{rollout.rollout_id.removeprefix('rollout-')}",
            "object": "chat.completion",
            "created": int(at.timestamp()),
            "model": policy[:12],
            "choices": [
                {"index": 0, "message": dict(rollout.reply.message), "finish_reason": rollout.reply.finish_reason}
            ],
            "usage": {
                "prompt_tokens": rollout.reply.input_tokens,
                "completion_tokens": rollout.reply.output_tokens,
                "total_tokens": rollout.reply.input_tokens + rollout.reply.output_tokens,
            },
        },
        "metadata": {"task_id": rollout.task_id, "session_id": f"support-{index:04d}"},
        "feedback": {
            "name": "order_lookup",
            "score": verdict.score,
            "comment": verdict.parts,
            "source": "environment",
        },
    }
