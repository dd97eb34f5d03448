"""Recipe `sft`: TRL supervised fine-tuning on the curriculum's own tokens and labels, resumable, on a CPU.

TRL gets `input_ids` and `labels` and prepares nothing: no template, no truncation, no shuffling. Before the first step
the batches that its data loader yields are held against the curriculum, token by token. Each checkpoint is sealed by a
manifest once it is whole; a run goes on from the newest sealed one. LoRA with alpha = 2r on all linear layers, or all
weights with `lora_r = 0`; the adapter is merged, so the result is a plain model folder.

Computes in float32, and in bfloat16 only where the CPU has instructions for it; the weights on disk are bfloat16.
Not covered: GPUs and several machines (issue D), preference and reinforcement recipes.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import SFTConfig, SFTTrainer

from flywheel.curriculum.blend import schedule
from flywheel.curriculum.masks import IGNORED, n_trained
from flywheel.curriculum.sft import SftRow
from flywheel.errors import ArtifactError, TrainingError
from flywheel.progress import Progress
from flywheel.store import artifacts
from flywheel.trainers.recipe import Job, StepMetric

log = logging.getLogger(__name__)

CHECKPOINTS = 4
"""Checkpoints a run: a kill costs at most a quarter of it."""
MICRO = 2
"""Rows a forward pass; a step of `batch` rows adds up batch / MICRO gradients. Measured on SmolLM2-135M, 8 rows of up
to 261 tokens a step, float32, one thread: 21 cpu-s and 2.6 GB by 2, 33 and 7.0 GB by 8 (padding), with equal losses."""
WEIGHTS = ("*.safetensors", "*.bin", "*.gguf", "*.index.json")
"""Files of a policy folder that hold weights: written anew, never copied from the base."""


def fit(job: Job, progress: Progress) -> list[StepMetric]:
    """Train and write the merged model. Errors: TrainingError (row too long for the model, loss not finite)."""
    plan = schedule(job.rows, job.settings.steps, job.settings.batch, job.settings.seed)
    _check_lengths(job)
    disable_progress_bar()  # one bar a terminal, and it's ours
    with warnings.catch_warnings():
        # transformers renamed an argument that TRL still sets to True, so it has to be given by its old name.
        warnings.filterwarnings("ignore", r".*gradient_checkpointing` is deprecated", FutureWarning)
        trainer = _trainer(job, plan, progress)
        check_batches(trainer, job.rows, plan)
        checkpoint = last_whole(job.work)
        if checkpoint:
            log.warning("resuming from %s", checkpoint.name)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    _save(trainer, job)
    return _metrics(trainer.state.log_history, job.rows, plan)


def _trainer(job: Job, plan: Sequence[Sequence[int]], progress: Progress) -> Any:
    settings = job.settings
    fast_bf16 = bool(torch.cpu.get_capabilities().get("avx512_bf16"))
    frozen = settings.lora_r > 0
    # Trained weights stay in float32, or small updates would round away; frozen ones may be as coarse as the compute.
    dtype = torch.bfloat16 if fast_bf16 and frozen else torch.float32
    model = AutoModelForCausalLM.from_pretrained(job.base, dtype=dtype, local_files_only=True)
    numbers = [number for step in plan for number in step]
    dataset = Dataset.from_dict(
        {
            "input_ids": [list(job.rows[number].input_ids) for number in numbers],
            "labels": [list(job.rows[number].labels) for number in numbers],
        }
    )
    trainer = SFTTrainer(
        model=model,
        args=_arguments(job, fast_bf16),
        train_dataset=dataset,
        processing_class=AutoTokenizer.from_pretrained(job.base, local_files_only=True),
        peft_config=_lora(settings.lora_r) if frozen else None,
        callbacks=[_Watch(job, plan, progress)],
    )
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, where only the verb's result belongs
    return trainer


def _arguments(job: Job, bf16: bool) -> SFTConfig:
    settings = job.settings
    micro = math.gcd(settings.batch, MICRO)
    return SFTConfig(
        output_dir=str(job.work),
        max_steps=settings.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.batch // micro,
        gradient_checkpointing=False,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        seed=settings.seed,
        data_seed=settings.seed,
        train_sampling_strategy="sequential",  # the schedule is the order
        max_length=None,  # nothing is cut: `curate` refused what is too long
        dataset_kwargs={"skip_prepare_dataset": True},
        save_strategy="steps",
        save_steps=max(1, math.ceil(settings.steps / CHECKPOINTS)),
        save_total_limit=2,  # the one before stays until the next is sealed
        logging_steps=1,
        logging_nan_inf_filter=False,  # by default a NaN is logged as the mean of its neighbours
        use_cpu=True,
        bf16=bf16,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to="none",
        push_to_hub=False,
    )


def _lora(r: int) -> LoraConfig:
    return LoraConfig(r=r, lora_alpha=2 * r, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")


class _Watch(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Tells the progress, stops at a loss that is no number, and seals checkpoints."""

    def __init__(self, job: Job, plan: Sequence[Sequence[int]], progress: Progress) -> None:
        self._job, self._plan, self._progress = job, plan, progress

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if "loss" not in logs:
            return
        step, loss = state.global_step, logs["loss"]
        if not (math.isfinite(loss) and math.isfinite(logs["grad_norm"])):
            rows = ", ".join(self._job.rows[number].row_id for number in self._plan[step - 1])
            sentence = (
                f"step {step}: loss {loss}, gradient norm {logs['grad_norm']}; lower [train] learning_rate "
                f"(now {self._job.settings.learning_rate}) or look at the rows of this step: {rows}"
            )
            raise TrainingError(sentence)
        self._progress(step, self._job.settings.steps, f"loss {loss:.3f}")

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        name = f"checkpoint-{state.global_step}"
        artifacts.finish(self._job.work / name, "checkpoint", name, {}, {"step": state.global_step})


def last_whole(work: Path) -> Path | None:
    """The newest checkpoint that is whole. Broken ones are removed, and the log says which."""
    found = sorted(work.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for checkpoint in found:
        try:
            artifacts.load(checkpoint, verify=True)
        except ArtifactError as error:
            log.warning("%s is not whole and is removed; falling back to the one before: %s", checkpoint.name, error)
            shutil.rmtree(checkpoint)
        else:
            return checkpoint
    return None


def check_batches(trainer: Any, rows: Sequence[SftRow], plan: Sequence[Sequence[int]]) -> None:
    """Hold what TRL will train on, batch by batch, against the curriculum. Errors: TrainingError naming the row."""
    batches = trainer.get_train_dataloader()
    micro, numbers = trainer.args.per_device_train_batch_size, [number for step in plan for number in step]
    if len(batches) * micro != len(numbers):
        sentence = f"TRL prepared {len(batches)} batches of {micro} rows out of {len(numbers)}: some are gone"
        raise TrainingError(sentence)
    for at, batch in enumerate(batches):
        for position, number in enumerate(numbers[at * micro : (at + 1) * micro]):
            size = int(batch["attention_mask"][position].sum())
            meant, labels = rows[number], batch["labels"][position].tolist()
            same = batch["input_ids"][position][:size].tolist() == list(meant.input_ids)
            if not same or labels[:size] != list(meant.labels) or any(x != IGNORED for x in labels[size:]):
                sentence = f"batch {at}: TRL would train row {meant.row_id} with other tokens or labels than curated"
                raise TrainingError(sentence)


def _check_lengths(job: Job) -> None:
    limit = AutoConfig.from_pretrained(job.base, local_files_only=True).max_position_embeddings
    for row in job.rows:
        if len(row.input_ids) > limit:
            sentence = (
                f"row {row.row_id} has {len(row.input_ids)} tokens, the model of {job.base} reads {limit}: "
                f"lower [curate] max_length"
            )
            raise TrainingError(sentence)


def _metrics(history: Sequence[dict[str, float]], rows: Sequence[SftRow], plan: Any) -> list[StepMetric]:
    """From the trainer's log, which its checkpoints carry, so a resumed run has all steps too."""
    metrics, tokens = [], 0
    for entry, numbers in zip((e for e in history if "loss" in e), plan, strict=True):
        tokens += sum(n_trained(rows[number].labels) for number in numbers)
        step = int(entry["step"])
        metrics.append(StepMetric(step=step, loss=entry["loss"], tokens=tokens, lr=entry["learning_rate"]))
    return metrics


def _save(trainer: Any, job: Job) -> None:
    """The whole model in bfloat16, and the base's configuration, tokenizer and other small files as they are."""
    model = trainer.model.merge_and_unload() if job.settings.lora_r > 0 else trainer.model
    if job.out.exists():
        shutil.rmtree(job.out)
    model.to(torch.bfloat16).save_pretrained(job.out)
    for path in sorted(job.base.iterdir()):
        weights = any(path.match(pattern) for pattern in WEIGHTS)
        if path.is_file() and not weights and path.name != artifacts.MANIFEST:
            shutil.copyfile(path, job.out / path.name)
    # The trainer changes the configuration it is given (no cache, for one), and a policy must not inherit that.
    config = json.loads((job.base / "config.json").read_text(encoding="utf-8"))
    text = json.dumps({**config, "dtype": "bfloat16"}, indent=2) + "\n"
    artifacts.write_atomic(job.out / "config.json", text.encode())
