"""From a document to an `ExperimentSpec`, or to all of its mistakes."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from search.mistakes import UNKNOWN, Mistake, parse
from search.plugins import Accepted
from service.errors import MAX_MISTAKES, Invalid
from service.specification.cross_field_checks.dataset_mistakes import in_users_words, known_fields
from service.specification.cross_field_checks.runtime_env_mistakes import with_reason
from service.specification.cross_field_checks.trainer_mistakes import without_selector_member
from service.specification.models import ExperimentSpec
from service.specification.ray_train_fields import with_ray_trains_name
from service.specification.value_hints import with_hint

_SPEC: TypeAdapter[ExperimentSpec] = TypeAdapter(ExperimentSpec)


def parse_spec(document: Any, accepted: Accepted | None = None) -> ExperimentSpec:
    """Raises Invalid with every mistake, each with the path of its field. `document` has passed `check_values`.

    `accepted` says what of it the service has accepted before.
    """
    if not isinstance(document, dict):
        raise Invalid([Mistake((), "must be an object with name, space, objectives, …")])
    spec, mistakes = parse(_SPEC, document, context=accepted)
    if spec is None:
        found = [_in_users_words(mistake) for mistake in mistakes[:MAX_MISTAKES]]
        shown = [with_known_fields(mistake, _known_fields(mistake.path[:-1])) for mistake in found]
        raise Invalid([with_hint(mistake, document) for mistake in shown], len(mistakes) - len(shown))
    return spec


def _in_users_words(mistake: Mistake) -> Mistake:
    return with_ray_trains_name(with_reason(in_users_words(without_selector_member(mistake))))


def with_known_fields(mistake: Mistake, known: Sequence[str]) -> Mistake:
    """For an unknown field, the mistake with the fields that exist at its place; any other mistake unchanged."""
    if not known or mistake.message != UNKNOWN:
        return mistake
    return Mistake(mistake.path, f"{mistake.message}; known here: {', '.join(known)}")


def _known_fields(parent: tuple[str | int, ...]) -> list[str]:
    model: Any = ExperimentSpec
    for part in parent:
        field = model.model_fields.get(part) if _is_model(model) else None
        model = _model_of(field.annotation) if field else None
    return sorted(model.model_fields) if _is_model(model) else known_fields(parent)


def _model_of(annotation: Any) -> Any:
    """The model in an optional field's type."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    model = members[0] if len(members) == 1 else annotation
    return get_args(model)[0] if get_origin(model) is Annotated else model


def _is_model(model: Any) -> bool:
    return isinstance(model, type) and issubclass(model, BaseModel)
