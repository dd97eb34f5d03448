"""The wheel, in order: one turn from landed traces to a decision. This file is the order; nothing else repeats it.

Deployment `turn`, nightly; by hand `flywheel turn`. A turn that was killed goes on where it stopped. A turn without
anything new says so and ends. Not promoting is an honest end, not a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.curate import curate
from flows.evaluate import evaluate
from flows.ingest import ingest
from flows.observed import flow, show_page
from flows.promote import promote
from flows.repair import repair
from flows.report import report
from flows.train import train
from flywheel.markdown import outcome_page
from flywheel.turn import Turn, open_turn

FLOWS: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": ingest,
    "repair": repair,
    "curate": curate,
    "train": train,
    "evaluate": evaluate,
    "promote": promote,
    "report": report,
}


def order(turn: Turn) -> dict[str, Any]:
    """The stages in order. `turn.run` executes one, or reads its result if it was finished before a restart.

    Stages leave rows in the lake and artefacts in folders; what is passed on here are ids.
    """
    turn.run("ingest")  # landing files -> a staged batch -> judged -> a published snapshot
    turn.run("repair")  # failures labelled and clustered; their tasks tried again, every answer verified
    curriculum = turn.run("curate")  # all verified evidence in the lake, so the same evidence gives the same id
    if not curriculum["rows"]:
        return turn.nothing("no verified evidence to learn from yet")
    run = turn.run("train", curriculum=curriculum["curriculum_id"])  # a run that exists is not trained again
    if turn.known(run):  # in production already, or judged before under the same settings
        return turn.nothing("nothing new since the last turn")
    judged = turn.run("evaluate", run=run["run_id"])  # candidate and incumbent on the same held-out tasks
    turn.run("promote", run=run["run_id"], **turn.evaluations(judged))  # the gate decides; PROMOTE moves production
    return turn.finish(turn.run("report"))


@flow(name="turn", description="One whole turn: ingest, repair, curate, train, evaluate, promote, report")
def turn(root: str = "") -> dict[str, Any]:
    """From whatever landed to a decision; a turn that was interrupted goes on where it stopped.

    Args:
        root: The workspace's folder. Empty: FLYWHEEL_ROOT of the worker, else the nearest folder with a flywheel.toml.
    """
    # A flow run otherwise ends by joining a heartbeat thread, one second each.
    with temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        result = order(open_turn(root or None, FLOWS))
    show_page("turn-outcome", outcome_page(result), "How the turn ended")
    return result
