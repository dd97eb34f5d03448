"""Droid: sessions with what is no message."""

from __future__ import annotations

import json

from sources import jsonl, read


def test_droid_keeps_what_is_no_message() -> None:
    head = {"type": "session_start", "id": "0f6aa0f0-0000-4000-8000-000000000001", "title": "t", "cwd": "/w"}
    said = {"type": "message", "id": "a", "message": {"role": "user", "content": "hi"}}
    todo = {"type": "todo_state", "id": "b", "parentId": "a", "todos": [{"content": "x"}]}
    only = read(jsonl(head, said, todo)).only
    assert [step.role for step in only.steps] == ["user", "event"]
    assert json.loads(only.steps[1].raw or "")["todos"] == [{"content": "x"}]
