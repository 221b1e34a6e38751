"""From a document to an `ExperimentSpec`, or to all of its mistakes."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter

from search.mistakes import Mistake, parse
from service.errors import Invalid
from service.specification.models import ExperimentSpec

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


def parse_spec(document: Any) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field. `document` has passed `check_values`."""
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with name, space, objectives, …")])
    spec, mistakes = parse(_SPEC, document)
    if spec is None:
        raise Invalid([with_known_fields(mistake, _known_fields(mistake.path[:-1])) for mistake in mistakes])
    return spec


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
