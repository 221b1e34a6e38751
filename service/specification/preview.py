"""From the document of a preview, which is a part of a spec and a number of samples, to the preview."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from search.analysis.preview import Preview, preview
from search.early_stopping import Rule
from search.mistakes import Mistake
from search.plugins import why_failed
from search.samplers.registry import sampler_plugins
from search.study import Study
from service.errors import Invalid
from service.specification.documents import read_document
from service.specification.initial_rule import initial_rule
from service.specification.parser import parse_spec
from trainer.wire import Kind

MAX_SAMPLES = 1000
DEFAULT_SAMPLES = 10
SEED = 0
"""The seed where the search names none. An experiment without one gets a seed of its own."""

_PACKAGE = {"package": f"sha256:{0:064}"}
"""A preview comes without code. What depends on the code is checked when it is submitted."""
_DEFAULTS: dict[str, Any] = {
    "name": "preview",
    "objectives": [{"metric": "value", "direction": "minimize"}],
    "trainer": {"kind": "torch", "entrypoint": "train:train"},
}


@dataclass(frozen=True)
class SpecPreview:
    """`why_rule` is why the service chose the rule; None for the user's own."""

    preview: Preview
    rule: Rule
    why_rule: str | None
    warnings: Sequence[Mistake]


def preview_document(body: bytes, is_json: bool) -> SpecPreview:
    """Raises BadRequest, and Invalid with every mistake."""
    document = read_document(body, is_json=is_json)
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with a space, and other parts of a spec")])
    count, mistakes = _sample_count(document)
    try:
        spec = parse_spec(_with_package(_DEFAULTS | {name: value for name, value in document.items() if name != "n"}))
    except Invalid as error:
        raise Invalid([*mistakes, *error.mistakes], error.more) from error
    if mistakes:
        raise Invalid(mistakes)
    spec, chosen_rule = initial_rule(spec)
    seed = SEED if spec.search.seed is None else spec.search.seed
    why = chosen_rule.reason if chosen_rule else None
    previewed = _previewed(Study(spec.problem, spec.search, seed), count)
    return SpecPreview(previewed, spec.early_stopping, why, [*spec.warnings, *previewed.warnings])


def _previewed(study: Study, count: int) -> Preview:
    """Raises Invalid with what a sampler of another package raises."""
    try:
        return preview(study, count)
    except Exception as error:
        name = study.sampler.sampler
        if name not in sampler_plugins().kinds:
            raise
        raise Invalid([Mistake(("search", "sampler"), why_failed(name, error))]) from error


def _with_package(document: dict[str, Any]) -> dict[str, Any]:
    trainer = document["trainer"]
    if not isinstance(trainer, dict) or trainer.get("kind") == Kind.EXTERNAL:
        return document
    return document | {"trainer": _PACKAGE | trainer}


def _sample_count(document: dict[str, Any]) -> tuple[int, list[Mistake]]:
    count = document.get("n", DEFAULT_SAMPLES)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_SAMPLES:
        return 0, [Mistake(("n",), f"must be a whole number from 0 to {MAX_SAMPLES}")]
    return count, []
