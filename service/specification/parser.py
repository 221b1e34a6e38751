"""From a document to an `ExperimentSpec`, or to all of its mistakes."""

from typing import Any

from pydantic import TypeAdapter

from search.mistakes import Mistake, parse
from search.plugins import Accepted
from service.errors import MAX_MISTAKES, Invalid
from service.specification.cross_field_checks.dataset_checks import in_users_words
from service.specification.cross_field_checks.runtime_env_checks import with_reason
from service.specification.cross_field_checks.trainer_checks import without_selector_member
from service.specification.hints.hints_from_context import with_context
from service.specification.hints.known_fields import known_fields, with_known_fields
from service.specification.hints.names_in_other_tuners import with_tuners_name
from service.specification.hints.names_in_ray_train import with_ray_trains_name
from service.specification.hints.value_hints import with_hint
from service.specification.models import ExperimentSpec

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


def parse_spec(document: Any, accepted: Accepted | None = None) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field. `document` has passed `check_values`.

    `accepted` says what of it the service has accepted before.
    """
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with name, space, objectives, …")])
    spec, mistakes = parse(_SPEC, document, context=accepted)
    if spec is None:
        shown = [_with_hints(mistake, document) for mistake in mistakes[:MAX_MISTAKES]]
        raise Invalid(shown, len(mistakes) - len(shown))
    return spec


def _with_hints(mistake: Mistake, document: dict[str, Any]) -> Mistake:
    """The mistake in the user's words. Each step leaves one of which it knows nothing as it is."""
    mistake = with_reason(in_users_words(without_selector_member(mistake)))
    mistake = with_tuners_name(with_ray_trains_name(mistake))
    mistake = with_context(mistake, document)
    mistake = with_known_fields(mistake, known_fields(mistake.path[:-1], document))
    return with_hint(mistake, document)
