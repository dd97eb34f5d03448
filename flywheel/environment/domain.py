"""The domain seam: a family of tasks with its generator, verifier and controls. One domain is one file.

Add one by writing `domains/<name>.py` with a class that satisfies `Domain` and a line in `DOMAINS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from flywheel.errors import ConfigError
from flywheel.records import Request, Rollout, Task, Verdict


class Domain(Protocol):
    """A seeded generator of tasks, and everything needed to try and to judge them."""

    name: str
    verifiers: tuple[str, ...]
    """Ids of the verifiers, the selecting one first; each hashes code version and hidden split."""

    def generate(self, seed: int, level: Mapping[str, Any], split: str) -> Task:
        """One task. The same arguments give the same task, byte for byte."""
        ...

    def sample(self, n: int, split: str, seed: int) -> list[Task]:
        """`n` different tasks spread over the domain's families and levels. Another seed gives other tasks."""
        ...

    def tools(self, task: Task) -> tuple[Mapping[str, Any], ...]:
        """Tools offered to the policy, as JSON-schema functions."""
        ...

    def prompt(self, task: Task, shots: int = 0) -> Request:
        """The request a policy sees; with `shots`, the stronger prompt that repair uses (worked examples first)."""
        ...

    def verify(self, task: Task, rollout: Rollout, hidden_seed: int = 0) -> tuple[Verdict, ...]:
        """One verdict per id in `verifiers`. A crash of the verifier is score None, owner `verifier`."""
        ...

    def oracle(self, task: Task) -> Mapping[str, Any]:
        """The message of an agent that knows the answer: must pass, else the task is at fault."""
        ...

    def null(self, task: Task) -> Mapping[str, Any]:
        """The message of an agent that does nothing: must fail, else the task is at fault."""
        ...

    def reinstance(self, task: Task, seed: int) -> Task:
        """The same problem with other names, ids, dates and values."""
        ...


DOMAINS: dict[str, str] = {"documents": "flywheel.environment.domains.documents:Documents"}


def open_domain(name: str) -> Domain:
    """The domain of that name. Errors: ConfigError naming the known ones."""
    if name not in DOMAINS:
        raise ConfigError(f"no domain {name!r}; known: {', '.join(sorted(DOMAINS))}")
    module, _, attribute = DOMAINS[name].partition(":")
    domain: Domain = getattr(import_module(module), attribute)()
    return domain
