"""Errors as OpenAPI describes them: the responses of a route, by the errors that it can raise."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from search.field_descriptions import describe_fields
from service.api.http.problems import MEDIA_TYPE
from service.errors import PROBLEM_TYPES, Invalid, ServiceError


class Problem(BaseModel):
    """What is wrong, as RFC 9457 has it. Some problems have further members with facts."""

    model_config = ConfigDict(extra="allow", json_schema_extra=describe_fields)

    type: str = Field(json_schema_extra={"format": "uri"})
    """which error it is: `urn:paceline:error:` and a code; docs/reference/errors.md says for each what to do"""
    title: str
    """the same for all errors of this type"""
    status: int
    """the status code"""
    detail: str
    """a sentence for people: what is wrong and what would be right"""
    request: str
    """the id of the request, as in the header `X-Request-ID` and in the service's log"""


class MistakeView(BaseModel):
    """One mistake in a request."""

    model_config = ConfigDict(json_schema_extra=describe_fields)

    path: str
    """where it is: the names of fields, with dots between them, or the name of a parameter; empty: the whole body"""
    message: str
    """what would be right"""


class InvalidRequest(Problem):
    """A problem of the type `invalid`."""

    errors: list[MistakeView]
    """every mistake"""


def error_responses(*errors: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can raise these errors."""
    by_status = sorted(errors, key=lambda error: (error.status, error.type))
    return {status: _response(list(some)) for status, some in groupby(by_status, lambda error: error.status)}


def merged(*responses: dict[int | str, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """All of the responses; of a status that several have, with the bodies and descriptions of all."""
    found: dict[int | str, dict[str, Any]] = {}
    for one in responses:
        for status, response in one.items():
            earlier = found.get(status, {})
            described = "; ".join(filter(None, [earlier.get("description"), response["description"]]))
            content = earlier.get("content", {}) | response.get("content", {})
            found[status] = earlier | response | {"description": "; ".join(dict.fromkeys(described.split("; ")))}
            if content:
                found[status]["content"] = content
    return found


def _response(errors: Iterable[type[ServiceError]]) -> dict[str, Any]:
    errors = list(errors)
    body = "InvalidRequest" if errors == [Invalid] else "Problem"
    headers = {name: header for error in errors for name, header in _HEADERS.get(error.status, {}).items()}
    return {
        "description": "; ".join(f"`{PROBLEM_TYPES}{error.type}`: {error.title}" for error in errors),
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{body}"}}},
        **({"headers": headers} if headers else {}),
    }


_SECONDS = {"description": "seconds until a repeat makes sense", "schema": {"type": "integer"}}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "always `Bearer`", "schema": {"type": "string"}}},
    416: {"Content-Range": {"description": "`bytes */` and the whole size", "schema": {"type": "string"}}},
    503: {"Retry-After": _SECONDS},
    507: {"Retry-After": _SECONDS},
}
