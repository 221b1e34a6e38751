"""From a request's body to a specification, or to every mistake in it at once."""

import json
import re
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter

import search.mistakes
from search.mistakes import parse
from service.errors import BadRequest, Invalid, Mistake
from service.spec.models import ExperimentSpec

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads 1e-4 as text; people mean the number."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read_document(body: bytes, *, is_yaml: bool) -> Any:
    """Raises BadRequest when the body is not YAML, or not JSON."""
    try:
        return yaml.load(body, _Loader) if is_yaml else json.loads(body)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        language = "YAML" if is_yaml else "JSON"
        hint = "" if is_yaml else " (send YAML with Content-Type: application/yaml)"
        raise BadRequest(f"the body is not {language}: {error}{hint}") from error


def parse_spec(document: Any) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field."""
    if not isinstance(document, dict):
        raise Invalid([Mistake("", "must be an object with name, space, objectives, …")])
    spec, mistakes = parse(_SPEC, document)
    if spec is None:
        raise Invalid([_readable(mistake) for mistake in mistakes])
    return spec


def _readable(mistake: search.mistakes.Mistake) -> Mistake:
    message = mistake.message.replace("Input should", "should")
    known = _known_fields(mistake.path[:-1]) if message == "unknown field" else []
    return Mistake(_path(mistake.path), f"{message}; known here: {', '.join(known)}" if known else message)


def _path(place: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in place)


def _known_fields(parent: tuple[str | int, ...]) -> list[str]:
    model: Any = ExperimentSpec
    for part in parent:
        field = model.model_fields.get(part) if _is_model(model) else None
        model = field.annotation if field else None
    return sorted(model.model_fields) if _is_model(model) else []


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)
