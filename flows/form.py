"""Sections of flywheel.toml as forms of the Prefect UI.

`settings: Form[Train] = None` shows the fields of `[train]` with their meanings and bounds, all of them empty: what a
person fills in goes for this run, what is left empty is as flywheel.toml says. The defaults of the code would show
numbers that flywheel.toml has long replaced, and a plain `Train | None` hides the fields behind a switch.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import GetJsonSchemaHandler

from flywheel.config import Section


class EmptyFields:
    """Annotation of an optional section: in the JSON schema it is the section itself, without defaults."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference: dict[str, Any] = next(choice for choice in handler(core)["anyOf"] if "$ref" in choice)
        for field in handler.resolve_ref_schema(reference)["properties"].values():
            field.pop("default", None)
        return dict(reference)


SectionT = TypeVar("SectionT", bound=Section)
Form = Annotated[SectionT | None, EmptyFields()]
