"""Phoenix: spans from its API and its tables, annotations, and what instrumentations write."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from sources import jsonl, read

from flywheel.records import Attachment

TRACE = "1b9e470ebdad8d5e45ba416dc83837f1"


def span(span_id: str, kind: str, parent: str | None = None, **attributes: Any) -> dict[str, Any]:
    """As GET /v1/projects/{p}/spans gives it; `llm__x` stands for the attribute `llm.x`."""
    return {
        "id": "U3Bhbjox",
        "name": kind.lower(),
        "context": {"trace_id": TRACE, "span_id": span_id * 16},
        "span_kind": kind,
        "parent_id": parent and parent * 16,
        "start_time": f"2026-11-30T18:16:5{ord(span_id) - 96}.076744+00:00",
        "end_time": f"2026-11-30T18:16:5{ord(span_id) - 96}.176744+00:00",
        "status_code": "OK",
        "status_message": "",
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "events": [],
    }


CALL = {
    "llm.input_messages.0.message.role": "user",
    "llm.input_messages.0.message.content": "u",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"q": ',
    "llm.token_count.prompt": 136,
    "llm.token_count.completion": 51,
    "llm.token_count.prompt_details.cache_read": 64,
    "llm.cost.total": 0.25,
}


def test_the_data_frame_of_the_samples(samples: Path) -> None:
    fragments = read((samples / "openinference" / "phoenix_spans_dataframe_jsonified.parquet").read_bytes()).fragments
    assert len(fragments) == 6
    assert sum(len(fragment.spans) for fragment in fragments) == 19
    image, weather, _, limited, bad, _ = fragments
    assert json.loads(image.steps[0].parts or "")[1]["type"] == "image_url"
    assert [step.role for step in weather.steps] == ["user", "assistant", "tool", "tool", "assistant"]
    assert (weather.trajectory.input_tokens, weather.trajectory.output_tokens) == (269, 102)
    assert (weather.trajectory.session_id, weather.trajectory.user_id) == ("sess-4", "u_9")
    assert (weather.trajectory.tags, weather.trajectory.tenant) == (("prod", "v1"), "acme")
    assert limited.trajectory.end_reason == "model_error"
    assert (bad.tool_calls[0].args_state, bad.tool_calls[0].result_state) == ("invalid_json", "error")


def test_pages_lines_nested_attributes_and_csv_are_one_trace() -> None:
    spans = [span("a", "AGENT", session__id="s1"), {**span("b", "LLM", "a"), "attributes": CALL}]
    lines = read(jsonl(*spans))
    assert (lines.format, lines.rejects) == ("openinference", [])
    fragment = lines.only
    assert [(step.role, step.sampled) for step in fragment.steps] == [("user", None), ("assistant", True)]
    assert (fragment.tool_calls[0].call_id, fragment.tool_calls[0].args_state) == ("c1", "invalid_json")
    t = fragment.trajectory
    assert (t.session_id, t.input_tokens, t.cache_read_tokens, float(t.cost_usd or 0)) == ("s1", 136, 64, 0.25)
    nested = {
        "llm": {
            "input_messages": [{"message": {"role": "user", "content": "u"}}],
            "output_messages": [{"message.role": "assistant", "message.tool_calls": [{"tool_call": {
                "id": "c1", "function": {"name": "find", "arguments": '{"q": '}}}]}],
            "token_count": {"prompt": 136.0, "completion": 51.0, "prompt_details": {"cache_read": 64.0}},
            "cost": {"total": 0.25},
        }
    }  # fmt: skip
    for other in (jsonl({"data": spans, "next_cursor": None}), jsonl(spans[0], {**spans[1], "attributes": nested})):
        again = read(other).only
        assert (again.steps, again.tool_calls) == (fragment.steps, fragment.tool_calls)


def test_retrieved_documents_and_embeddings_are_kept() -> None:
    fragment = read(
        jsonl(
            span("a", "CHAIN", input__value="question", output__value="answer"),
            span("b", "RETRIEVER", "a", input__value="q", **{"retrieval.documents.0.document.content": "d0",
                 "retrieval.documents.0.document.score": 0.5}),
            span("c", "EMBEDDING", "a", embedding__model_name="e", llm__token_count__prompt=7),
        )
    ).only  # fmt: skip
    assert [(step.role, step.content) for step in fragment.steps] == [
        ("user", "question"), ("event", "q"), ("event", None), ("assistant", "answer"),
    ]  # fmt: skip
    assert json.loads(fragment.steps[1].parts or "") == [{"document": {"content": "d0", "score": 0.5}}]
    assert fragment.trajectory.input_tokens == 7


def test_a_list_in_one_span_and_a_scalar_in_another() -> None:
    odd = [
        span("a", "LLM", metadata=[1, "x", None]),
        span("b", "LLM", metadata="x"),
        span("c", "LLM", metadata={"n": 1}),
    ]
    (fragment,) = read(jsonl(*odd)).fragments
    kept = [json.loads(row.attributes or "") for row in fragment.spans]
    assert [kept[0]["metadata"], kept[1]["metadata"], kept[2]["metadata.n"]] == [[1, "x", None], "x", 1]


def test_annotations_name_their_span_trace_or_session() -> None:
    base = {"annotator_kind": "HUMAN", "name": "thumbs", "result": {"label": "👎", "score": 0.0, "explanation": "no"}}
    judged = {"annotator_kind": "LLM", "name": "toxicity", "result": {"label": None, "score": 0.9}, "trace_id": TRACE}
    page = {"data": [{**base, "span_id": "b" * 16}, judged, {**base, "session_id": "s1"}]}
    outcome = read(jsonl(page))
    assert outcome.rejects == []
    (attachment,) = outcome.attachments
    thumbs, toxicity, session = attachment.outcomes
    assert (thumbs.target_kind, thumbs.native_target_id, thumbs.polarity) == ("span", "b" * 16, -1)
    assert (thumbs.value_num, thumbs.value_text, thumbs.explanation) == (0.0, "👎", "no")
    assert (toxicity.native_target_id, toxicity.source_kind, toxicity.polarity) == (TRACE, "llm_judge", None)
    assert (session.target_kind, session.session_id, session.native_target_id) == ("session", "s1", None)


def scores(attachments: list[Attachment]) -> list[Any]:
    found = [outcome for attachment in attachments for outcome in attachment.outcomes]
    return [(o.native_target_id, o.value_num, o.value_text, o.polarity) for o in found]


def test_annotations_are_the_same_as_lines_and_as_a_table(samples: Path) -> None:
    folder = samples / "openinference"
    lines = read((folder / "phoenix_span_annotations.jsonl").read_bytes())
    table = read((folder / "phoenix_span_annotations_jsonified.parquet").read_bytes())
    assert scores(lines.attachments) == scores(table.attachments)
    assert len(lines.attachments) == 3


def test_evaluations_of_a_data_frame_as_csv() -> None:
    text = io.StringIO("context.span_id,label,score,explanation\nbbbbbbbbbbbbbbbb,correct,1.0,\n")
    outcome = read(text.getvalue().encode())
    (attachment,) = outcome.attachments
    assert attachment.outcomes[0].polarity == 1
    assert attachment.outcomes[0].explanation is None
