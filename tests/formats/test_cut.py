"""Erasure's cut: refused records that name the user go, wherever they stand."""

from __future__ import annotations

from sources import USER, jsonl
from test_archive import CHAT, zipped

from flywheel.formats.cut import find_records
from flywheel.formats.reader import Source

SOURCE = Source(source_id="s", uri="x")


def test_a_refused_line_that_names_the_user_is_cut_and_one_that_does_not_stays() -> None:
    data = CHAT + b'{"of": "user-1"\n' + b'{"of": "user-2"\n' + jsonl({"messages": [USER]})
    cut = find_records(lambda: iter((data,)), SOURCE, (), (b"user-1",))
    assert ([data[at : at + n] for at, n in cut.ranges], cut.whole) == ([b'{"of": "user-1"'], False)


def test_an_archive_with_a_refused_record_that_names_the_user_goes_as_a_whole() -> None:
    data = zipped(("a.jsonl", CHAT + b'{"of": "user-1"\n'))
    assert find_records(lambda: iter((data,)), SOURCE, (), (b"user-1",)).whole
    assert not find_records(lambda: iter((data,)), SOURCE, (), (b"user-2",)).whole
