"""Masks: only the assistant's messages and their stop tokens are trained, and anything else is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flywheel.curriculum.masks import IGNORED, mask_problem, n_trained, trained_spans

STOP = 1
MESSAGES = (
    {"role": "system", "content": "be terse"},
    {"role": "user", "content": "two and two"},
    {"role": "assistant", "content": "four"},
    {"role": "user", "content": "and one"},
    {"role": "assistant", "content": "five ünits"},
)


def encode(messages: Sequence[dict[str, str]]) -> tuple[list[int], list[int]]:
    """One token a byte, offset by 10; token 0 opens a message, token 1 ends it."""
    input_ids: list[int] = []
    labels: list[int] = []
    for message in messages:
        body = [10 + byte for byte in message["content"].encode()] + [STOP]
        trained = message["role"] == "assistant"
        input_ids += [0, *body]
        labels += [IGNORED, *(body if trained else [IGNORED] * len(body))]
    return input_ids, labels


def decode(tokens: Sequence[int]) -> str:
    return bytes(token - 10 for token in tokens if token >= 10).decode()


def test_right_labels_are_accepted_and_counted() -> None:
    input_ids, labels = encode(MESSAGES)
    assert mask_problem(MESSAGES, input_ids, labels, decode) is None
    assert [decode(span) for span in trained_spans(labels)] == ["four", "five ünits"]
    assert n_trained(labels) == len("four") + len("five ünits".encode()) + 2


def test_a_trained_first_token_teaches_nothing() -> None:
    assert n_trained([7]) == 0
    assert n_trained([7, IGNORED, 7]) == 1


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda ids, labels: labels.__setitem__(slice(None), [IGNORED] * len(labels)), "0 trained spans for 2"),
        (lambda ids, labels: labels.__setitem__(slice(None), ids), "1 trained spans for 2"),
        (lambda ids, labels: labels.__setitem__(labels.index(10 + ord("f")), IGNORED), "'our'"),
        (lambda ids, labels: labels.__setitem__(-2, 99), "the token there is"),
        (lambda ids, labels: labels.pop(), "tokens but"),
    ],
    ids=["nothing trained", "everything trained", "first letter lost", "another token", "a label missing"],
)
def test_wrong_labels_are_named(change: object, names: str) -> None:
    input_ids, labels = encode(MESSAGES)
    change(input_ids, labels)  # type: ignore[operator]
    problem = mask_problem(MESSAGES, input_ids, labels, decode)
    assert problem is not None
    assert names in problem


def test_where_ids_can_not_be_read_back_the_spans_are_counted() -> None:
    input_ids, labels = encode(MESSAGES)
    assert mask_problem(MESSAGES, input_ids, labels, lambda ids: None) is None
    assert mask_problem(MESSAGES[:3], input_ids, labels, lambda ids: None) is not None
