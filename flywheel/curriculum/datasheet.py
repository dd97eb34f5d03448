"""The datasheet of a curriculum: what is in it, where it came from, what was left out, what is not known about it.

Markdown without times, so that equal curricula have equal datasheets.

Not covered: the rows themselves, and licences or consent by row (issue C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from flywheel.config import Curate
from flywheel.curriculum.sft import INDEPENDENT, REASONS, SELECTING, Dropped, SftRow
from flywheel.records import Task

SOURCES = {
    "model": "the model's own repaired answers, passed by every verifier",
    "real": "online runs that the application's feedback calls a success",
    "expert": "answers of the oracle to tasks that repair did not solve",
}


def datasheet(
    curriculum_id: str, rows: Sequence[SftRow], dropped: Sequence[Dropped], tasks: Mapping[str, Task], config: Curate
) -> str:
    """The whole sheet."""
    sections = [
        f"# {curriculum_id}",
        _summary(rows, dropped),
        "## Sources\n\n" + _sources(rows),
        "## Tasks\n\n" + _tasks(rows, tasks),
        "## Left out\n\n" + _left_out(dropped),
        "## Known gaps\n\n" + _gaps(rows, config),
    ]
    return "\n\n".join(sections) + "\n"


def _summary(rows: Sequence[SftRow], dropped: Sequence[Dropped]) -> str:
    if not rows:
        return f"**No rows.** {len(dropped)} candidates were looked at and all were left out; the reasons are below."
    trained = sum(row.trained_tokens for row in rows)
    read = sum(len(row.input_ids) for row in rows)
    longest = max(len(row.input_ids) for row in rows)
    return (
        f"{len(rows)} rows of supervised fine-tuning in training order, {len(dropped)} candidates left out. "
        f"{trained:,} trained tokens (the assistant's) of {read:,}; the longest row has {longest}."
    )


def _sources(rows: Sequence[SftRow]) -> str:
    total = sum(row.trained_tokens for row in rows)
    lines = ["| source | rows | trained tokens | share of tokens | what it is |", "|--|--:|--:|--:|--|"]
    for source, meaning in SOURCES.items():
        mine = [row for row in rows if row.source == source]
        tokens = sum(row.trained_tokens for row in mine)
        share = f"{tokens / total:.1%}" if total else "-"
        lines.append(f"| {source} | {len(mine)} | {tokens:,} | {share} | {meaning} |")
    return "\n".join(lines)


def _tasks(rows: Sequence[SftRow], tasks: Mapping[str, Task]) -> str:
    mine = [tasks[task_id] for task_id in sorted({row.task_id for row in rows})]
    groups = len({task.group_id for task in mine})
    lines = [f"{len(mine)} tasks of {groups} groups, all of the training split.", ""]
    lines += ["| domain | family | stage | rows |", "|--|--|--:|--:|"]
    counts = Counter((tasks[r.task_id].domain, tasks[r.task_id].family, r.stage) for r in rows)
    lines += [f"| {domain} | {family} | {stage} | {n} |" for (domain, family, stage), n in sorted(counts.items())]
    return "\n".join(lines)


def _left_out(dropped: Sequence[Dropped]) -> str:
    counts = Counter((d.reason, d.source) for d in dropped)
    lines = ["| reason | source | candidates | meaning |", "|--|--|--:|--|"]
    lines += [f"| {reason} | {source} | {n} | {REASONS[reason]} |" for (reason, source), n in sorted(counts.items())]
    return "\n".join(lines)


def _gaps(rows: Sequence[SftRow], config: Curate) -> str:
    lowest = min((row.posterior for row in rows if row.posterior is not None), default=None)
    at_least = f"; the lowest here is {lowest:.3f}" if lowest is not None else ""
    return "\n".join(
        [
            f"- The verifiers' error rates are assumed, not measured: the selecting one passes {SELECTING.tpr:.0%} of "
            f"right and {SELECTING.fpr:.0%} of wrong answers; of those, the independent one {INDEPENDENT.tpr:.0%} and "
            f"{INDEPENDENT.fpr:.0%}. The posterior of a repaired row (at least {config.min_posterior:g} was asked"
            f"{at_least}) is as good as these numbers.",
            "- A task's pass rate is estimated from the same re-runs that its row is chosen from.",
            "- `real` rows are as good as the application's feedback; no verifier looked at them.",
            "- Exact duplicates and exact evaluation prompts are found; near duplicates and paraphrases are not.",
            "- Licences and consent of the traces are not recorded by row.",
        ]
    )
