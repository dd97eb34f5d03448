"""OTLP protobuf: what is one, how requests are framed, and that its JSON is the specification's."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import pytest
from sources import read

from flywheel.formats import otlp_proto
from flywheel.formats.reader import Record
from flywheel.records import Reject


def request(name: str = "chat", trace: bytes = bytes(range(16))) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    body = ExportTraceServiceRequest()
    resource = body.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "agent"
    span = resource.scope_spans.add().spans.add(trace_id=trace, span_id=b"\x01" * 8, name=name)
    span.start_time_unix_nano = 1_796_062_483_132_860_919
    return body.SerializeToString()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def test_a_request_is_the_json_of_the_specification() -> None:
    (record,) = otlp_proto.records(io.BytesIO(request()))
    assert isinstance(record, Record)
    (span,) = record.value["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["traceId"] == bytes(range(16)).hex()
    assert span["spanId"] == "01" * 8
    assert span["startTimeUnixNano"] == "1796062483132860919"
    assert (record.offset, record.length) == (0, len(request()))


@pytest.mark.parametrize("prefix", [lambda n: struct.pack(">I", n), varint], ids=["fixed", "varint"])
def test_runs_of_requests_after_their_length(prefix: object) -> None:
    bodies = [request("a"), request("b"), request("c")]
    data = b"".join(prefix(len(body)) + body for body in bodies)  # type: ignore[operator]
    assert otlp_proto.looks_like(data[:200])
    found = list(otlp_proto.records(io.BytesIO(data)))
    assert [data[r.offset : r.offset + r.length] for r in found if isinstance(r, Record)] == bodies
    *whole, last = otlp_proto.records(io.BytesIO(data[:-5]))
    assert len(whole) == 2
    assert isinstance(last, Reject)
    assert last.code == "damaged_protobuf"
    assert last.byte_offset + last.byte_len == len(data) - 5


def test_no_other_file_looks_like_it(samples: Path) -> None:
    for path in samples.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                assert otlp_proto.looks_like(file.read(1 << 16)) == (path.suffix == ".pb"), path.name
    for text in (b"", b"\n", b"\n{\n  1", b"\n\n\n# notes\n", b"\n\x0a\x0a\x0a", bytes(range(64)), b"\x00" * 64, b"{}"):
        assert not otlp_proto.looks_like(text)


def test_protobuf_and_json_give_the_same_trajectories(samples: Path) -> None:
    """One run, exported in three encodings: equal rows but for the positions they were read at."""
    pairs = [("traceloop_openai_0.62.4_traces", "protojson_b64ids.jsonl"), ("genai_openai_1.3b0_logs", "otlp.jsonl")]
    for name, suffix in pairs:
        binary = read((samples / "otlp" / f"{name}_01.pb").read_bytes())
        text = read((samples / "otlp" / f"{name}.{suffix}").read_bytes())
        assert binary.fragments == text.fragments
        assert len(binary.fragments) == 4


def test_damaged_bytes_are_refused_and_never_raise() -> None:
    body = request()
    for at in range(len(body)):
        data = body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :]
        outcome = read(data)
        assert outcome.n_records >= 1
        assert json.dumps([reject.code for reject in outcome.rejects])
