"""`LocalPolicy`: a folder of weights answers in process, through transformers, in batches.

Requests are grouped by what stands before their last message (the instruction, the worked examples): that prefix is
computed once a group (`prefix_attention`), equal prompts are read once however often they are sampled, and a row that
has ended leaves its batch. Sampling is by row: every request draws its uniforms from a generator seeded by (sampling
seed, request seed, messages), one a token, so what else is in the batch has no say in them. The logits themselves
differ between batches of another shape in their last bits (matrix products in another order), so a reply can change
where a uniform falls on a boundary: 1 of 32 replies of 30 tokens did when its prefix was not shared. The same call
gives the same replies, and `environment/rollout.py` makes the same calls.
Not covered: tools, streaming, prompts that end with an assistant message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from flywheel.errors import PolicyError
from flywheel.records import Reply, Request, Sampling, canonical_json
from flywheel.trainers import prefix_attention
from flywheel.trainers.prefix_attention import KeyValues

PREFIXES = 8
"""Prefixes kept between calls of `act`: 46 kB a token on SmolLM2-135M in float32, so about 100 MB in all."""

AttentionInterface.register(prefix_attention.NAME, prefix_attention.attend)


@dataclass(slots=True)
class _Row:
    """One request on its way through a batch."""

    index: int  # of the request
    prompt: tuple[int, ...]  # token ids after the prefix
    total: int  # length of the whole prompt
    uniforms: Random
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


_Batch = tuple[list[_Row], int, KeyValues | None]
"""Rows, the length of their prefix, and its keys and values."""


def best_dtype() -> torch.dtype:
    """bfloat16 where the CPU multiplies it, else float32 (emulated bfloat16 is slower than float32)."""
    return torch.bfloat16 if torch.cpu.get_capabilities().get("avx512_bf16") else torch.float32


class LocalPolicy:
    """Weights and tokenizer in a folder; satisfies `Policy`. Errors: PolicyError naming the folder or the request."""

    def __init__(self, folder: Path, batch: int = 32) -> None:
        if not (folder / "config.json").is_file():
            problem = f"{folder} holds no model (no config.json): train one, or run `flywheel init` for the base model"
            raise PolicyError(problem)
        disable_progress_bar()  # one bar a terminal, and it's ours
        self.folder = folder
        self.batch = batch
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=best_dtype(), attn_implementation=prefix_attention.NAME, local_files_only=True
        ).eval()
        self.stops = _stop_ids(self.tokenizer, self.model)
        self._prefixes: dict[tuple[int, ...], KeyValues] = {}  # the one used last stands last

    @cached_property
    def identity(self) -> str:
        """sha256 over names and sha256 of the weight files, sorted: other bytes, other name; no path, no time."""
        files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            problem = f"{self.folder} holds no *.safetensors: save the weights in that format"
            raise PolicyError(problem)
        return hashlib.sha256(canonical_json([[f.name, _sha256(f)] for f in files]).encode()).hexdigest()

    def act(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """One reply a request, in order. `logprobs` are the model's own (temperature 1), stop token included."""
        groups: dict[tuple[int, ...], list[_Row]] = {}
        for index, request in enumerate(requests):
            prefix, row = self._read(index, request, sampling)
            groups.setdefault(prefix, []).append(row)
        batches: list[_Batch] = []
        for prefix, rows in groups.items():
            shared = self._prefill_prefix(prefix)
            rows.sort(key=lambda row: (len(row.prompt), row.prompt))  # equal prompts together, little padding
            batches += [(rows[i : i + self.batch], len(prefix), shared) for i in range(0, len(rows), self.batch)]
        self._generate_all(batches, sampling)
        replies = {row.index: self._reply(row) for rows, _, _ in batches for row in rows}
        return [replies[index] for index in range(len(requests))]

    def _generate_all(self, batches: Sequence[_Batch], sampling: Sampling) -> None:
        """One thread a batch: a step's matrices are too small to share out (two threads on one batch were slower)."""
        threads = torch.get_num_threads()  # what OMP_NUM_THREADS allows, else the cores
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for done in [pool.submit(self._generate, *batch, sampling) for batch in batches]:
                done.result()
        torch.set_num_threads(threads)  # set in a worker it would hold for every thread that starts later

    def _read(self, index: int, request: Request, sampling: Sampling) -> tuple[tuple[int, ...], _Row]:
        """The prompt's token ids, split into the shareable prefix and the rest."""
        if request.tools:
            problem = f"request {request.task_id or index} offers tools, which the local policy cannot call"
            raise PolicyError(problem)
        messages = [dict(message) for message in request.messages]
        whole = self._encode(messages, True)
        limit = getattr(self.model.config, "max_position_embeddings", None)
        if limit is not None and len(whole) + sampling.max_tokens > limit:
            problem = (
                f"request {request.task_id or index} has {len(whole)} tokens and asks for {sampling.max_tokens} more; "
                f"the model holds {limit}: use fewer worked examples or a shorter answer"
            )
            raise PolicyError(problem)
        prefix = self._encode(messages[:-1], False) if len(messages) > 1 else ()
        if whole[: len(prefix)] != prefix:  # a template that rewrites earlier turns: nothing to share
            prefix = ()
        key = canonical_json([sampling.seed, request.seed, messages]).encode()
        uniforms = Random(hashlib.sha256(key).digest())
        return prefix, _Row(index, whole[len(prefix) :], len(whole), uniforms)

    def _encode(self, messages: Sequence[Mapping[str, Any]], answer_next: bool) -> tuple[int, ...]:
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer_next)
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _prefill_prefix(self, prefix: tuple[int, ...]) -> KeyValues | None:
        """Keys and values of a prefix, computed unless one of the last `PREFIXES` prefixes was the same."""
        if not prefix:
            return None
        keep = self._prefixes.pop(prefix, None)
        if keep is None:
            keep = KeyValues(len(prefix))
            mask = _mask(torch.tensor([0]), len(prefix), len(prefix), self.model.dtype)
            self._forward(torch.tensor([prefix]), torch.arange(len(prefix))[None], mask, keep)
        self._prefixes[prefix] = keep
        if len(self._prefixes) > PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]
        return keep

    def _forward(self, ids: Tensor, positions: Tensor, mask: Tensor, keep: KeyValues) -> Tensor:
        """Logits after the last column, [rows, vocabulary], float32."""
        with torch.inference_mode():  # it holds for one thread, so not around `act`
            out = self.model(
                input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False, keep=keep, logits_to_keep=1
            )
        keep.advance(ids.shape[1])
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def _generate(self, rows: Sequence[_Row], offset: int, shared: KeyValues | None, sampling: Sampling) -> None:
        """Fill `tokens` and `logprobs` of rows that stand behind the same prefix of `offset` tokens."""
        prompts = list(dict.fromkeys(row.prompt for row in rows))
        width = max(map(len, prompts))
        hidden = torch.tensor([width - len(prompt) for prompt in prompts])  # columns of left padding
        ids = torch.tensor([[self.stops[0]] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        positions = offset + (torch.arange(width)[None] - hidden[:, None]).clamp(min=0)
        keep = KeyValues(width + sampling.max_tokens, shared)
        logits = self._forward(ids, positions, _mask(hidden, width, width, self.model.dtype), keep)
        live = list(rows)
        line = torch.tensor([prompts.index(row.prompt) for row in live])
        logits, hidden = logits[line], hidden[line]
        keep.select(line)
        while True:
            _sample(logits, live, sampling)
            going = [
                ix
                for ix, row in enumerate(live)
                if row.tokens[-1] not in self.stops and len(row.tokens) < sampling.max_tokens
            ]
            if not going:
                return
            if len(going) < len(live):
                line = torch.tensor(going)
                live, hidden = [live[ix] for ix in going], hidden[line]
                keep.select(line)
            ids = torch.tensor([[row.tokens[-1]] for row in live])
            positions = torch.tensor([[row.total + len(row.tokens) - 1] for row in live])
            logits = self._forward(ids, positions, _mask(hidden, keep.columns + 1, 1, self.model.dtype), keep)

    def _reply(self, row: _Row) -> Reply:
        ended = row.tokens[-1] in self.stops
        text = self.tokenizer.decode(row.tokens[:-1] if ended else row.tokens, clean_up_tokenization_spaces=False)
        return Reply(
            message={"role": "assistant", "content": text},
            finish_reason="stop" if ended else "length",
            input_tokens=row.total,
            output_tokens=len(row.tokens),
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stop_ids(tokenizer: Any, model: Any) -> tuple[int, ...]:
    """What ends an answer: the tokenizer's and the model's end of sequence, and the end of a ChatML turn."""
    of_model = model.generation_config.eos_token_id
    ids = {tokenizer.eos_token_id, *(of_model if isinstance(of_model, list) else [of_model])}
    ids.add(tokenizer.get_vocab().get("<|im_end|>"))
    stops = tuple(sorted(ids - {None}))
    if not stops:
        problem = f"{tokenizer.name_or_path} names no end-of-sequence token, so no answer would ever end"
        raise PolicyError(problem)
    return stops


def _mask(hidden: Tensor, columns: int, new: int, dtype: torch.dtype) -> Tensor:
    """Additive mask [rows, 1, new, columns]: the last `new` columns ask, each sees itself and what stands before it,
    but not the first `hidden[row]` columns, which are padding."""
    column = torch.arange(columns)
    asking = column[columns - new :, None]
    seen = (column[None] <= asking)[None] & (column[None, None] >= hidden[:, None, None])
    # finite, not -inf: a padding column that asks sees nothing, and a softmax over nothing would be NaN
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]


def _sample(logits: Tensor, rows: Sequence[_Row], sampling: Sampling) -> None:
    """Append one token and its logprob to each row. logits [rows, vocabulary]."""
    if sampling.temperature == 0:
        tokens = logits.argmax(-1)
    else:
        weights = (logits.double() / sampling.temperature).softmax(-1)
        if sampling.top_p < 1:
            ranked, order = weights.sort(-1, descending=True)
            ranked[ranked.cumsum(-1) - ranked >= sampling.top_p] = 0.0
            weights = torch.zeros_like(weights).scatter_(-1, order, ranked)
        heaps = weights.cumsum(-1)
        uniforms = torch.tensor([[row.uniforms.random()] for row in rows], dtype=torch.float64)
        tokens = torch.searchsorted(heaps, uniforms * heaps[:, -1:], right=True)[:, 0]
    logprobs = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    for row, token, logprob in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
        row.tokens.append(token)
        row.logprobs.append(logprob)
