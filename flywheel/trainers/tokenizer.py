"""From chat messages to token ids and labels: what is supervised is what the assistant said, and where it stopped.

`HfTokenizer` uses the chat template that the policy itself answers through, and checks on every row that the template
is prefix-preserving: the ids before an answer are exactly what the policy was given. `WordTokenizer` is for the
scripted double, so that a curriculum can be built without a model.
Not covered: truncation (a row is whole or dropped, which is curate's to say), tools, images.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from flywheel.errors import PolicyError, TrainingError

IGNORED = -100
"""The label of a token that is not supervised (torch's cross-entropy skips it)."""

Messages = Sequence[Mapping[str, Any]]


class Tokenizer(Protocol):
    """Chat messages to token ids."""

    @property
    def eos(self) -> int:
        """Id of the token that ends an assistant message."""
        ...

    def encode_chat(self, messages: Messages) -> tuple[list[int], list[int]]:
        """(input_ids, labels) of equal length; labels are IGNORED except assistant text and its stop token.

        An assistant message that opens the chat answers nothing and is not supervised.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str | None:
        """The text of the ids without special tokens, exactly; None where ids can't be read back."""
        ...


class WordTokenizer:
    """Words as hashes: enough to count, compare and mask. The ids mean nothing to any model."""

    eos = 0

    def encode_chat(self, messages: Messages) -> tuple[list[int], list[int]]:
        """Each message is its role, its words and the stop token."""
        ids: list[int] = []
        labels: list[int] = []
        for ix, message in enumerate(messages):
            words = [self._id(word) for word in str(message.get("content") or "").split()]
            said = [*words, self.eos]
            ids += [self._id(f"<{message['role']}>"), *said]
            labels += [IGNORED, *(said if message["role"] == "assistant" and ix else [IGNORED] * len(said))]
        return ids, labels

    def decode(self, ids: Sequence[int]) -> str | None:
        """None: a hash has no way back."""
        return None

    @staticmethod
    def _id(word: str) -> int:
        return (
            zlib.crc32(word.encode("utf-8", "surrogatepass")) % (2**31 - 1) + 1
        )  # 1 .. 2^31 - 1: fits int32, never the stop token


class HfTokenizer:
    """The tokenizer and chat template in a policy's folder."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @classmethod
    def open(cls, folder: Path) -> HfTokenizer:
        """Read the folder. Errors: PolicyError when there is no tokenizer or no chat template in it."""
        if not (folder / "tokenizer_config.json").is_file():
            problem = f"{folder} holds no tokenizer (no tokenizer_config.json): copy it from the base model"
            raise PolicyError(problem)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not tokenizer.chat_template:
            problem = f"the tokenizer in {folder} has no chat template: a policy needs one to be asked anything"
            raise PolicyError(problem)
        return cls(tokenizer)

    @property
    def eos(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def encode_chat(self, messages: Messages) -> tuple[list[int], list[int]]:
        """Errors: TrainingError naming the message whose prefix the template or the tokenizer rewrites."""
        ids = self._encode(messages, False)
        labels = [IGNORED] * len(ids)
        for ix, message in enumerate(messages):
            if message["role"] != "assistant" or ix == 0:  # a chat that opens with an answer asks for none
                continue
            asked = self._encode(messages[:ix], True)
            told = self._encode(messages[: ix + 1], False)
            if ids[: len(told)] != told or told[: len(asked)] != asked:
                problem = (
                    f"message {ix} of {len(messages)}: the chat template does not preserve prefixes, so its labels "
                    "would not be what the policy says; use a template that only appends"
                )
                raise TrainingError(problem)
            if self.eos not in told[len(asked) :]:
                problem = (
                    f"message {ix} of {len(messages)}: the template never ends it with {self.tokenizer.eos_token!r}"
                )
                raise TrainingError(problem)
            stop = len(told) - 1 - told[::-1].index(self.eos)  # after it the template may add a line feed, never said
            labels[len(asked) : stop + 1] = told[len(asked) : stop + 1]
        return ids, labels

    def decode(self, ids: Sequence[int]) -> str | None:
        """Special tokens are left out, nothing is tidied."""
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _encode(self, messages: Messages, answer_next: bool) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=answer_next
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
