"""Recipe `sft` through TRL on a tiny real Llama: the right tokens, resumed after kill -9 to the same bytes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_tiny_policy

from flywheel.config import Train
from flywheel.curriculum.blend import schedule
from flywheel.curriculum.sft import SftRow
from flywheel.errors import TrainingError
from flywheel.progress import silent
from flywheel.store import artifacts
from flywheel.trainers.recipe import Job, weights_sha256

pytestmark = pytest.mark.model

KILLED = """
import json, os, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[2])
from trainers.test_sft import job_at
from flywheel.trainers.sft import fit

def progress(done, total, what):
    if done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

fit(job_at(Path(sys.argv[1])), progress)
"""


def make_rows(base: Path, n: int = 6) -> list[SftRow]:
    """Rows of different lengths: a prompt that is read, an answer and its stop token that are trained."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    rows = []
    for ix in range(n):
        text = f"<|im_start|>user\n{'please ' * (ix % 3)}order {ix}<|im_end|>\n<|im_start|>assistant\n"
        prompt = tokenizer(text, add_special_tokens=False).input_ids
        answer = tokenizer(f'{{"order_id": "A-{ix}"}}<|im_end|>', add_special_tokens=False).input_ids
        rows.append(
            SftRow(
                row_id=f"row-{ix}",
                source="model",
                task_id=f"task-{ix}",
                cluster_id=None,
                stage=0,
                weight=1.0,
                messages="[]",
                input_ids=tuple(prompt + answer),
                labels=tuple([-100] * len(prompt) + answer),
            )
        )
    return rows


def job_at(root: Path, **settings: Any) -> Job:
    """The job of these tests in a folder whose `base` is the tiny model."""
    return Job(
        base=root / "base",
        rows=make_rows(root / "base"),
        settings=Train(**{"steps": 8, "batch": 4, "lora_r": 4, "learning_rate": 1e-2, **settings}),
        work=root / "run" / "work",
        out=root / "run" / "policy",
        tasks={},
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_policy(tmp_path_factory.mktemp("tiny") / "base")


@pytest.fixture
def root(model: Path, tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "base").symlink_to(model)
    yield tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {path.name: artifacts.file_sha256(path) for path in sorted(folder.iterdir())}


def test_it_learns_and_leaves_a_plain_model_folder(root: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from flywheel.trainers.sft import fit

    job, told = job_at(root), []
    before = contents(job.base)
    metrics = fit(job, lambda done, total, what: told.append((done, total, what)))
    assert [m.step for m in metrics] == list(range(1, 9))
    assert metrics[-1].loss < metrics[0].loss - 0.5
    assert told == [(m.step, 8, f"loss {m.loss:.3f}") for m in metrics]
    per_step = [sum(job.rows[i].trained_tokens for i in step) for step in schedule(job.rows, 8, 4, 0)]
    assert [m.tokens for m in metrics] == [sum(per_step[: ix + 1]) for ix in range(8)]
    assert contents(job.base) == before
    assert set(contents(job.out)) == set(before)
    loaded = AutoModelForCausalLM.from_pretrained(job.out, local_files_only=True)
    assert loaded.dtype == torch.bfloat16
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    tokenizer = AutoTokenizer.from_pretrained(job.out, local_files_only=True)
    prompt = tokenizer("<|im_start|>user\norder 1<|im_end|>\n<|im_start|>assistant\n", return_tensors="pt")
    assert loaded.generate(**prompt, max_new_tokens=3, do_sample=False).shape[1] > prompt.input_ids.shape[1]
    said, says = (json.loads((folder / "config.json").read_text()) for folder in (job.base, job.out))
    assert says == {**said, "dtype": "bfloat16"}


def test_killed_and_resumed_it_ends_with_the_same_bytes(root: Path, model: Path, tmp_path: Path) -> None:
    from flywheel.trainers.sft import fit, last_whole

    straight_root = tmp_path / "elsewhere"
    straight_root.mkdir()
    (straight_root / "base").symlink_to(model)
    straight = fit(job_at(straight_root), silent)

    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(root), json.dumps([str(Path(__file__).parent.parent)]), "7"], check=False
    )
    assert child.returncode == -signal.SIGKILL
    job = job_at(root)
    whole = last_whole(job.work)
    assert whole is not None and whole.name == "checkpoint-6"
    assert not job.out.exists()
    told: list[int] = []
    resumed = fit(job, lambda done, total, what: told.append(done))
    assert told == [7, 8]
    assert resumed == straight
    assert contents(job.out) == contents(straight_root / "run" / "policy")


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_rows_are_summed_up_in_small_passes_whatever_the_batch(root: Path, batch: int) -> None:
    """The loss of a step is the mean over its trained tokens, as one pass over the whole batch gives it."""
    import torch
    from transformers import AutoModelForCausalLM

    from flywheel.trainers.sft import fit

    job = job_at(root, steps=1, batch=batch)
    (metric,) = fit(job, silent)
    model = AutoModelForCausalLM.from_pretrained(job.base, dtype=torch.float32, local_files_only=True)
    total, trained = 0.0, 0
    for number in schedule(job.rows, 1, batch, 0)[0]:
        row = job.rows[number]
        with torch.no_grad():
            logits = model(torch.tensor([row.input_ids])).logits[0, :-1]
        labels = torch.tensor(row.labels[1:])
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        trained += int((labels != -100).sum())
    assert metric.loss == pytest.approx(total / trained, rel=1e-5)
    assert metric.tokens == trained == sum(job.rows[i].trained_tokens for i in schedule(job.rows, 1, batch, 0)[0])


def test_a_corrupt_checkpoint_falls_back_to_the_one_before_and_says_so(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from flywheel.trainers.sft import fit, last_whole

    job = job_at(root)
    straight, policy = fit(job, silent), contents(job.out)
    last = last_whole(job.work)
    assert last is not None and last.name == "checkpoint-8"
    state = last / "optimizer.pt"
    state.write_bytes(state.read_bytes()[:-100] + bytes(100))
    told: list[int] = []
    assert fit(job, lambda done, total, what: told.append(done)) == straight
    assert told == [7, 8]
    assert contents(job.out) == policy
    assert "checkpoint-8 is not whole" in caplog.text and "optimizer.pt" in caplog.text


def test_a_checkpoint_without_its_seal_is_not_used(root: Path) -> None:
    from flywheel.trainers.sft import fit, last_whole

    job = job_at(root, steps=2)
    fit(job, silent)
    (job.work / "checkpoint-2" / artifacts.MANIFEST).unlink()
    whole = last_whole(job.work)
    assert whole is not None and whole.name == "checkpoint-1"
    assert not (job.work / "checkpoint-2").exists()


def test_all_weights_can_be_trained(root: Path) -> None:
    from flywheel.trainers.sft import fit

    job = job_at(root, lora_r=0, learning_rate=1e-3)
    metrics = fit(job, silent)
    assert metrics[-1].loss < metrics[0].loss - 0.5
    assert weights_sha256(job.out) != weights_sha256(job.base)


def test_only_labelled_tokens_count(root: Path) -> None:
    """With labels on the answer alone, changing what the prompt's labels would have been changes nothing."""
    from flywheel.trainers.sft import fit

    job = job_at(root, steps=1)
    trained = fit(job, silent)
    everything = [replace(row, labels=row.input_ids) for row in job.rows]
    other = fit(replace(job, rows=everything, work=root / "w2", out=root / "o2"), silent)
    assert other[0].tokens > trained[0].tokens
    assert other[0].loss != trained[0].loss


def test_other_labels_than_the_curriculums_are_refused(root: Path) -> None:
    from flywheel.trainers.sft import _trainer, check_batches

    job = job_at(root)
    plan = schedule(job.rows, 8, 4, 0)
    trainer = _trainer(job, plan, silent)
    check_batches(trainer, job.rows, plan)
    tampered = [replace(row, labels=row.input_ids) if row.row_id == "row-2" else row for row in job.rows]
    with pytest.raises(TrainingError, match="row-2 with other tokens or labels"):
        check_batches(trainer, tampered, plan)
    with pytest.raises(TrainingError, match="prepared 16 batches of 2 rows out of 28"):
        check_batches(trainer, job.rows, plan[:-1])


def test_a_loss_that_is_no_number_stops_the_run_and_names_its_rows(root: Path) -> None:
    from flywheel.trainers.sft import fit

    job = job_at(root, learning_rate=1e30, lora_r=0)
    with pytest.raises(TrainingError, match=r"step \d+: loss \S+, gradient norm (nan|inf)") as caught:
        fit(job, silent)
    step = int(str(caught.value).split(":")[0].removeprefix("step "))
    rows = [job.rows[number].row_id for number in schedule(job.rows, 8, 4, 0)[step - 1]]
    assert str(caught.value).endswith(", ".join(rows))
    assert not job.out.exists()


def test_a_row_longer_than_the_model_reads_is_named(root: Path) -> None:
    from flywheel.trainers.sft import fit

    job = job_at(root)
    long = replace(job.rows[0], row_id="row-long", input_ids=(5,) * 513, labels=(5,) * 513)
    with pytest.raises(TrainingError, match=r"row-long has 513 tokens, the model of .* reads 512"):
        fit(replace(job, rows=[*job.rows, long]), silent)
