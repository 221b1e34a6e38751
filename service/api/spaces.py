"""`/v1/spaces/preview`: describes a search space and draws its first configurations. Nothing is stored."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, JsonValue

from search.analysis.preview import preview
from search.mistakes import Mistake
from search.study import Study
from service.api.http.bodies import JsonOrYaml
from service.api.http.problems import responses
from service.api.views.experiments import SamplerView
from service.errors import Invalid
from service.specification.parser import parse_spec

router = APIRouter(prefix="/v1/spaces", tags=["spaces"])

MAX_SAMPLES = 1000
DEFAULT_SAMPLES = 10
SEED = 0
"""The seed where the search names none. An experiment without one gets a seed of its own."""

_DEFAULTS: dict[str, Any] = {
    "name": "preview",
    "objectives": [{"metric": "value", "direction": "minimize"}],
    "trainer": {"kind": "external"},
}
_BODY_SCHEMA = {
    "type": "object",
    "description": "Any parts of a spec, space at least, and how many samples to draw",
    "required": ["space"],
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": MAX_SAMPLES, "default": DEFAULT_SAMPLES},
        **{
            name: {"$ref": f"#/components/schemas/ExperimentSpec/properties/{name}"}
            for name in ("space", "forbid", "search", "objectives", "constraints", "early_stopping", "limits")
        },
    },
}
_BODY = {
    "required": True,
    "content": {kind: {"schema": _BODY_SCHEMA} for kind in ("application/json", "application/yaml")},
}


class DeadBranch(BaseModel):
    """A part of the spec, by its path, that no configuration can have."""

    path: str
    message: str


class SpacePreview(BaseModel):
    """`size` is the number of configurations; it is null where they cannot be counted.

    `samples` are fewer than requested if the space has no more.
    """

    size: int | None
    dead: list[DeadBranch]
    sampler: SamplerView
    samples: list[dict[str, JsonValue]]


@router.post("/preview", responses=responses(400, 413, 422), openapi_extra={"requestBody": _BODY})
def post_preview(document: JsonOrYaml) -> SpacePreview:
    """Draws samples, counts a finite space, names what can never be tried, and says which sampler `auto` chooses."""
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with a space, and other parts of a spec")])
    count, mistakes = _sample_count(document)
    try:
        spec = parse_spec(_DEFAULTS | {name: value for name, value in document.items() if name != "n"})
    except Invalid as error:
        raise Invalid([*mistakes, *error.mistakes]) from error
    if mistakes:
        raise Invalid(mistakes)
    seed = SEED if spec.search.seed is None else spec.search.seed
    shown = preview(Study(spec.problem, spec.search, seed), count)
    return SpacePreview(
        size=shown.size,
        dead=[DeadBranch(path=mistake.where, message=mistake.message) for mistake in shown.dead],
        sampler=SamplerView.of(shown.sampler),
        samples=list(shown.samples),
    )


def _sample_count(document: dict[str, Any]) -> tuple[int, list[Mistake]]:
    count = document.get("n", DEFAULT_SAMPLES)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_SAMPLES:
        return 0, [Mistake(("n",), f"must be a whole number from 0 to {MAX_SAMPLES}")]
    return count, []
