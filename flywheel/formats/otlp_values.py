"""The values of OTLP/JSON as plain values: lists of typed attributes to objects, in any spelling of the field names.

What an object can't hold (a second attribute of one name, an attribute without a name) is given back beside it.

Not covered: protobuf (`otlp_proto.py` makes OTLP/JSON of it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flywheel.formats.parse import NumberText
from flywheel.formats.reader import as_dict, as_list
from flywheel.formats.spans import hex_id

_UPPER = re.compile(r"(?<!^)([A-Z])")
_DIGITS = re.compile(r"-?\d{1,18}")


def snake(name: str) -> str:
    """`traceId` as `trace_id`."""
    return _UPPER.sub(r"_\1", name).lower()


def known_as(*names: str) -> frozenset[str]:
    """The names in both spellings."""
    return frozenset((*names, *map(snake, names)))


def get(value: Mapping[str, Any], name: str) -> Any:
    """A member under its camelCase or snake_case name."""
    return value[name] if name in value else value.get(snake(name))


def flat(attributes: Any) -> tuple[dict[str, Any], list[Any]]:
    """(attributes as an object, what it can't hold). Some exporters write an object themselves: it's taken as it is."""
    if isinstance(attributes, dict):
        return attributes, []
    found: dict[str, Any] = {}
    odd: list[Any] = [] if isinstance(attributes, list) or attributes is None else [attributes]
    for item in as_list(attributes):
        body = as_dict(item)
        key = body.get("key")
        if not isinstance(key, str) or key in found:
            odd.append(item)
        else:
            found[key] = plain(body.get("value"))
    return found, odd


def plain(value: Any) -> Any:
    """An AnyValue as a plain one; what is none stays as it is."""
    body = as_dict(value)
    if len(body) != 1:
        return value if body else None
    name, inner = next(iter(body.items()))
    if name in ("Value", "value"):  # the collector's own structs, dumped
        return plain(inner)
    kind = name[:1].lower() + name[1:].replace("_v", "V")
    if kind == "intValue":
        return int(inner) if isinstance(inner, str) and _DIGITS.fullmatch(inner) else inner
    if kind == "doubleValue" and isinstance(inner, str):
        return NumberText(inner) if inner in ("NaN", "Infinity", "-Infinity") else inner
    if kind in ("stringValue", "boolValue", "doubleValue"):
        return inner
    if kind == "bytesValue":
        return {"bytesValue": inner}
    if kind in ("arrayValue", "kvlistValue"):
        items = as_list(as_dict(inner).get("values")) if isinstance(inner, dict) else as_list(inner)
        return [plain(item) for item in items] if kind == "arrayValue" else _object(items)
    return value


def _object(items: list[Any]) -> Any:
    found, odd = flat(items)
    return {**found, "flywheel.rest": odd} if odd else found


def plain_links(links: Any) -> list[Any]:
    """Links with hex ids and plain attributes."""
    found = []
    for link in as_list(links):
        body = dict(as_dict(link))
        for name in ("traceId", "spanId", "trace_id", "span_id"):
            if name in body:
                body[name] = hex_id(body[name])
        if "attributes" in body:
            body["attributes"], odd = flat(body["attributes"])
            body |= {"flywheel.rest": odd} if odd else {}
        found.append(body)
    return found
