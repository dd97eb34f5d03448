"""Media and long texts leave their rows for blobs, and come back character by character."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flywheel.formats.parse import dumps
from flywheel.formats.reader import Source
from flywheel.formats.sniff import Reading, open_readings
from flywheel.records import Blob, Fragment, Step, ToolCall, Trajectory
from flywheel.trajectory.outofline import LONG, externalise, internalise
from flywheel.trajectory.redact import Redaction

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
PNG64 = base64.b64encode(PNG).decode()
WAV64 = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(range(64))).decode()
RAW64 = base64.b64encode(bytes(range(100, 200))).decode()  # nothing in it says what it is
HEAD = Trajectory(
    trajectory_id="t",
    content_sha256="",
    source_id="s",
    source_record_ix=0,
    format="f",
    n_steps=1,
    content_complete=True,
)
STEP = Step(trajectory_id="t", step_ix=0, role="user", content="look", content_state="present")
CALL = ToolCall(trajectory_id="t", step_ix=0, call_ix=0, args_state="ok", result_state="ok")

PARTS = [
    ("image/png", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG64}", "detail": "low"}}),
    ("image/png", {"type": "input_image", "image_url": f"data:image/png;base64,{PNG64}"}),
    ("audio/wav", {"type": "input_audio", "input_audio": {"data": WAV64, "format": "wav"}}),
    ("audio/mpeg", {"type": "input_audio", "input_audio": {"format": "mp3", "data": RAW64}}),
    ("application/pdf", {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{RAW64}"}}),
    ("image/png", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64}}),
    ("application/pdf", {"type": "document", "source": {"data": RAW64, "media_type": "application/pdf"}}),
    ("image/jpeg", {"inlineData": {"mimeType": "image/jpeg", "data": RAW64}}),
    ("video/mp4", {"type": "blob", "mime_type": "video/mp4", "modality": "video", "content": RAW64}),
    ("image/png", {"type": "image", "data": PNG64, "mimeType": "image/png"}),
    ("image/png", {"type": "image", "image": PNG64}),
]


def fragment(**step: Any) -> Fragment:
    return Fragment(key="t", record_ix=0, trajectory=HEAD, steps=(replace(STEP, **step),))


@pytest.mark.parametrize(("mime", "part"), PARTS)
def test_media_of_every_api_become_blobs(mime: str, part: dict[str, Any]) -> None:
    inline = fragment(parts=dumps([{"type": "text", "text": "see"}, part]))
    outside = externalise(inline)
    (blob,) = outside.blobs
    assert (blob.mime, blob.bytes, blob.n_refs) == (mime, len(blob.data), 1)
    assert base64.b64encode(blob.data).decode() in (inline.steps[0].parts or "")
    assert base64.b64encode(blob.data).decode() not in repr(outside.steps)
    assert blob.sha256 in json.dumps(json.loads(outside.steps[0].parts or ""))
    assert externalise(outside) == outside
    assert internalise(outside) == inline


def test_the_same_bytes_are_kept_once_wherever_they_stand() -> None:
    parts = dumps([PARTS[0][1], PARTS[5][1]])
    call = replace(CALL, result_parts=parts, extra=dumps({"shot": f"data:image/png;base64,{PNG64}"}))
    both = replace(fragment(parts=parts), tool_calls=(call,))
    outside = externalise(both)
    assert [(blob.data, blob.n_refs) for blob in outside.blobs] == [(PNG, 5)]
    assert internalise(outside) == both


def test_what_is_no_medium_stays() -> None:
    words = dumps([{"type": "text", "content": "abcdefghijklmnopqrst", "format": "markdown"}])
    odd = dumps([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG64[:-1]}}])
    key = dumps({f"data:image/png;base64,{PNG64}": 1})
    for parts in (words, odd, key, '[{"image_url":"https://example.com/base64,a.png"}]'):
        assert externalise(fragment(parts=parts)) == fragment(parts=parts)


@pytest.mark.parametrize("column", ["content", "reasoning"])
def test_long_texts_show_their_head_and_tail(column: str) -> None:
    text = "".join(f"line {n} \ud800 é\n" for n in range(90_000))
    inline = fragment(**{column: text})
    outside = externalise(inline)
    shown = getattr(outside.steps[0], column)
    assert len(shown) < 10_000
    assert shown.startswith("line 0 ")
    assert shown.endswith("line 89999 \ud800 é\n")
    assert outside.blobs[0].sha256 in shown
    assert outside.steps[0].content_state == ("external" if column == "content" else "present")
    assert externalise(outside) == outside
    assert internalise(outside) == inline


@pytest.mark.parametrize(
    "value",
    [
        {"log": 'he said "\\x"\n' * 200_000, "n": 1.10, "short": "é" * 99},
        {f"key {n}": f"value {n}" for n in range(80_000)},
        ["y" * (LONG + 1)],
    ],
)
def test_long_json_stays_json(value: Any) -> None:
    inline = fragment(extra=dumps(value), raw=dumps(value))
    outside = externalise(inline)
    assert len(outside.steps[0].extra or "") < LONG
    json.loads(outside.steps[0].extra or "")
    assert {blob.n_refs for blob in outside.blobs} == {2}
    assert internalise(outside) == inline


def test_blobs_may_lie_elsewhere_and_a_missing_one_leaves_its_reference() -> None:
    inline = fragment(parts=dumps([PARTS[0][1]]))
    outside = externalise(inline)
    stored = {blob.sha256: blob.data for blob in outside.blobs}
    bare = replace(outside, blobs=())
    assert internalise(bare) == bare
    assert internalise(bare, stored) == inline


def test_round_trips_of_anything() -> None:
    rng = random.Random(4)
    other = Blob(sha256="0" * 64, bytes=1, mime="text/plain", data=b"x", n_refs=1)
    leaves: list[Any] = [part for _, part in PARTS]
    leaves += [1, None, "", 'a "quoted" \\ text', '{"blob":"' + "0" * 64 + '"}', "z" * 70_000, {"k": ["é", "\ud800"]}]
    for _ in range(60):
        texts = [dumps([rng.choice(leaves) for _ in range(rng.randrange(1, 30))]) for _ in range(4)]
        call = replace(CALL, result_parts=texts[0], args_raw=texts[1] * rng.choice((1, 1, 9)), extra=texts[2])
        inline = replace(fragment(parts=texts[0], raw=texts[3]), tool_calls=(call,), blobs=(other,))
        outside = externalise(inline)
        assert internalise(outside) == inline
        assert externalise(outside) == outside
        for text in (outside.steps[0].parts, outside.steps[0].raw):
            json.loads(text or "")


@pytest.mark.parametrize(
    ("name", "mime"),
    [
        ("openai_chat/multimodal_messages.json", "image/png"),
        ("openai_responses/nemo_gym_image_tools.jsonl", "image/jpeg"),
        ("inspect/log_images.json", "image/png"),
    ],
)
def test_real_multimodal_traces_survive_redaction_and_the_round_trip(samples: Path, name: str, mime: str) -> None:
    data = (samples / name).read_bytes()
    found = 0
    for opened in open_readings(lambda: iter([data]), Source(source_id="s", uri=name), "auto"):
        assert isinstance(opened, Reading), opened
        for item in opened.items():
            if not isinstance(item, Fragment):
                continue
            clean = Redaction(key=b"k").fragment(item)
            outside = externalise(clean)
            found += sum(blob.mime == mime for blob in outside.blobs)
            rows = repr([outside.steps, outside.tool_calls])
            assert "iVBORw0KGgo" not in rows
            assert "/9j/4AAQ" not in rows
            assert internalise(outside) == clean
    assert found
