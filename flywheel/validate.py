"""Validate: staged batches are judged by expectation suites; what passes is published, what fails stays staged.

    flywheel validate [--accept BATCH --reason WHY]

One suite a table (`store/suites.py`). DuckDB does what is relational and hands Great Expectations one row of numbers;
enumerations and the like go to it as narrow frames, never a text column. Each verdict is a `validation` row, and each
batch gets a page that needs no network: data/validation/<batch>/index.html. A failed batch is named with its reasons
and the others go on; `--accept` publishes it as `forced`. An exception inside Great Expectations is raised, for a
check that could not be made is no failed check: nothing of that batch is published or rejected.

Not covered: expectations on curricula (`curate` checks its own rows), drift between batches.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from flywheel.config import Config
from flywheel.datadocs import render
from flywheel.errors import ConfigError, LakeError, ValidationError
from flywheel.ledger import Validation
from flywheel.progress import Progress, silent
from flywheel.records import canonical_json, content_id
from flywheel.store.artifacts import write_atomic
from flywheel.store.lake import Lake
from flywheel.store.lake_staged import StagedBatch
from flywheel.store.suites import Check, Suite, load_suites
from flywheel.workspace import Workspace

EXAMPLES = 5
FRAME_ROWS = 500_000  # given to Great Expectations at a time
SENTENCE_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found: whether it holds, what was seen, and a few offending rows or values as text."""

    says: str
    severity: str
    success: bool
    observed: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on one batch. `failed` and `warnings` are sentences; `data_docs` is the page, from the workspace."""

    batch: str
    success: bool
    state: str  # accepted|failed|forced
    failed: tuple[str, ...]
    warnings: tuple[str, ...]
    data_docs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """All verdicts of one call, and the snapshot that readers see afterwards."""

    judged: tuple[Judged, ...]
    snapshot: str | None
    data_docs: tuple[str, ...]


def validate(
    workspace: Workspace,
    config: Config,
    *,
    batch: str | None = None,
    accept: str | None = None,
    reason: str | None = None,
    progress: Progress = silent,
) -> ValidateResult:
    """Judge every waiting batch, or the one named (a failed one too), and publish what passes.

    `accept` publishes that batch even if it fails, as `forced`; it needs a `reason`. Errors: ValidationError for a
    missing reason or a check that could not be made, ConfigError for a faulty suite, ArtifactError for no such batch.
    """
    if accept and (not (reason or "").strip() or batch not in (None, accept)):
        raise ValidationError(f"accepting batch {accept} needs a reason, and no other batch beside it: --reason WHY")
    lake = Lake(workspace)
    named = accept or batch
    waiting = [named] if named else lake.staged()
    suites = load_suites(workspace.root / "expectations")
    judged = []
    for done, batch_id in enumerate(waiting):
        progress(done, len(waiting), "batches judged")
        with lake.deciding(batch_id) as undecided:
            if named or undecided:
                judged.append(_judge_and_publish(lake, batch_id, suites, reason if accept else None))
    progress(len(waiting), len(waiting), "batches judged")
    head, pages = lake.head(), tuple(verdict.data_docs for verdict in judged)
    return ValidateResult(judged=tuple(judged), snapshot=head.snapshot_id if head else None, data_docs=pages)


def _judge_and_publish(lake: Lake, batch_id: str, suites: Sequence[Suite], forced: str | None) -> Judged:
    """Judge one batch; write its page and its verdict rows first, so that whatever is published has a verdict."""
    with StagedBatch(lake.staged_folder(batch_id)) as staged:
        rows = {suite.table: staged.count(suite.table) for suite in suites}
        found = [(suite, judge(suite, staged)) for suite in suites if rows[suite.table]]
    failed = tuple(s for suite, findings in found for s in _sentences(suite, findings, "fail"))
    state = "accepted" if not failed else "forced" if forced else "failed"
    page = lake.workspace.data / "validation" / batch_id / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    tables = {suite.table: (rows[suite.table], findings) for suite, findings in found}
    write_atomic(page, render(batch_id, state, forced, tables).encode())
    verdicts = [_row(batch_id, suite, rows[suite.table], findings) for suite, findings in found]
    if verdicts:
        lake.publish(content_id("validation", sorted(v.validation_id for v in verdicts)), {"validation": verdicts})
    if state == "failed":
        lake.reject(batch_id, "; ".join(failed))
    else:
        lake.publish(batch_id, state=state, reason=forced if state == "forced" else None)
    return Judged(
        batch=batch_id,
        success=not failed,
        state=state,
        failed=failed,
        warnings=tuple(s for suite, findings in found for s in _sentences(suite, findings, "warn")),
        data_docs=page.relative_to(lake.workspace.root).as_posix(),
    )


def judge(suite: Suite, staged: StagedBatch) -> list[Finding]:
    """Every check of one suite over the staged rows, in the order of the file."""
    measured: dict[str, float] = {}
    examples: dict[str, tuple[str, ...]] = {}
    for place, check in enumerate(suite.checks):
        if check.column is None:
            measured[f"check_{place}"], examples[f"check_{place}"] = _measure(suite, check, staged)
    results: dict[int, Mapping[str, Any]] = {}
    on_columns = {place: check for place, check in enumerate(suite.checks) if check.column}
    if on_columns:
        columns = sorted({check.column for check in on_columns.values() if check.column})
        for rows in staged.columns(suite.table, columns, _frame_rows(suite, on_columns)):
            for place, result in _expect(suite, rows.to_pandas(), on_columns).items():
                results[place] = _both(results[place], result) if place in results else result
    if measured:
        import pyarrow as pa

        frame = pa.table({name: [value] for name, value in measured.items()}).to_pandas()
        results |= _expect(suite, frame, {i: _bounds(i, c) for i, c in enumerate(suite.checks) if not c.column})
    findings = []
    for place, check in enumerate(suite.checks):
        name = f"check_{place}"
        seen = _seen(check, results[place]["result"], measured.get(name))
        shown = examples[name] if name in examples else tuple(map(str, _unexpected(results[place])))
        success = bool(results[place]["success"])
        said = {"says": check.says, "severity": check.severity, "observed": seen}
        findings.append(Finding(**said, success=success, examples=() if success else shown))
    return findings


def _frame_rows(suite: Suite, checks: Mapping[int, Check]) -> int:
    """How many rows a frame may have: all of them where some check is about the column and not about each value."""
    from great_expectations.expectations.expectation import ColumnMapExpectation

    made = (_expectation(suite, place, check) for place, check in checks.items())
    return FRAME_ROWS if all(isinstance(one, ColumnMapExpectation) for one in made) else sys.maxsize


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a check of values over two frames."""
    a, b = one["result"], other["result"]
    merged: dict[str, Any] = {name: a.get(name, 0) + b.get(name, 0) for name in ("unexpected_count", "element_count")}
    shown = "partial_unexpected_list"
    merged[shown] = [*(a.get(shown) or ()), *(b.get(shown) or ())][:20]
    return {"success": one["success"] and other["success"], "result": {**a, **merged}}


def _measure(suite: Suite, check: Check, staged: StagedBatch) -> tuple[float, tuple[str, ...]]:
    """The number a check is about: how many rows break it, or the value of its SQL."""
    where = f"{suite.path}, check {check.says!r}"
    try:
        total, first = staged.query(check.offenders or check.value or "", EXAMPLES)
    except LakeError as error:
        raise ConfigError(f"{where}: {error}") from error
    if check.offenders:
        return float(total), tuple(json.dumps(row, default=str) for row in first)
    value = next(iter(first[0].values()), None) if first else None
    if total != 1 or len(first[0]) != 1 or value is None:
        raise ConfigError(f"{where}: the SQL of a `value` must give exactly one number")
    return float(value), ()


def _bounds(place: int, check: Check) -> Check:
    """The expectation that a measured number lies between the check's bounds."""
    return Check(
        says=check.says,
        severity=check.severity,
        column=f"check_{place}",
        expect="expect_column_values_to_be_between",
        arguments={"min_value": check.min, "max_value": check.max},
    )


def _expect(suite: Suite, frame: Any, checks: Mapping[int, Check]) -> dict[int, Mapping[str, Any]]:
    """Great Expectations over one frame: its result for each check, by place.

    Errors: ConfigError for an expectation it refuses, ValidationError if it raised while judging.
    """
    batch = _any_frame().get_batch({"dataframe": frame})
    from great_expectations import ExpectationSuite

    expectations = [_expectation(suite, place, check) for place, check in checks.items()]
    judged = batch.validate(ExpectationSuite(name=suite.table, expectations=expectations), result_format="SUMMARY")
    results: dict[int, Mapping[str, Any]] = {}
    for result in judged.results:
        place = result.expectation_config.meta["place"]
        raised = _raised(result.exception_info or {})
        if raised:
            raise ValidationError(
                f"suite {suite.path}, check {checks[place].says!r} could not be made: {raised}. The batch stays "
                "staged; mend the check or its column and validate again"
            )
        results[place] = {"success": result.success, "result": result.result}
    return results


@cache
def _any_frame() -> Any:
    """The library's handle on whatever frame it is given, without its telemetry and its progress bars.

    Its import takes seconds and a context a tenth of one, so: only when there is a batch to judge, and once.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx

    # This one logger sets its own level, to tell where its temporary folder lies.
    logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas("staged").add_dataframe_asset("frame")
    return asset.add_batch_definition_whole_dataframe("all")


def _expectation(suite: Suite, place: int, check: Check) -> Any:
    from great_expectations.exceptions import GreatExpectationsError
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        kind = get_expectation_impl(check.expect)
        severity = "critical" if check.severity == "fail" else "warning"
        return kind(column=check.column, severity=severity, meta={"place": place}, **check.arguments)
    except (GreatExpectationsError, TypeError, ValueError) as error:
        raise ConfigError(f"{suite.path}, check {check.says!r}: {check.expect} is refused: {error}") from error


def _raised(info: Mapping[str, Any]) -> str | None:
    """The message of an exception inside Great Expectations: its info is flat, or one entry a metric."""
    entries = [info, *(entry for entry in info.values() if isinstance(entry, Mapping))]
    return next((str(e.get("exception_message")) for e in entries if e.get("raised_exception")), None)


def _unexpected(result: Mapping[str, Any]) -> list[Any]:
    values = result["result"].get("partial_unexpected_list") or []
    return list(dict.fromkeys(map(repr, values)))[:EXAMPLES]


def _seen(check: Check, result: Mapping[str, Any], measured: float | None) -> str:
    if check.offenders:
        return f"{measured:g} rows"
    if measured is not None:
        return f"{measured:.4g}"
    return f"{result.get('unexpected_count', 0)} of {result.get('element_count', 0)} values"


def _sentences(suite: Suite, findings: Sequence[Finding], severity: str) -> list[str]:
    """One sentence for each check of that severity that does not hold."""
    broken = [f for f in findings if not f.success and f.severity == severity]
    sentences = [
        f"{suite.table}: not so: {f.says} ({f.observed}{', e.g. ' + f.examples[0] if f.examples else ''})"
        for f in broken
    ]
    return [s if len(s) <= SENTENCE_CHARS else s[: SENTENCE_CHARS - 1] + "…" for s in sentences]


def _row(batch_id: str, suite: Suite, n_rows: int, findings: Sequence[Finding]) -> Validation:
    n_failed = sum(not f.success for f in findings if f.severity == "fail")
    return Validation(
        validation_id=content_id("validation", batch_id, suite.table, suite.sha256),
        target_kind="batch",
        target_id=batch_id,
        suite=suite.table,
        suite_sha256=suite.sha256,
        success=not n_failed,
        n_failed=n_failed,
        result=canonical_json({"rows": n_rows, "checks": [asdict(f) for f in findings]}),
    )
