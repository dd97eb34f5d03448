"""OTLP protobuf as records: each export request as the OTLP/JSON that the specification gives for it.

A file is one request (the body of an OTLP/HTTP post, a Kafka message) or a run of them, each after its length: four
bytes, big-endian (the collector's file exporter) or a varint (protobuf's own delimited form). Ids become hex,
nanoseconds text, enumerations their numbers.
Protobuf has no magic number, so `looks_like` walks the first bytes: every field has to be one that a request has there,
with the right wire type, and names have to be printable text. What no request can begin with is no request.

Not covered: what the spans mean (`otlp.py`); requests compressed one by one inside a file; fields that are newer than
the opentelemetry-proto package.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from flywheel.formats.reader import Record
from flywheel.formats.split import MAX_RECORD
from flywheel.records import Reject

_VARINT, _FIXED64, _LEN, _FIXED32 = 0, 1, 2, 5
_NAME: Mapping[int, Any] = {}  # a text: looked at, not into
_ANY: Mapping[int, Any] = {1: None, 2: _VARINT, 3: _VARINT, 4: _FIXED64, 5: None, 6: None, 7: None, 8: _VARINT}
_KEY_VALUE: Mapping[int, Any] = {1: _NAME, 2: _ANY, 3: _VARINT}
_RESOURCE: Mapping[int, Any] = {1: _KEY_VALUE, 2: _VARINT, 3: None}
_SCOPE: Mapping[int, Any] = {1: _NAME, 2: _NAME, 3: _KEY_VALUE, 4: _VARINT}
_SCOPED: Mapping[int, Any] = {1: _SCOPE, 2: None, 3: _NAME}
_REQUEST: Mapping[int, Any] = {1: {1: _RESOURCE, 2: _SCOPED, 3: _NAME, 1000: _SCOPED}}
"""How any of the three requests begins: field number -> its wire type, the fields inside it, or None for bytes."""
_IDS = ("traceId", "spanId", "parentSpanId")


class _Alien(ValueError):
    """The bytes are not what they were taken for."""


class _Cut(_Alien):
    """The bytes end in the middle of something: so do the first bytes of a file, wherever they were cut."""


def looks_like(first: bytes) -> bool:
    """Whether the bytes can be the beginning of an export request, or of a run of length-prefixed ones."""
    return _framing(first) is not None


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record a request, in order; a Reject of the rest where the file can't be read on."""
    framing, size = _framing(file.read(1 << 16)), file.seek(0, 2)
    file.seek(0)
    ix, at = 0, 0
    while at < size:
        try:
            start, length = (0, size) if framing == "bare" else _prefix(file, at, framing)
            if length > MAX_RECORD:
                raise _Alien(f"one request of {length} bytes; at most {MAX_RECORD} can be held")
            if start + length > size:
                raise _Alien(f"a request of {length} bytes is announced where {size - start} are left")
            file.seek(start)
            value = _decoded(file.read(length))
        except _Alien as error:
            yield Reject(
                record_ix=ix,
                byte_offset=at,
                byte_len=size - at,
                code="damaged_protobuf",
                message=f"the OTLP protobuf can't be read after {ix} requests: {error}",
            )
            return
        yield Record(ix=ix, offset=start, length=length, value=value)
        ix, at = ix + 1, start + length


def _framing(first: bytes) -> str | None:
    """bare|fixed|varint, whichever the first bytes can be; None if they can't be any."""
    if _fits(first):
        return "bare"
    if len(first) > 5 and first[0] <= MAX_RECORD >> 24 and _fits(first[4 : 4 + struct.unpack(">I", first[:4])[0]]):
        return "fixed"
    try:
        length, start = _varint(first, 0)
    except _Alien:
        return None
    return "varint" if length > 1 and _fits(first[start : start + length]) else None


def _prefix(file: BinaryIO, at: int, framing: str | None) -> tuple[int, int]:
    """(where the request at a prefix begins, its length)."""
    file.seek(at)
    prefix = file.read(10)
    if framing == "fixed":
        if len(prefix) < 4:
            raise _Cut("a length is cut off")
        return at + 4, struct.unpack(">I", prefix[:4])[0]
    length, start = _varint(prefix, 0)
    return at + start, length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(the number at a position, the position after it)."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise _Cut("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Alien("a number has no end")


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, bytes) of each field; the last may be cut off. Errors: _Alien where it's no protobuf."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in (_VARINT, _FIXED64, _LEN, _FIXED32):
            raise _Alien("a field has no number or an unknown type")
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire == _LEN:
            length, at = _varint(data, at)
        elif wire == _VARINT:
            _, end = _varint(data, at)
            length = end - at
        yield number, wire, data[at : at + length]
        at += length


def _fits(data: bytes) -> bool:
    """Whether it can be (the beginning of) a request that holds anything."""
    if data[:1] != b"\x0a":
        return False
    seen: set[str] = set()
    try:
        _walk(data, _REQUEST, seen)
    except _Cut:
        return bool(seen)
    except _Alien:
        return False
    return bool(seen)


def _walk(data: bytes, fields: Mapping[int, Any], seen: set[str]) -> None:
    for number, wire, part in _fields(data):
        if number not in fields:
            raise _Alien(f"no field {number} is expected here")
        inside = fields[number]
        if wire != (inside if isinstance(inside, int) else _LEN):
            raise _Alien(f"field {number} has the wrong type")
        if inside is _NAME:
            text = part.decode("utf-8", "ignore")
            if not text.isprintable() or len(text.encode()) < len(part) - 3:
                raise _Alien("a name is no text")
            seen.add("name")
        elif isinstance(inside, Mapping):
            _walk(part, inside, seen)


def _decoded(data: bytes) -> dict[str, Any]:
    """A request as OTLP/JSON. Errors: _Alien."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kinds: dict[str, Any] = {
        "spans": ExportTraceServiceRequest,
        "logs": ExportLogsServiceRequest,
        "metrics": ExportMetricsServiceRequest,
    }
    request = kinds[_kind(data)]()
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        raise _Alien("it does not decode as a request of traces, logs or metrics") from error
    value: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    _hex_ids(value)
    return value


def _kind(data: bytes) -> str:
    """What the request carries, by the fields of its first item: the three look alike until there."""
    for _, _, resource in _fields(data):
        for number, _, scoped in _fields(resource):
            if number != 2:
                continue
            for inner, _, item in _fields(scoped):
                if inner == 2:
                    return _kind_of_item({n: (wire, len(part)) for n, wire, part in _fields(item)})
    return "spans"


def _kind_of_item(fields: Mapping[int, tuple[int, int]]) -> str:
    wires = {number: wire for number, (wire, _) in fields.items()}
    if _FIXED64 in (wires.get(7), wires.get(8)) or fields.get(1) == (_LEN, 16):
        return "spans"  # start and end, or a trace id
    if _FIXED64 in (wires.get(1), wires.get(11)) or wires.get(8) == _FIXED32 or 1 not in wires:
        return "logs"  # time, observed time, flags
    return "metrics"


def _hex_ids(value: Any) -> None:
    """Ids as the specification wants them in JSON: hex, where protobuf's own mapping has base64."""
    for kind, items in (("Spans", "spans"), ("Logs", "logRecords"), ("Metrics", "")):
        for resource in value.get(f"resource{kind}", []):
            for scoped in resource.get(f"scope{kind}", []):
                for item in scoped.get(items, []):
                    for holder in (item, *item.get("links", [])):
                        for name in _IDS:
                            if name in holder:
                                holder[name] = base64.b64decode(holder[name]).hex()
