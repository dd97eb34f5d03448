"""Trials whose truth is known: reports drawn from given pass rates, to measure how often the gate is wrong.

`benchmarks/gate_error_rates.py` and the tests judge the gate with these; with the numbers of your own task set they
tell beforehand which gain it can show. Not covered: anything about text, policies or domains.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flywheel.records import Report, TaskResult
from flywheel.statistics.rates import Floats


def simulated_report(
    policy: str,
    rates: Sequence[float] | Floats,
    groups: Sequence[str],
    *,
    k: int,
    seed: int,
    domains: Sequence[str] | None = None,
    levels: Sequence[str] | None = None,
    infra: float = 0.0,
    tokens: int = 40,
) -> Report:
    """A report of `policy` whose true pass rate on task t is `rates[t]`: k independent runs of each task.

    Each run is without a verdict with probability `infra`, whatever it would have been. All three labels have one
    entry a task; domain and level default to one for all.
    """
    random = np.random.default_rng(seed)
    truth = np.asarray(rates, dtype=np.float64)
    excluded = random.binomial(k, infra, size=truth.size)
    passed = random.binomial(k - excluded, truth)
    return Report(
        evaluation_id=f"evaluation-{policy}-{seed}",
        policy=policy,
        taskset="simulated",
        taskset_sha256="0" * 64,
        k=k,
        oracle_pass=1.0,
        null_pass=0.0,
        results=tuple(
            TaskResult(
                task_id=f"task-{t:05d}",
                group_id=groups[t],
                domain=domains[t] if domains else "simulated",
                level=levels[t] if levels else "",
                runs=k - int(excluded[t]),
                passed=int(passed[t]),
                excluded=int(excluded[t]),
                output_tokens=tokens * (k - int(excluded[t])),
            )
            for t in range(truth.size)
        ),
    )
