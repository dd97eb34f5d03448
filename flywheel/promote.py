"""Promote: a run that the gate lets pass becomes the policy in production; all of it, or nothing.

    flywheel promote --run RUN --decision DECISION [--force-by NAME --reason TEXT]

Places the run's policy, its curriculum and its evaluation as the champion, registers the next version, assigns it to
`production`, and writes what was promoted into the ledger. A decision that isn't PROMOTE is an honest no, unless a
person forces it in their own name; the ledger and the version say FORCED for ever. The same promotion again, also
after a crash at any moment, ends in the same version.

Not covered: judging (the gate), going back (`rollback`), canaries (issue F).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flywheel.config import Config
from flywheel.errors import ConfigError, RegistryError
from flywheel.ledger import ClusterEvent, Decision, PolicyVersion
from flywheel.progress import Progress, silent
from flywheel.records import canonical_json, content_id
from flywheel.store import artifacts, champion
from flywheel.store.curricula import read_rows
from flywheel.store.lake import Lake
from flywheel.store.registry import PRODUCTION, Registry
from flywheel.store.registry_bytes import folder_sha256
from flywheel.store.versions import Entry, Version
from flywheel.workspace import Workspace

PASS, FORCED = "PROMOTE", "FORCED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteResult:
    """What is in the stage now, and whether it is this run."""

    promoted: bool
    version: str | None  # in the stage now
    stage: str
    run_id: str
    decision_id: str
    verdict: str  # of the gate, or FORCED
    sentence: str


def promote(
    workspace: Workspace,
    config: Config,
    *,
    run_id: str,
    decision_id: str,
    forced_by: str | None = None,
    reason: str | None = None,
    progress: Progress = silent,
) -> PromoteResult:
    """Make the run the policy in production, if the decision is about it and says so.

    Errors: ConfigError (forced without a name or a reason), ArtifactError (run, decision, curriculum or evaluation
    missing or changed), RegistryError (the decision is about another policy or another incumbent, or DVC, git or a
    remote refused); production is then what it was.
    """
    run = artifacts.load(workspace.runs / run_id, verify=True)
    decision = _decision(workspace, decision_id)
    _check(run, decision, decision_id)
    if bool(forced_by) != bool(reason):
        raise ConfigError("forcing a promotion takes a name and a reason: --force-by NAME --reason TEXT")
    registry = Registry(workspace)
    forced = forced_by if decision["verdict"] != PASS else None
    if decision["verdict"] != PASS and not forced:
        return _refusal(registry, run_id, decision_id, decision)
    progress(0, 2, "registering")
    entry = Entry(
        run_id=run_id,
        decision_id=decision_id,
        weights_sha256=run.summary["weights_sha256"],
        content_sha256=folder_sha256(workspace.runs / run_id / "policy"),
        forced_by=forced,
        reason=reason if forced else None,
    )
    version = registry.release(
        lambda: _place(workspace, config, run, decision_id, decision),
        champion.STAGES,
        entry,
        incumbent=decision["incumbent"],
    )
    progress(1, 2, "ledger")
    Lake(workspace).publish(
        content_id("promotion", version.version, decision_id, forced), _ledger(workspace, run, version, decision_id)
    )
    progress(2, 2, version.version)
    return _outcome(registry, run_id, decision_id, version, FORCED if forced else PASS)


def _decision(workspace: Workspace, decision_id: str) -> dict[str, Any]:
    folder = workspace.decisions / decision_id
    artifacts.load(folder, verify=True)
    content: dict[str, Any] = json.loads((folder / "decision.json").read_text(encoding="utf-8"))
    return content


def _check(run: artifacts.Manifest, decision: Mapping[str, Any], decision_id: str) -> None:
    if decision["candidate"] != run.summary["weights_sha256"]:
        raise RegistryError(
            f"{decision_id} is about the policy {decision['candidate'][:12]}, but {run.id} made "
            f"{run.summary['weights_sha256'][:12]}: evaluate this run and let the gate decide on it"
        )


def _refusal(registry: Registry, run_id: str, decision_id: str, decision: Mapping[str, Any]) -> PromoteResult:
    current = registry.current()
    stays = f"{current.version} stays in {PRODUCTION}" if current else f"nothing is in {PRODUCTION}"
    return PromoteResult(
        promoted=False,
        version=current.version if current else None,
        stage=PRODUCTION,
        run_id=run_id,
        decision_id=decision_id,
        verdict=decision["verdict"],
        sentence=f"not promoted, {stays}: {decision['reasons'][0]}",
    )


def _outcome(registry: Registry, run_id: str, decision_id: str, version: Version, verdict: str) -> PromoteResult:
    promoted = PRODUCTION in version.stages
    current = version if promoted else registry.current()
    there = current.version if current else "nothing"
    return PromoteResult(
        promoted=promoted,
        version=current.version if current else None,
        stage=PRODUCTION,
        run_id=run_id,
        decision_id=decision_id,
        verdict=verdict,
        sentence=f"{version.version} is in {PRODUCTION}"
        if promoted
        else f"{version.version} was promoted by this decision and taken out of {PRODUCTION} since, where {there} is: "
        f"`flywheel rollback {version.version}` puts it back",
    )


def _place(
    workspace: Workspace, config: Config, run: artifacts.Manifest, decision_id: str, decision: Mapping[str, Any]
) -> None:
    """The champion's inputs and outs, as if its three stages had just been run."""
    curriculum_id, evaluation_id = run.inputs["curriculum"], decision["candidate_evaluation"]
    curriculum = artifacts.load(workspace.curricula / curriculum_id, verify=True)
    evaluation = artifacts.load(workspace.evals / evaluation_id, verify=True)
    champion.place(workspace.curricula / curriculum_id, champion.curriculum_folder(workspace))
    champion.place(workspace.runs / run.id / "policy", workspace.policy)
    champion.place(workspace.evals / evaluation_id, champion.evaluation_folder(workspace))
    used = {
        "curate": curriculum.inputs["curate"],
        "train": {**run.inputs["recipe"], "seed": run.inputs["seed"]},
        "evaluate": {**evaluation.inputs, **evaluation.inputs["sampling"]},
    }
    settings = {stage: champion.differing(getattr(config, stage), used[stage]) for stage in champion.STAGES}
    champion.write(workspace, "curate", {"snapshot": curriculum.inputs["snapshot"], "settings": settings["curate"]})
    champion.write(workspace, "train", {"settings": settings["train"]})
    champion.write(workspace, "evaluate", {"settings": settings["evaluate"]})
    origin = {
        "run": run.id,
        "curriculum": curriculum_id,
        "evaluation": evaluation_id,
        "incumbent_evaluation": decision["incumbent_evaluation"],
        "decision": decision_id,
    }
    champion.write(workspace, champion.ORIGIN, origin)


def _ledger(workspace: Workspace, run: artifacts.Manifest, version: Version, decision_id: str) -> dict[str, list[Any]]:
    """The version, what became of the clusters it was trained on, and who forced it if somebody did."""
    entry = version.entry
    rows = read_rows(workspace.curricula / run.inputs["curriculum"])
    clusters = Counter(row.cluster_id for row in rows if row.cluster_id)
    tables: dict[str, list[Any]] = {
        PolicyVersion.TABLE: [
            PolicyVersion(
                version=version.version,
                run_id=entry.run_id,
                weights_sha256=entry.weights_sha256,
                git_rev=version.git_rev,
            )
        ],
        ClusterEvent.TABLE: [
            ClusterEvent(
                cluster_id=cluster_id,
                event="promoted",
                happened_at=version.registered_at,
                policy_version=version.version,
                ref=run.id,
                n=n,
            )
            for cluster_id, n in sorted(clusters.items())
        ],
    }
    if entry.forced_by:
        tables[Decision.TABLE] = [
            Decision(
                decision_id=content_id("decision", FORCED, decision_id, entry.forced_by, entry.reason),
                candidate=entry.weights_sha256,
                verdict=FORCED,
                reasons=canonical_json({"decision": decision_id, "sentence": entry.reason}),
                by_whom=entry.forced_by,
            )
        ]
    return tables
