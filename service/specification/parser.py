"""From a document to an `ExperimentSpec`, or to all of its mistakes."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter

from search.mistakes import Mistake, Path, parse
from service.errors import Invalid
from service.specification.models import ExperimentSpec
from service.specification.number_spellings import as_json_number, is_json_number

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)
_WANTS_NUMBER = re.compile("integer|number")


def parse_spec(document: Any) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field. `document` has passed `check_values`."""
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with name, space, objectives, …")])
    spec, mistakes = parse(_SPEC, document)
    if spec is None:
        known = [with_known_fields(mistake, _known_fields(mistake.path[:-1])) for mistake in mistakes]
        raise Invalid([_with_spelling(mistake, document) for mistake in known])
    if misspelled := list(_misspelled_numbers(document, spec.model_dump(mode="json"))):
        raise Invalid(misspelled)
    return spec


def _with_spelling(mistake: Mistake, document: Any) -> Mistake:
    """For text that means a number, the mistake with the number as JSON spells it; any other mistake unchanged."""
    value = document
    for part in mistake.path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return mistake
    number = as_json_number(value) if isinstance(value, str) else None
    if number is None or not _WANTS_NUMBER.search(mistake.message):
        return mistake
    return Mistake(mistake.path, f"must be a number, and {value!r} is text: write {number}")


def _misspelled_numbers(document: Any, parsed: Any, path: Path = ()) -> Iterator[Mistake]:
    """Text that was parsed as a number though JSON has no such number: pydantic reads 0777 as 777, YAML 1.1 as 511."""
    if isinstance(document, dict) and isinstance(parsed, dict):
        for name in document.keys() & parsed.keys():
            yield from _misspelled_numbers(document[name], parsed[name], (*path, name))
    elif isinstance(document, list) and isinstance(parsed, list):
        for index, (inner, inner_parsed) in enumerate(zip(document, parsed, strict=False)):
            yield from _misspelled_numbers(inner, inner_parsed, (*path, index))
    elif isinstance(document, str) and type(parsed) in {int, float} and not is_json_number(document):
        number = as_json_number(document)
        remedy = f": write {number}" if number else ""
        yield Mistake(path, f"must be a number, and {document!r} is text{remedy}")


def with_known_fields(mistake: Mistake, known: Sequence[str]) -> Mistake:
    """For an unknown field, the mistake with the fields that exist at its place; any other mistake unchanged."""
    if not known or mistake.message != "unknown field":
        return mistake
    return Mistake(mistake.path, f"{mistake.message}; known here: {', '.join(known)}")


def _known_fields(parent: tuple[str | int, ...]) -> list[str]:
    model: Any = ExperimentSpec
    for part in parent:
        field = model.model_fields.get(part) if _is_model(model) else None
        model = field.annotation if field else None
    return sorted(model.model_fields) if _is_model(model) else []


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)
