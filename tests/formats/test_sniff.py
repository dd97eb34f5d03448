"""The reader is chosen by content, or by name; what nobody reads is refused whole, with the right reason."""

from __future__ import annotations

import gzip

import pytest
from sources import USER, jsonl, read

from flywheel.errors import FormatError
from flywheel.formats.sniff import READERS

CHAT = {"messages": [USER]}
RUN = {"task_id": 0, "reward": 1.0, "info": {}, "traj": [USER], "trial": 0}
ATIF = {"schema_version": "ATIF-v1.4", "agent": {"name": "a"}, "steps": []}


@pytest.mark.parametrize(
    ("data", "name", "version"),
    [
        (jsonl(CHAT), "openai_chat", None),
        (jsonl(RUN), "tau_bench", None),
        (jsonl(ATIF), "atif", "ATIF-v1.4"),
        (jsonl({"messages": [], "id": "1"}), "openai_chat", None),
        (b"not json\n" * 20 + jsonl(CHAT), "openai_chat", None),
    ],
)
def test_by_content(data: bytes, name: str, version: str | None) -> None:
    outcome = read(data)
    assert (outcome.format, outcome.version) == (name, version)


def test_the_majority_decides_and_the_others_are_refused_one_by_one() -> None:
    outcome = read(jsonl(CHAT, RUN, {**CHAT, "id": "2"}))
    assert (outcome.format, len(outcome.fragments)) == ("openai_chat", 2)
    assert [reject.record_ix for reject in outcome.rejects] == [1]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (jsonl({"v": 1}, {"v": 2}), "unknown_format"),
        (b"<html><body>413</body></html>", "html"),
        (b"{'messages': [{'role': 'user', 'content': None}]}\n", "python_repr"),
        (b"[" * 5000 + b"]" * 5000, "too_deep"),
        (b'{"messages": [{"role": "user", "cont', "truncated_json"),
        (b"PAR1\x00\x01", "damaged_parquet"),
        (b"PK\x03\x04\x14\x00", "damaged_zip"),
        (b"\x28\xb5\x2f\xfd\x00", "unread_container"),
        (gzip.compress(b"x", mtime=0), "binary"),
    ],
)
def test_what_nobody_reads_is_refused_whole(data: bytes, code: str) -> None:
    outcome = read(data)
    (reject,) = outcome.rejects
    assert (reject.code, reject.byte_offset, reject.byte_len) == (code, 0, len(data))
    assert reject.message
    assert outcome.fragments == []


def test_by_name() -> None:
    assert read(jsonl(CHAT), "atif").format == "atif"
    assert [reject.code for reject in read(jsonl(CHAT, CHAT), "atif").rejects] == ["not_atif", "not_atif"]
    assert len(read(jsonl({"v": 1}, CHAT), "openai_chat").fragments) == 1
    with pytest.raises(FormatError, match=r"'parquet'.*atif.*openai_chat.*tau_bench"):
        read(jsonl(CHAT), "parquet")


def test_readers_have_names_of_their_own() -> None:
    names = [reader.name for reader in READERS]
    assert len(set(names)) == len(names)
