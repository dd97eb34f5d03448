"""Cursor: a transcript without a word about its session."""

from __future__ import annotations

from dataclasses import replace

from sources import SOURCE, chunked, jsonl, read, read_chunks


def test_cursor_is_named_by_its_path() -> None:
    session = "0f6aa0f0-0000-4000-8000-000000000001"
    data = jsonl({"role": "user", "message": {"content": "hi"}})
    main = read_chunks(chunked(data), source=replace(SOURCE, uri=f"agent-transcripts/{session}/{session}.jsonl")).only
    child = read_chunks(chunked(data), source=replace(SOURCE, uri=f"x/{session}/subagents/s-1.jsonl")).only
    assert main.trajectory.session_id == session and child.trajectory.parent_trajectory_id == main.key
    assert read(data).only.trajectory.session_id is None


def test_cursor_lines_that_are_no_messages_are_events() -> None:
    line = {"role": "user", "message": {"content": "hi"}}
    ended = {"type": "turn_ended", "status": "error", "error": "rate limit"}
    outcome = read(jsonl(line, ended))
    assert not outcome.rejects and [step.role for step in outcome.only.steps] == ["user", "event"]
    assert (outcome.only.trajectory.end_reason, outcome.only.trajectory.error_message) == ("model_error", "rate limit")
    assert read(jsonl(line, {"odd": 1})).rejects[0].code == "not_cursor"
