"""What is supervised: the assistant's words and where it stopped, never a prompt."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import TEMPLATE, make_tiny_policy

from flywheel.environment.policy import ScriptedPolicy
from flywheel.errors import PolicyError, TrainingError
from flywheel.trainers import open_tokenizer
from flywheel.trainers.tokenizer import IGNORED, HfTokenizer, WordTokenizer

CHAT = (
    {"role": "system", "content": "Reply with JSON"},
    {"role": "user", "content": "order A-1042"},
    {"role": "assistant", "content": '{"order_id": "A-1042"}'},
    {"role": "user", "content": "and C-0007 é ✓"},
    {"role": "assistant", "content": '{"order_id": "C-0007"}'},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_policy(tmp_path_factory.mktemp("tiny") / "policy")


@pytest.mark.model
def test_labels_are_the_answers_and_their_stop_tokens(folder: Path) -> None:
    tokenizer = open_tokenizer(folder)
    assert isinstance(tokenizer, HfTokenizer)
    ids, labels = tokenizer.encode_chat(CHAT)
    assert len(ids) == len(labels)
    assert all(label in (IGNORED, token) for token, label in zip(ids, labels, strict=True))
    trained = tokenizer.tokenizer.decode([label for label in labels if label != IGNORED])
    assert trained == '{"order_id": "A-1042"}<|im_end|>{"order_id": "C-0007"}<|im_end|>'
    assert labels.count(tokenizer.eos) == 2
    assert labels[-1] == IGNORED, "the line feed after the last stop token is the template's, not the policy's"
    whole = tokenizer.tokenizer.apply_chat_template(list(CHAT), tokenize=True, return_dict=True)["input_ids"]
    assert ids == list(whole)


@pytest.mark.model
def test_a_chat_without_an_answer_trains_nothing(folder: Path) -> None:
    ids, labels = open_tokenizer(folder).encode_chat(CHAT[:2])
    assert set(labels) == {IGNORED}
    assert ids


@pytest.mark.model
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (TEMPLATE.replace("message['content'] +", "(message['content'] if loop.last else '...') +"), "message 2 of 5"),
        (TEMPLATE.replace("'<|im_end|>' + '\n'", "'\n'"), "never ends it"),
    ],
    ids=["rewrites earlier turns", "no stop token"],
)
def test_a_template_that_would_mislabel_is_refused(folder: Path, template: str, reason: str) -> None:
    tokenizer = HfTokenizer.open(folder)
    tokenizer.tokenizer.chat_template = template
    with pytest.raises(TrainingError, match=reason):
        tokenizer.encode_chat(CHAT)


@pytest.mark.model
def test_an_answer_that_melts_into_the_prompt_is_refused(folder: Path) -> None:
    tokenizer = HfTokenizer.open(folder)
    tokenizer.tokenizer.chat_template = TEMPLATE.replace("assistant\n' }}", "assist' }}")
    with pytest.raises(TrainingError, match="does not preserve prefixes"):
        tokenizer.encode_chat(CHAT)


@pytest.mark.model
def test_a_chat_that_opens_with_an_answer_trains_only_what_was_asked(folder: Path, tmp_path: Path) -> None:
    ScriptedPolicy(tasks={}).save(tmp_path)
    for tokenizer in (open_tokenizer(folder), open_tokenizer(tmp_path)):
        for count in (1, 4):
            _, labels = tokenizer.encode_chat(CHAT[2:][:count])
            assert labels.count(tokenizer.eos) == (1 if count > 2 else 0)


def test_words_for_the_double(tmp_path: Path) -> None:
    ScriptedPolicy(tasks={}).save(tmp_path)
    tokenizer = open_tokenizer(tmp_path)
    assert isinstance(tokenizer, WordTokenizer)
    ids, labels = tokenizer.encode_chat(CHAT)
    assert labels.count(tokenizer.eos) == 2
    assert [token for token in labels if token != IGNORED] == [*ids[10:13], *ids[20:23]]
    assert all(0 <= token < 2**31 for token in ids)
    assert tokenizer.encode_chat(CHAT) == (ids, labels)
    silent = [CHAT[1], {"role": "assistant", "content": None}]
    assert tokenizer.encode_chat(silent)[1] == [*[IGNORED] * 5, tokenizer.eos]


def test_folders_without_a_tokenizer_are_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="holds no tokenizer"):
        open_tokenizer(tmp_path)
