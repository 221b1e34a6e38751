"""Configurations that a user gives to a live experiment: `{"params": {...}}`, or a list of such."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

import search.mistakes
from search.mistakes import parse
from search.space.space import Params
from service.errors import Invalid
from service.specification.documents import mistakes_in_values
from service.specification.mistakes import readable

MAX_GIVEN = 1000
"""At once; another call takes more."""


class Given(BaseModel):
    """A configuration to be tried next."""

    model_config = ConfigDict(extra="forbid")

    params: dict[str, JsonValue] = Field(description="a value for each parameter that exists in this configuration")


_GIVEN: TypeAdapter[Given] = TypeAdapter(Given)
_SEVERAL: TypeAdapter[list[Given]] = TypeAdapter(list[Given])


def parse_given(document: Any) -> list[Params]:
    """Whether they suit the experiment's space is another question. Raises Invalid with every mistake."""
    mistakes = mistakes_in_values(document)
    if not mistakes and isinstance(document, list) and not 1 <= len(document) <= MAX_GIVEN:
        mistakes = [search.mistakes.Mistake((), f"must have 1 to {MAX_GIVEN} configurations, not {len(document)}")]
    found: list[Given] | None = None
    if not mistakes and isinstance(document, list):
        found, mistakes = parse(_SEVERAL, document)
    elif not mistakes:
        one, mistakes = parse(_GIVEN, document)
        found = [one] if one else None
    if found is None:
        raise Invalid([readable(mistake, list(Given.model_fields)) for mistake in mistakes])
    return [one.params for one in found]
