"""The executor seam: a function over items, so that each finished result survives the process.

`LocalExecutor` keeps one JSON file a result. A killed map goes on where it stopped, results come in the order of the
items, and one item and one result are held in memory at a time. An infrastructure failure is tried again a few times
and then raised: it never becomes a result, because a result could be scored.

Not covered: more than one process (the seam is where a cluster would come in), results that are no JSON, clearing
the folder when the work is done (its owner's), a changed `fn` under an unchanged key.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from flywheel.errors import ArtifactError, PolicyError, SandboxError
from flywheel.store.artifacts import write_atomic

Item = TypeVar("Item")
INFRASTRUCTURE = (PolicyError, SandboxError)


class Executor(Protocol):
    """Maps a function over items with durable results."""

    def map(self, fn: Callable[[Item], Any], items: Iterable[Item], key: Callable[[Item], str]) -> Iterator[Any]:
        """`fn(item)` as it comes back from JSON, for each item, in order. Equal keys are computed once, ever.

        `key` must name everything that the result depends on. Errors: PolicyError or SandboxError of the last try,
        naming the item; results made before it are kept. Other exceptions are bugs and pass at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalExecutor:
    """One process, one JSON file a result in `folder`; `tries` per item, with a growing pause between them."""

    folder: Path
    tries: int = 3
    pause_s: float = 0.2

    def map(self, fn: Callable[[Item], Any], items: Iterable[Item], key: Callable[[Item], str]) -> Iterator[Any]:
        for item in items:
            name = key(item)
            path = self.folder / f"{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}.json"
            if not path.is_file():
                # One atomic rename makes the result: a kill leaves all of it or nothing. NaN has no JSON and raises.
                record = {"key": name, "result": self._tried(fn, item, name)}
                write_atomic(path, json.dumps(record, allow_nan=False).encode())
            yield _stored(path, name)

    def _tried(self, fn: Callable[[Item], Any], item: Item, name: str) -> Any:
        for attempt in range(1, self.tries):
            try:
                return fn(item)
            except INFRASTRUCTURE:
                time.sleep(self.pause_s * 2 ** (attempt - 1))
        try:
            return fn(item)
        except INFRASTRUCTURE as error:
            kept = f"failed {self.tries} time(s) on {name}; finished results are kept, so run again to go on"
            raise type(error)(f"{error} ({kept})") from error


def _stored(path: Path, name: str) -> Any:
    """The result as every later run reads it too. Errors: ArtifactError if the file is not the result of that key."""
    try:
        record = json.loads(path.read_bytes())
        if record["key"] == name:
            return record["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path} is not a stored result ({error}): delete it and run again") from error
    raise ArtifactError(f"{path} holds the result of {record['key']} and not of {name}: delete it and run again")
