"""A fresh lake for each test, and a fork server that has the slow imports behind it."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from lake_rows import make_workspace

from flywheel.store.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(make_workspace(tmp_path / "workspace"), turn_id="turn-1")


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Child processes in milliseconds: forked from a server that imported the lake but never opened one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lake_rows"])
    return context
