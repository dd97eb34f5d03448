"""OTLP protobuf bodies as records: each export request as the OTLP/JSON that the specification gives for it.

Not covered: what the spans mean (`otlp.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from flywheel.formats.reader import Record
from flywheel.records import Reject


def looks_like(first: bytes) -> bool:
    """Whether the bytes can be an export request, or a run of length-prefixed ones."""
    return False


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a request, in order."""
    yield from ()
