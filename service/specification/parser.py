"""From a request's document to a specification, or to every mistake in it at once."""

from typing import Any

from pydantic import BaseModel, TypeAdapter

from search.mistakes import parse
from service.errors import Invalid, Mistake
from service.specification.documents import mistakes_in_values
from service.specification.mistakes import readable
from service.specification.models import ExperimentSpec

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


def parse_spec(document: Any) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field, and BadRequest for a document without end."""
    if not isinstance(document, dict):
        raise Invalid([Mistake("", "must be an object with name, space, objectives, …")])
    spec, mistakes = None, mistakes_in_values(document)
    if not mistakes:
        spec, mistakes = parse(_SPEC, document)
    if spec is None:
        raise Invalid([readable(mistake, _known_fields(mistake.path[:-1])) for mistake in mistakes])
    return spec


def _known_fields(parent: tuple[str | int, ...]) -> list[str]:
    model: Any = ExperimentSpec
    for part in parent:
        field = model.model_fields.get(part) if _is_model(model) else None
        model = field.annotation if field else None
    return sorted(model.model_fields) if _is_model(model) else []


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)
