"""Completes FastAPI's OpenAPI document with what FastAPI cannot know: hand-written bodies, and common errors."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.api.experiments.replay import ReplayRequest
from service.api.http.error_responses import InvalidRequest, Problem, error_responses, merged
from service.api.openapi.elastic_trainer import add_elastic_trainer
from service.api.openapi.examples import BODIES, PARAMETERS
from service.errors import (
    BadRequest,
    Busy,
    CrossOrigin,
    Forbidden,
    ForeignHost,
    HeaderTooLarge,
    InsufficientStorage,
    InternalError,
    Invalid,
    RequestTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnsupportedMediaType,
)
from service.specification.changeable_fields import CHANGEABLE
from service.specification.enqueued_params import EnqueuedTrial
from service.specification.models import AUTO, ExperimentSpec
from service.specification.preview import DEFAULT_SAMPLES, MAX_SAMPLES
from trainer.wire import Claim, DeletionResults, Finish, Heartbeat, Instance, LogChunk, Reports, WorkerRange

_REQUESTS: list[type[BaseModel]] = [ExperimentSpec, EnqueuedTrial, ReplayRequest]
_REQUESTS += [Claim, DeletionResults, Finish, Heartbeat, Instance, LogChunk, Reports, WorkerRange]
_PREVIEWED = ("space", "forbid", "search", "objectives", "constraints", "early_stopping", "limits")

_ALWAYS = error_responses(
    BadRequest, ForeignHost, RequestTimeout, Invalid, HeaderTooLarge, InternalError, Unavailable, Busy
)
_WITH_TOKEN = error_responses(Unauthorized)
_WITH_ROLE = error_responses(Forbidden)
_CHANGING = error_responses(CrossOrigin, UnsupportedMediaType, InsufficientStorage)
_WITH_BODY = error_responses(TooLarge)
_LOCATION = {"Location": {"description": "the path of what was created", "schema": {"type": "string"}}}


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """Changes FastAPI's document, and returns it."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for name, schema in sorted(_request_schemas().items()):
        schemas.setdefault(name, schema)
    for name, schema in schemas.items():
        schema.setdefault("description", "One page of a list." if name.startswith("Page_") else "Any JSON value.")
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    for method, operation in _operations(document):
        _complete_operation(method, operation)
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in document["paths"].values():
        yield from methods.items()


def _complete_operation(method: str, operation: dict[str, Any]) -> None:
    schemes = {name for one in operation.get("security", []) for name in one}
    operation["responses"].pop("422", None)  # FastAPI's own
    common = [_ALWAYS]
    common += [_WITH_TOKEN] if schemes else []
    common += [_WITH_ROLE] if "accessToken" in schemes else []
    common += [_CHANGING] if method != "get" else []
    common += [_WITH_BODY] if "requestBody" in operation else []
    responses = merged({int(status): one for status, one in operation["responses"].items()}, *common)
    operation["responses"] = {str(status): responses[status] for status in sorted(responses, key=int)}
    if "201" in operation["responses"]:
        operation["responses"]["201"]["headers"] = _LOCATION
    if "accessToken" in schemes:
        operation["security"].append({})  # a service on loopback needs none
    for parameter in operation.get("parameters", []):
        parameter["schema"] = _not_null(parameter["schema"])
        if parameter["name"] in PARAMETERS:
            parameter["example"] = PARAMETERS[parameter["name"]]
    for kind, example in BODIES.get(operation["operationId"], {}).items():
        operation["requestBody"]["content"][kind]["example"] = example


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is absent, and never null. FastAPI describes the Python function's argument, which is None then."""
    kinds = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return {**kinds[0], **{name: value for name, value in schema.items() if name != "anyOf"}}


def _request_schemas() -> dict[str, Any]:
    models = [(model, "validation") for model in _REQUESTS]
    _, found = models_json_schema(
        [*models, (Problem, "serialization"), (InvalidRequest, "serialization")],  # type: ignore[list-item]
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Any] = found["$defs"]
    add_elastic_trainer(schemas)
    parts = schemas["ExperimentSpec"]["properties"]
    parts["search"] = _or_auto(parts["search"])
    schemas["PreviewRequest"] = _preview_request(parts)
    schemas["ExperimentChanges"] = _changes(parts)
    return schemas


def _or_auto(search: dict[str, Any]) -> dict[str, Any]:
    """Requests may have `search: auto`, which answers have as an object."""
    described = {name: one for name, one in search.items() if name != "$ref"}
    word = {"type": "string", "const": AUTO, "description": "the service also chooses the early-stopping rule"}
    return {"anyOf": [{"$ref": search["$ref"]}, word], **described}


def _preview_request(parts: dict[str, Any]) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 0, "maximum": MAX_SAMPLES, "default": DEFAULT_SAMPLES}
    return {
        "type": "object",
        "title": "PreviewRequest",
        "description": "The parts of a spec that matter for a preview, `space` at least, and how many samples to draw.",
        "required": ["space"],
        "properties": {
            "n": count | {"description": "how many configurations to draw", "title": "N"},
            **{name: parts[name] for name in _PREVIEWED},
        },
    }


def _changes(parts: dict[str, Any]) -> dict[str, Any]:
    def description(name: str) -> dict[str, Any]:
        return {"description": f"{parts[name]['description']}{CHANGEABLE[name]}"}

    simple: dict[str, Any] = {
        "priority": {"anyOf": [{"type": "integer", "minimum": -1000, "maximum": 1000}, {"type": "null"}]},
        "objectives": {"type": "array", "items": {"$ref": "#/components/schemas/Objective"}},
    }
    members = {"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "null"}]}
    return {
        "type": "object",
        "title": "ExperimentChanges",
        "description": "A JSON merge patch (RFC 7396) of the spec: members are merged, arrays are replaced, and null "
        "sets a member to its default, but `limits.max_trials` to any number. Another `early_stopping.rule` starts "
        "without the fields of the old one. "
        "Fields that are not listed here must be absent or unchanged.",
        "properties": {name: simple.get(name, members) | description(name) for name in CHANGEABLE},
    }
