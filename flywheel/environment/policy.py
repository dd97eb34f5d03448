"""The policy seam: who answers. One Protocol, three kinds behind it.

`ScriptedPolicy` here (deterministic, known skill: the double of the test suite), `LocalPolicy` in `trainers/`
(transformers in process). Policies take a *batch* of requests: on a CPU a batch of 16 gives seven times the
tokens per second of one at a time, so a one-by-one interface would be a cost nobody asked for.

Not covered: retries and ordering (the executor's), verification (the domain's).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from flywheel.environment.domain import open_domain
from flywheel.errors import PolicyError
from flywheel.records import Reply, Request, Sampling, Task, canonical_json

SKILL_FILE = "skill.json"


class Policy(Protocol):
    """Anything that answers. Raises PolicyError when the engine fails: infrastructure, never a wrong answer."""

    @property
    def identity(self) -> str:
        """sha256 of the weights (or of the skill): the same bytes answer to the same name anywhere."""
        ...

    def act(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """One reply a request, in order. The same request, sampling and policy give the same reply."""
        ...


@dataclass(frozen=True, slots=True)
class ScriptedPolicy:
    """A policy whose skill is written down: probability of the right answer by task family.

    `families[family]` (else `default`) is the probability of answering as the oracle would; worked examples in
    the prompt raise it by `shots_bonus` of what is missing. The coin is a hash of (identity, task, seed), so a
    rerun gives the same answer and another seed an independent one. Temperature plays no part.
    """

    tasks: Mapping[str, Task]
    default: float = 0.1
    families: Mapping[str, float] = field(default_factory=dict)
    shots_bonus: float = 0.5

    @classmethod
    def load(cls, folder: Path, tasks: Mapping[str, Task]) -> ScriptedPolicy:
        """Read `folder/skill.json`."""
        skill = json.loads((folder / SKILL_FILE).read_text(encoding="utf-8"))
        return cls(tasks, skill["default"], skill["families"], skill["shots_bonus"])

    def save(self, folder: Path) -> None:
        """Write `folder/skill.json`, canonical, so equal skills are equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SKILL_FILE).write_text(self._skill() + "\n", encoding="utf-8")

    def _skill(self) -> str:
        return canonical_json(
            {"default": self.default, "families": dict(self.families), "shots_bonus": self.shots_bonus}
        )

    @property
    def identity(self) -> str:
        return hashlib.sha256(f"{self._skill()}\n".encode()).hexdigest()

    def act(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        return [self._answer(request, sampling.seed) for request in requests]

    def _answer(self, request: Request, base_seed: int) -> Reply:
        task = self.tasks.get(request.task_id or "")
        if task is None:
            raise PolicyError(f"the scripted policy knows no task {request.task_id!r}: give it the task set it serves")
        domain = open_domain(task.domain)
        shots = sum(1 for m in request.messages if m["role"] == "assistant")
        skill = self.families.get(task.family, self.default)
        if shots:
            skill += (1.0 - skill) * self.shots_bonus
        key = f"{self.identity}\0{task.task_id}\0{base_seed}\0{request.seed}\0{shots}"
        coin = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
        message = domain.oracle(task) if coin < skill else domain.null(task)
        words = len(str(message.get("content") or "").split())
        return Reply(
            message=message,
            input_tokens=sum(len(str(m["content"]).split()) for m in request.messages),
            output_tokens=words,
        )
