"""The turn in progress, written down: which stages are done and what they returned.

`data/turns/current.json` exists while a turn runs. A turn that was killed is resumed: finished stages are not run
again (their results are read here), the interrupted one is (every stage is idempotent). The finished record goes to
`data/turns/<turn_id>/turn.json`; it holds ids only, timings and full results lie beside it.

Not covered: the order of the stages (`flows/turn.py`) and what they do (`stages.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flywheel.config import Config, load_config
from flywheel.records import content_id
from flywheel.store import artifacts
from flywheel.store.lake import Lake
from flywheel.store.registry import Registry
from flywheel.workspace import Workspace

Result = dict[str, Any]


class Turn:
    """The stages of one turn, each run to its end at most once."""

    def __init__(self, workspace: Workspace, config: Config, stages: Mapping[str, Callable[..., Result]]) -> None:
        self._workspace, self._config, self._stages = workspace, config, stages
        if workspace.current_turn.is_file():
            self._state: dict[str, Any] = json.loads(workspace.current_turn.read_text(encoding="utf-8"))
        else:
            head = Lake(workspace).head()
            turn_id = content_id("turn", head.snapshot_id if head else None, config.model_dump())
            self._state = {"turn_id": turn_id, "results": {}, "seconds": {}}
            self._save()

    @property
    def turn_id(self) -> str:
        """Id of this turn, the same after a restart: of the lake's state and the configuration at its start."""
        return str(self._state["turn_id"])

    def run(self, stage: str, **ids: Any) -> Result:
        """The stage's result: from the journal if it finished before, else by running it now."""
        results = self._state["results"]
        if stage not in results:
            started = time.monotonic()
            results[stage] = self._stages[stage](root=str(self._workspace.root), **ids)
            self._state["seconds"][stage] = round(time.monotonic() - started, 2)
            self._save()
        result: Result = results[stage]
        return result

    def known(self, run: Mapping[str, Any]) -> bool:
        """True if this run is in production already, or a finished turn has put it to the same question."""
        if "evaluate" in self._state["results"]:
            return False  # a restart after this was asked: what the answer was then still holds
        question = self._question(run)
        if any(record["question"] == question for record in finished_turns(self._workspace)):
            return True
        production = Registry(self._workspace).current()
        return production is not None and production.entry.weights_sha256 == run["weights_sha256"]

    def evaluations(self, judged: Mapping[str, Any]) -> dict[str, str]:
        """The two evaluation ids the gate compares."""
        return {side: judged[side]["evaluation_id"] for side in ("candidate", "incumbent")}

    def nothing(self, why: str) -> Result:
        """End a turn that found nothing to do, and say so. No record is written."""
        self._workspace.current_turn.unlink(missing_ok=True)
        return {"turn": None, "new": False, "why": why, "results": self._state["results"]}

    def finish(self, page: Mapping[str, Any]) -> Result:
        """Write the turn's record and close the journal."""
        results = self._state["results"]
        folder = self._workspace.turns / self.turn_id
        record = {
            "turn": self.turn_id,
            "question": self._question(results["train"]),
            "curriculum": results["curate"]["curriculum_id"],
            "run": results["train"]["run_id"],
            **self.evaluations(results["evaluate"]),
            "decision": results["promote"]["gate"]["decision_id"],
            "verdict": results["promote"]["gate"]["verdict"],
            "version": results["promote"]["version"],
        }
        folder.mkdir(parents=True, exist_ok=True)
        artifacts.write_atomic(folder / "turn.json", (json.dumps(record, indent=1) + "\n").encode())
        artifacts.write_atomic(folder / "timings.json", json.dumps(self._state, indent=1).encode())
        artifacts.finish(folder, "turn", self.turn_id, {}, record)
        self._workspace.current_turn.unlink(missing_ok=True)
        return {**record, "new": True, "page": page["page"], "seconds": self._state["seconds"], "results": results}

    def _question(self, run: Mapping[str, Any]) -> str:
        config = self._config
        return content_id("question", run["run_id"], config.evaluate.model_dump(), config.gate.model_dump())

    def _save(self) -> None:
        self._workspace.turns.mkdir(parents=True, exist_ok=True)
        artifacts.write_atomic(self._workspace.current_turn, json.dumps(self._state, indent=1).encode())


def open_turn(root: str | Path | None, stages: Mapping[str, Callable[..., Result]]) -> Turn:
    """The turn that was interrupted in this workspace, or a new one."""
    workspace = Workspace.find(root)
    return Turn(workspace, load_config(workspace.config_file), stages)


def finished_turns(workspace: Workspace) -> list[Result]:
    """The records of all finished turns, in no particular order."""
    folders = sorted(workspace.turns.glob("turn-*"))
    return [dict(artifacts.load(folder).summary) for folder in folders if artifacts.is_finished(folder)]
