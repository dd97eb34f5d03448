"""Masks: which tokens of a row are trained, and the proof that they are the ones meant.

A row is `input_ids` and `labels` of equal length; a label is -100 (not trained) or the token at its place. Trained are
the tokens of the assistant's messages and the token that ends each, and nothing of system, user or tool. Labels come
from the encoder, which knows its chat template; here they are held against the messages they were made of, because a
template without markers, or a stop token outside them, trains the wrong tokens and the loss still looks healthy.

Not covered: masks on single steps of a multi-turn failure, loss weights on single tokens (issue C).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

IGNORED = -100
"""The label of a token that is not trained: what torch's cross entropy ignores."""

Messages = Sequence[Mapping[str, Any]]
Encode = Callable[[Messages], tuple[list[int], list[int]]]
"""Messages -> (input_ids, labels), as `trainers.tokenizer.Tokenizer.encode_chat`."""
Decode = Callable[[Sequence[int]], str | None]
"""Token ids -> text without special tokens; None where ids can't be read back (the scripted double's are hashes)."""


def trained_spans(labels: Sequence[int]) -> list[list[int]]:
    """The runs of trained token ids, in order: one run an assistant message."""
    spans: list[list[int]] = []
    inside = False
    for label in labels:
        if label == IGNORED:
            inside = False
            continue
        if not inside:
            spans.append([])
        spans[-1].append(label)
        inside = True
    return spans


def n_trained(labels: Sequence[int]) -> int:
    """How many tokens a row trains. The first token of a sequence has no prediction, so it never counts."""
    return sum(1 for label in labels[1:] if label != IGNORED)


def mask_problem(messages: Messages, input_ids: Sequence[int], labels: Sequence[int], decode: Decode) -> str | None:
    """What is wrong with a row's labels, as a sentence; None when they train exactly the assistant's messages."""
    if len(input_ids) != len(labels):
        return f"{len(input_ids)} tokens but {len(labels)} labels"
    for position, (token, label) in enumerate(zip(input_ids, labels, strict=True)):
        if label not in (IGNORED, token):
            return f"the label at {position} is {label}, the token there is {token}"
    meant = [str(m.get("content") or "") for m in messages if m["role"] == "assistant"]
    trained = [decode(span) for span in trained_spans(labels)]
    if len(trained) != len(meant):
        return f"{len(trained)} trained spans for {len(meant)} messages of the assistant"
    if None not in trained and trained != meant:
        return f"trained text {trained!r} differs from the assistant's messages {meant!r}"
    return None
