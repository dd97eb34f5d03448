"""`LocalPolicy` against transformers' own forward pass and generation, on a tiny real Llama."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_tiny_policy

from flywheel.errors import PolicyError
from flywheel.records import Request, Sampling
from flywheel.trainers import open_policy
from flywheel.trainers.local_policy import LocalPolicy, best_dtype

pytestmark = pytest.mark.model

EXAMPLES: tuple[Mapping[str, Any], ...] = (
    {"role": "system", "content": "Reply with JSON"},
    {"role": "user", "content": "order A-1042, I paid 42.00 for it last week"},
    {"role": "assistant", "content": '{"order_id": "A-1042", "total": 42.00}'},
)
GREEDY = Sampling(temperature=0.0, max_tokens=12)
WARM = Sampling(temperature=0.9, max_tokens=12, seed=3)


def ask(text: str, seed: int = 0, before: tuple[Mapping[str, Any], ...] = ()) -> Request:
    return Request(messages=(*before, {"role": "user", "content": text}), seed=seed)


# Two shared prefixes and none, equal prompts with other seeds, lengths from one word to many.
REQUESTS = [
    *(ask("Hello", seed) for seed in range(3)),
    *(ask("my parcel B-2291 never came, " * n, 1) for n in (1, 2, 4)),
    *(ask("refund of 7.25", seed, EXAMPLES) for seed in range(4)),
    ask("The customer wants a refund of 7.25 for order C-0007.", 0, EXAMPLES),
    ask("refund of 7.25", 0, EXAMPLES[:1]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_policy(tmp_path_factory.mktemp("tiny") / "policy")


@pytest.fixture(scope="module")
def policy(folder: Path) -> LocalPolicy:
    return LocalPolicy(folder, batch=4)


@pytest.fixture(scope="module")
def wide(folder: Path) -> LocalPolicy:
    return LocalPolicy(folder, batch=500)


def test_greedy_is_what_transformers_generates(policy: LocalPolicy, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=best_dtype()).eval()
    for request, reply in zip(REQUESTS, policy.act(REQUESTS, GREEDY), strict=True):
        ids = policy.tokenizer.apply_chat_template(
            [dict(m) for m in request.messages], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )["input_ids"]
        with torch.inference_mode():
            whole = model.generate(ids, max_new_tokens=12, do_sample=False)[0]
            logits = model(whole[None]).logits[0, ids.shape[1] - 1 : -1].float()
        assert reply.token_ids == tuple(whole[ids.shape[1] :].tolist())
        expected = logits.log_softmax(-1).gather(-1, whole[ids.shape[1] :, None])[:, 0]
        assert reply.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        assert (reply.input_tokens, reply.output_tokens) == (ids.shape[1], len(reply.token_ids or ()))


def test_a_reply_does_not_depend_on_its_batch(policy: LocalPolicy, folder: Path) -> None:
    together = policy.act(REQUESTS, WARM)
    alone = [policy.act([request], WARM)[0] for request in REQUESTS]
    backwards = LocalPolicy(folder, batch=32).act(REQUESTS[::-1], WARM)[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids
        assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)
    assert len({reply.token_ids for reply in together[:3]}) == 3, "seeds of one prompt give independent replies"


def test_a_prefix_is_computed_once(folder: Path) -> None:
    policy = LocalPolicy(folder)
    widths: list[int] = []
    policy.model.register_forward_pre_hook(lambda *seen: widths.append(seen[2]["input_ids"].shape[1]), with_kwargs=True)
    requests = [ask("refund of 7.25", seed, EXAMPLES) for seed in range(4)]
    first, again = (policy.act(requests, replace(WARM, max_tokens=1)) for _ in range(2))
    assert first == again
    prefix = len(policy._encode(EXAMPLES, False))
    rest = first[0].input_tokens - prefix
    assert widths == [prefix, rest, rest], "the prefix once, the rest of the prompt once a call for all four seeds"


def test_the_seed_of_the_sampling_counts_and_repeats(policy: LocalPolicy) -> None:
    first, other = (policy.act(REQUESTS, Sampling(temperature=0.9, max_tokens=12, seed=seed)) for seed in (3, 4))
    assert first == policy.act(REQUESTS, WARM)
    assert sum(a.token_ids == b.token_ids for a, b in zip(first, other, strict=True)) == 0


def test_tokens_are_drawn_as_often_as_the_model_says(wide: LocalPolicy) -> None:
    """At temperature 1 the share of each frequent token is its probability, which is what `logprobs` reports."""
    n = 1000
    replies = wide.act([ask("Hello", seed) for seed in range(n)], Sampling(temperature=1.0, max_tokens=1))
    probability = {reply.token_ids: math.exp((reply.logprobs or (0.0,))[0]) for reply in replies}
    for tokens, seen in Counter(reply.token_ids for reply in replies).most_common(5):
        expected = probability[tokens]
        assert abs(seen / n - expected) < 5 * math.sqrt(expected * (1 - expected) / n) + 1 / n
    assert sum(probability.values()) > 0.5


def test_temperature_sharpens(wide: LocalPolicy) -> None:
    """A power of the probabilities: at 1/2, the share is p squared over the sum of squares."""
    n = 1000
    hot = wide.act([ask("Hello", seed) for seed in range(n)], Sampling(temperature=1.0, max_tokens=1))
    cold = wide.act([ask("Hello", seed) for seed in range(n)], Sampling(temperature=0.5, max_tokens=1))
    squares = {reply.token_ids: math.exp(2 * (reply.logprobs or (0.0,))[0]) for reply in (*hot, *cold)}
    tokens, seen = Counter(reply.token_ids for reply in cold).most_common(1)[0]
    expected = squares[tokens] / sum(squares.values())
    assert abs(seen / n - expected) < 5 * math.sqrt(expected * (1 - expected) / n) + 0.01


def test_a_nucleus_of_one_token_is_greedy(policy: LocalPolicy) -> None:
    narrow = policy.act(REQUESTS, replace(WARM, top_p=1e-6))
    assert [r.token_ids for r in narrow] == [r.token_ids for r in policy.act(REQUESTS, GREEDY)]


def test_an_answer_ends_at_the_stop_token_without_it(policy: LocalPolicy, folder: Path, tmp_path: Path) -> None:
    long = policy.act(REQUESTS, GREEDY)
    assert {reply.finish_reason for reply in long} == {"length"}
    stop = (long[0].token_ids or ())[5]
    shutil.copytree(folder, tmp_path / "policy")
    settings = tmp_path / "policy" / "generation_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"eos_token_id": [stop]}))
    for before, after in zip(long, LocalPolicy(tmp_path / "policy", batch=4).act(REQUESTS, GREEDY), strict=True):
        tokens = before.token_ids or ()
        if stop not in tokens:
            assert after == before
            continue
        kept = tokens[: tokens.index(stop) + 1]
        assert (after.token_ids, after.finish_reason) == (kept, "stop")
        assert after.message == {"role": "assistant", "content": policy.tokenizer.decode(kept[:-1])}


def test_the_identity_is_the_weights_alone(policy: LocalPolicy, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert LocalPolicy(tmp_path / "copy").identity == policy.identity == LocalPolicy(folder).identity
    other = make_tiny_policy(tmp_path / "other", seed=1)
    assert LocalPolicy(other).identity != policy.identity


def test_what_it_cannot_do_it_says(policy: LocalPolicy, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"holds no model \(no config.json\)"):
        open_policy(tmp_path, {})
    with pytest.raises(PolicyError, match="request t-1 offers tools"):
        policy.act([replace(REQUESTS[0], tools=({"name": "f"},), task_id="t-1")], GREEDY)
    with pytest.raises(PolicyError, match="the model holds 512: use fewer worked examples"):
        policy.act([ask("too long " * 300)], GREEDY)


def test_nothing_asked_nothing_answered(policy: LocalPolicy) -> None:
    assert policy.act([], GREEDY) == []


def test_it_leaves_the_thread_count_as_it_was(policy: LocalPolicy) -> None:
    """One thread a batch must not become one thread for the training that follows, in whatever thread it runs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    policy.act(REQUESTS, replace(GREEDY, max_tokens=1))
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(torch.get_num_threads).result()
    now = torch.get_num_threads()
    torch.set_num_threads(before)
    assert (now, later) == (2, 2)
