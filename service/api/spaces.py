"""`/v1/spaces/preview`: what a search space is, and what would be tried first. Nothing is stored."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, JsonValue

from search.analysis.preview import Preview, preview
from search.mistakes import Mistake as SearchMistake
from search.study import Study
from service.api.http.bodies import read_either
from service.api.http.problems import responses
from service.api.views import SamplerView
from service.errors import Invalid, Mistake
from service.specification.parser import parse_spec

router = APIRouter(prefix="/v1/spaces", tags=["spaces"])

MAX_SAMPLES = 1000
DEFAULT_SAMPLES = 10
SEED = 0
"""Where the search names none: an experiment then has one of its own."""

_UNSAID: dict[str, Any] = {
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
    """A part of the spec, by its path, that no configuration ever has."""

    path: str
    message: str


class SpacePreview(BaseModel):
    """`size` is how many configurations there are; null where they cannot be counted.

    `samples` are fewer than were asked for where there are no more.
    """

    size: int | None
    dead: list[DeadBranch]
    sampler: SamplerView
    samples: list[dict[str, JsonValue]]


@router.post("/preview", responses=responses(400, 413, 422), openapi_extra={"requestBody": _BODY})
async def post_preview(request: Request) -> SpacePreview:
    """Draws samples, counts a finite space, names what can never be tried, and says which sampler `auto` takes."""
    document = await read_either(request)
    return await run_in_threadpool(_previewed, document)


def _previewed(document: Any) -> SpacePreview:
    if not isinstance(document, dict):
        raise Invalid([Mistake("", "must be an object with a space, and parts of a spec that go with it")])
    rest = {name: value for name, value in document.items() if name != "n"}
    count, wrong = _count(document.get("n", DEFAULT_SAMPLES))
    try:
        spec = parse_spec(_UNSAID | rest)
    except Invalid as error:
        raise Invalid([*wrong, *error.mistakes]) from error
    if wrong:
        raise Invalid(wrong)
    study = Study(spec.problem, spec.search, SEED if spec.search.seed is None else spec.search.seed)
    return _view(preview(study, count))


def _count(given: Any) -> tuple[int, list[Mistake]]:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_SAMPLES:
        return 0, [Mistake("n", f"must be a whole number from 0 to {MAX_SAMPLES}")]
    return given, []


def _view(seen: Preview) -> SpacePreview:
    return SpacePreview(
        size=seen.size,
        dead=[_dead(mistake) for mistake in seen.dead],
        sampler=SamplerView.of(seen.sampler),
        samples=list(seen.samples),
    )


def _dead(mistake: SearchMistake) -> DeadBranch:
    return DeadBranch(path=mistake.where, message=mistake.message)
