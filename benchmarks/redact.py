"""How much faster redaction is than one pass of `re` a pattern, what it misses, and what it takes from real traces.

    python benchmarks/redact.py [--corpus traj.jsonl] [--mb 20] [--samples DIR] [--rounds 3]

Speed: the texts of trajectories, in MB per CPU-second. Both sides have the same patterns and checks in one run, and
their spans must be the same, or it fails. Yardstick: every pattern of `re` over every text (on a tenth of the texts,
it is that slow). `value` is hyperscan's ratio to it, the bar 50; RE2's is 15. Also told: rows of trajectories through
`Redaction.fragment`, which is what ingest pays.

`--corpus` takes JSON lines of trajectories (`steps[].content`) with `FILE.truth.jsonl` ({id, step, kind, value}) beside
them; without it a corpus is made of the standard library's sources, with seeded planted values. `--samples` is a folder
of real traces: everything found there is counted by kind and family, to be looked at. Prints one JSON line last; exit 1
below a bar. Two minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import sysconfig
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "trajectory")]

from planted import planted  # noqa: E402  (the tests' own)

from flywheel.formats.reader import Source  # noqa: E402
from flywheel.formats.sniff import Reading, open_readings  # noqa: E402
from flywheel.records import Fragment, Step, Trajectory  # noqa: E402
from flywheel.trajectory.redact import Redaction  # noqa: E402
from flywheel.trajectory.scan import GATES, PATTERNS, Rules, Span  # noqa: E402

BARS = {"hyperscan": 50.0, "re2": 15.0}
RECALL = 0.99
SLOW_SHARE = 10  # the yardstick sees one text in so many
Truth = dict[int, list[str]]  # planted values by text


def corpus_of(path: Path, megabytes: float) -> tuple[list[str], dict[int, list[tuple[str, str]]]]:
    """Texts of a generated file, and what its truth file says was planted in which."""
    texts, places, size = [], {}, 0.0
    with path.open("rb") as lines:
        for line in lines:
            record = json.loads(line)
            for step in record["steps"]:
                places[record["trajectory_id"], step["index"]] = len(texts)
                texts.append(step["content"])
                size += len(step["content"]) / 1e6
            if size > megabytes:
                break
    truth: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for line in Path(f"{path}.truth.jsonl").read_text().splitlines():
        item = json.loads(line)
        if (item["id"], item["step"]) in places:
            truth[places[item["id"], item["step"]]].append((item["kind"], item["value"]))
    return texts, truth


def corpus_made(megabytes: float) -> tuple[list[str], dict[int, list[tuple[str, str]]]]:
    """Pieces of the standard library's sources; in one of twenty a planted value, on a line of its own."""
    rng, texts, size = random.Random(7), [], 0.0
    truth: dict[int, list[tuple[str, str]]] = defaultdict(list)
    values = list(planted(7, 400))
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    sources = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    while size < megabytes:
        source, length = rng.choice(sources), min(24_000, int(rng.lognormvariate(7.1, 1.0)))
        at = rng.randrange(max(1, len(source) - length))
        text = source[at : at + length]
        if rng.random() < 0.05:
            kind, value = rng.choice(values)
            truth[len(texts)].append((kind, value))
            text = f"{text}\n{value}\n"
        texts.append(text)
        size += len(text) / 1e6
    return texts, truth


def timed(rounds: int, work: Any) -> tuple[float, Any]:
    """(least CPU-seconds, what came out)."""
    best, out = float("inf"), None
    for _ in range(rounds):
        started = time.process_time()
        out = work()
        best = min(best, time.process_time() - started)
    return best, out


def found_by(rules: Rules, texts: list[str]) -> dict[int, list[Span]]:
    """What is found in which text, text by text as they come."""
    suspects = rules.suspects(texts)
    return {ix: spans for ix, suspicion in sorted(suspects.items()) if (spans := rules.spans(texts[ix], suspicion))}


def passes(texts: list[str]) -> dict[int, list[Span]]:
    """The yardstick: one pass of `re` a pattern over every text, the same checks and precedence."""
    rules, everything = Rules(engine="re"), dict.fromkeys(range(len(GATES)))
    return {ix: spans for ix, text in enumerate(texts) if (spans := rules.spans(text, everything))}


def fragments_of(texts: list[str]) -> list[Fragment]:
    """The texts as trajectories of sixteen steps."""
    fragments = []
    for first in range(0, len(texts), 16):
        head = Trajectory(
            trajectory_id=f"t{first}", content_sha256="", source_id="s", source_record_ix=first, format="f",
            n_steps=16, content_complete=True, native_id=f"trace-{first}",
        )  # fmt: skip
        steps = tuple(
            Step(trajectory_id=f"t{first}", step_ix=ix, role="tool", content=text, content_state="present")
            for ix, text in enumerate(texts[first : first + 16])
        )
        fragments.append(Fragment(key=f"t{first}", record_ix=first, trajectory=head, steps=steps))
    return fragments


def recall_of(
    texts: list[str], truth: dict[int, list[tuple[str, str]]], found: dict[int, list[Span]]
) -> dict[str, Any]:
    """Per planted kind: how many, and how many no span touches."""
    total, missed = Counter[str](), Counter[str]()
    for ix, values in truth.items():
        for kind, value in values:
            start = texts[ix].find(value)
            total[kind] += 1
            missed[kind] += not any(s.start < start + len(value) and s.end > start for s in found.get(ix, ()))
    return {"planted": dict(sorted(total.items())), "missed": {k: n for k, n in sorted(missed.items()) if n}}


def found_in_samples(root: Path) -> dict[str, dict[str, int]]:
    """Values replaced in real traces, by family (folder) and kind."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    redaction = Redaction(key=b"benchmark")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        for fragment in _fragments(path, root):
            redaction.fragment(fragment, counts[path.relative_to(root).parts[0]])
    return {family: dict(sorted(kinds.items())) for family, kinds in sorted(counts.items()) if kinds}


def _fragments(path: Path, root: Path) -> Iterator[Fragment]:
    data = path.read_bytes()
    for opened in open_readings(
        lambda: iter([data]), Source(source_id="0" * 64, uri=str(path.relative_to(root))), "auto"
    ):
        if isinstance(opened, Reading):
            yield from (item for item in opened.items() if isinstance(item, Fragment))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="JSON lines of trajectories, with FILE.truth.jsonl")
    parser.add_argument("--mb", type=float, default=20.0, help="how much of it")
    parser.add_argument("--samples", type=Path, help="a folder of real traces")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts, truth = corpus_of(options.corpus, options.mb) if options.corpus else corpus_made(options.mb)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    slow = texts[::SLOW_SHARE]
    seconds, wanted = timed(1, lambda: passes(slow))
    yardstick = sum(len(text.encode()) for text in slow) / 1e6 / seconds
    speeds, identical, found = {}, True, {}
    for engine in BARS:
        rules = Rules(engine=engine)  # type: ignore[arg-type]
        rules.suspects(["compiled once"])
        seconds, found = timed(options.rounds, lambda rules=rules: found_by(rules, texts))  # type: ignore[misc]
        speeds[engine] = megabytes / seconds
        identical &= {ix // SLOW_SHARE: spans for ix, spans in found.items() if ix % SLOW_SHARE == 0} == wanted
        print(f"{engine}: {speeds[engine]:.0f} MB/cpu-s, re: {yardstick:.2f}", file=sys.stderr)
    fragments, redaction = fragments_of(texts), Redaction(key=b"benchmark")
    seconds, _ = timed(options.rounds, lambda: [redaction.fragment(fragment) for fragment in fragments])
    recall = recall_of(texts, truth, found)
    n_planted, n_missed = sum(recall["planted"].values()), sum(recall["missed"].values())
    ratios = {engine: speed / yardstick for engine, speed in speeds.items()}
    share = 1 - n_missed / max(n_planted, 1)
    ok = identical and share >= RECALL and all(ratios[engine] >= bar for engine, bar in BARS.items())
    line = {
        "name": "redaction",
        "value": round(ratios["hyperscan"], 1),
        "bar": BARS["hyperscan"],
        "ok": ok,
        "re2_ratio": round(ratios["re2"], 1),
        "re2_bar": BARS["re2"],
        "identical_spans": identical,
        "patterns": len(PATTERNS),
        "mb": round(megabytes, 1),
        "mb_per_cpu_second": {"re": round(yardstick, 2), **{k: round(v, 1) for k, v in speeds.items()}},
        "rows_mb_per_cpu_second": round(megabytes / seconds, 1),
        "recall": round(share, 4),
        **recall,
    }
    if options.samples:
        line["found_in_samples"] = found_in_samples(options.samples)
    print(json.dumps(line))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
