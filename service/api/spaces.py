"""`/v1/spaces/preview`: describes a search space and draws its first configurations. Nothing is stored."""

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import JsonValue

from service.api.http.bodies.body_reader import JSON
from service.api.http.bodies.document_body import YAML, UnreadDocument
from service.api.http.computation import computed
from service.api.http.dependencies import Ctx
from service.api.http.error_responses import error_responses
from service.api.http.routes import Route
from service.api.views.experiments import RuleView, SamplerView, SpecWarning
from service.api.views.rows import View
from service.errors import TooMuchWork
from service.specification.preview import SpecPreview, preview_document

router = APIRouter(prefix="/v1/spaces", tags=["spaces"], route_class=Route)

_SCHEMA = {"schema": {"$ref": "#/components/schemas/PreviewRequest"}}
_BODY = {"required": True, "content": {JSON: _SCHEMA, YAML: _SCHEMA}}


class DeadBranch(View):
    """A part of the spec, by its path, that no configuration can have."""

    path: str
    """the path of the part in the spec"""
    message: str
    """why no configuration has it"""


class SpacePreview(View):
    """A search space, and configurations that would be proposed."""

    size: int | None
    """the number of configurations; null where they cannot be counted"""
    dead: list[DeadBranch]
    """parts of the spec that no configuration can have"""
    sampler: SamplerView
    """the sampler that would propose"""
    early_stopping: RuleView
    """the rule that would stop trials"""
    warnings: list[SpecWarning]
    """what the spec allows but may not mean"""
    samples: list[dict[str, JsonValue]]
    """configurations that the sampler would propose; fewer than requested if the space has no more. They are an
    experiment's first ones only with the same `search.seed`, and without `enqueue` and `search.warm_start`"""


@router.post(
    "/preview",
    response_model=SpacePreview,
    responses=error_responses(TooMuchWork),
    openapi_extra={"requestBody": _BODY},
)
async def preview_space(body: UnreadDocument, context: Ctx, request: Request) -> Response:
    """Draws samples, counts a finite space, names what can never be tried, and says what `auto` chooses."""
    shown = await computed(request, context.compute, preview_document, body.content, body.is_json)
    return Response(await run_in_threadpool(_content, shown), media_type="application/json")


def _content(shown: SpecPreview) -> str:
    """In a thread, because there may be many samples."""
    preview = shown.preview
    view = SpacePreview(
        size=preview.size,
        dead=[DeadBranch(path=mistake.where, message=mistake.message) for mistake in preview.dead],
        sampler=SamplerView.of(preview.sampler),
        early_stopping=RuleView.of(shown.rule.model_dump(mode="json"), shown.why_rule),
        warnings=SpecWarning.listed(shown.warnings),
        samples=list(preview.samples),
    )
    return view.model_dump_json()
