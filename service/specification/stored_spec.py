"""A specification as it is stored, perhaps by another version of the service."""

from typing import Any

from pydantic import ValidationError

from search.fields_of_later_versions import unknown_fields, without_unused
from search.plugins import STORED
from service.errors import Unavailable
from service.specification.models import ExperimentSpec


def parse_stored_spec(document: dict[str, Any]) -> ExperimentSpec:
    """Checks nothing that was checked when it was submitted. Fields of a later version are left out if they are empty.

    Raises Unavailable for others: without them another experiment would run.
    """
    try:
        return ExperimentSpec.model_validate(document, context=STORED)
    except ValidationError as error:
        if (used := without_unused(document, error)) is not None:
            return parse_stored_spec(used)
        if not (unknown := unknown_fields(error)):
            raise
        names = ", ".join(".".join(map(str, place)) for place, value in unknown.items() if value)
        raise Unavailable(
            f"this experiment uses what only a later version of the service knows: {names}; a service of that version "
            "can answer, or upgrade this one"
        ) from error
