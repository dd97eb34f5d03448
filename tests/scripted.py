"""The configuration of the shared scripted workspace (`conftest.py` makes it)."""

from __future__ import annotations

from flywheel.config import Base, Config, Evaluate, Tasks, Train

SCRIPTED = Config(
    base=Base(model="scripted"),
    tasks=Tasks(train=48, holdout=32),
    train=Train(recipe="scripted", steps=8),
    evaluate=Evaluate(k=4),
)
"""The double in place of a model: a whole turn in seconds."""
