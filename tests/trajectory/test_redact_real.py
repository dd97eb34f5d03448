"""Redaction on real conversations, and on those of the demo: it takes what is personal and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path

from flywheel.environment.domains.documents import LEVELS, SPLITS, Documents
from flywheel.trajectory.redact import Redactor

KEY = b"test key"


def test_the_sample_of_secrets(samples: Path) -> None:
    text = (samples / "malformed" / "secrets_and_pii.jsonl").read_text()
    redactor = Redactor(KEY)
    redacted = redactor.text(text)
    assert redactor.counts == {"AWS_KEY": 1, "EMAIL": 1, "CARD": 1, "API_KEY": 1, "PRIVATE_KEY": 1, "SSN": 1}
    assert not any(secret in redacted for secret in ("AKIAIOSF", "jane.doe", "4111", "ghp_", "MIIE", "078-05"))


def test_the_real_airline_runs_lose_their_addresses_and_nothing_else(samples: Path) -> None:
    """False positives would be order numbers, payment ids, dates and amounts of 200 support conversations."""
    runs = json.loads((samples / "tau_bench" / "gpt-4o-airline.json").read_bytes())
    counts: Counter[str] = Counter()
    for run in runs:
        redactor = Redactor(KEY)
        for message in run["traj"]:
            redactor.text(message.get("content") or "")
        counts += redactor.counts
    assert set(counts) == {"EMAIL"}


def test_the_support_messages_of_the_demo_lose_nothing() -> None:
    """Order ids, totals, dates and names in every level and phrasing stay, so a trace still holds its task."""
    counts: Counter[str] = Counter()
    domain = Documents()
    for split, level, seed in product(SPLITS, LEVELS, range(24)):
        task = domain.generate(seed, level, split)
        redactor = Redactor(KEY)
        redactor.json(task.prompt)
        redactor.json(task.environment or "")
        counts += redactor.counts
    assert not counts
