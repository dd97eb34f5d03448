"""YAML cassettes of recorded HTTP calls (VCR, pytest-recording, vcrpy) as records: one a call, request and response.

Scalars keep their spelling: texts stay texts, also those that look like dates; whole numbers, true, false and null are
what YAML has them be. A `!!binary` body becomes `{base64_string: ...}`, as cassettes in JSON write it.

Not covered: YAML that is no cassette; aliases (`*name`), which a few bytes of can stand for gigabytes; files over
`LARGEST` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from flywheel.formats.parse import MAX_DEPTH, dumps
from flywheel.formats.reader import Record
from flywheel.records import Reject

LARGEST = 64 * 2**20
_BEGIN = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:---[^\n]*\n|#[^\n]*\n|version:[^\n]*\n|\r?\n)*interactions:[ \t]*(?:\r?\n|\[)"
)


def looks_like(first: bytes) -> bool:
    """Whether the bytes begin as a cassette does."""
    return _BEGIN.match(first) is not None


def records(file: BinaryIO) -> Iterator[Record | Reject]:
    """One record an interaction; one Reject of the whole where it is no YAML that is read here."""
    import yaml

    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        size = file.seek(0, 2)
        yield _refused(size, "record_too_large", f"a cassette of {size} bytes; at most {LARGEST} can be held")
        return
    try:
        problem = _problem(data)
        document = None if problem else yaml.load(data, Loader=_loader())
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        yield _refused(len(data), "invalid_yaml", f"not YAML: {type(error).__name__}{where}")
        return
    if problem:
        yield _refused(len(data), *problem)
        return
    calls = document.get("interactions") if isinstance(document, dict) else None
    for ix, call in enumerate(calls if isinstance(calls, list) else [document]):
        raw = dumps(call).encode("utf-8", "surrogatepass")
        yield Record(ix=ix, offset=0, length=0, value=call, raw=raw)


def _refused(size: int, code: str, message: str) -> Reject:
    return Reject(record_ix=0, byte_offset=0, byte_len=size, code=code, message=message)


def _problem(data: bytes) -> tuple[str, str] | None:
    """What must not be built: aliases, and nesting that recursion can't follow. Errors: yaml.YAMLError."""
    import yaml

    depth = 0
    for event in yaml.parse(data, Loader=_parser()):
        if isinstance(event, yaml.AliasEvent):
            return "yaml_alias", "YAML with aliases is not read; write the cassette without them"
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                return "too_deep", f"nested deeper than {MAX_DEPTH} levels"
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
    return None


def _parser() -> Any:
    """The parser in C where PyYAML has it."""
    import yaml

    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _loader() -> Any:
    """A loader that makes nothing but texts, whole numbers, booleans, nulls, lists and objects."""
    base = _parser()
    loader: Any = type("CassetteLoader", (base,), {})
    kinds: tuple[tuple[str, str, list[str], Any], ...] = (
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""], lambda text: None),
        ("bool", r"^(?:true|True|false|False)$", list("tTfF"), lambda text: text.lower() == "true"),
        ("int", r"^(?:0|-?[1-9][0-9]{0,18})$", list("-0123456789"), int),
    )
    for name, pattern, begins, make in kinds:
        tag = f"tag:yaml.org,2002:{name}"
        loader.add_implicit_resolver(tag, re.compile(pattern), begins)
        loader.add_constructor(tag, lambda self, node, make=make: make(node.value))
    loader.add_constructor(
        "tag:yaml.org,2002:binary", lambda self, node: {"base64_string": "".join(node.value.split())}
    )
    return loader
