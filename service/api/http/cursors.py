"""Cursors: where a page ended, in the terms that order it, so that the row itself may be gone by the next page."""

import base64
from typing import Annotated, TypeVar

from pydantic import AwareDatetime, Field, FiniteFloat, TypeAdapter

from service.errors import BadRequest
from trainer.wire import Text

Number = Annotated[int, Field(ge=0, lt=2**31)]
Place = TypeVar("Place")

EXPERIMENT_PLACE = TypeAdapter(tuple[AwareDatetime, Text])
TRIAL_PLACE = TypeAdapter(tuple[FiniteFloat | None, Number])


def to_cursor(shape: TypeAdapter[Place], place: Place) -> str:
    return base64.urlsafe_b64encode(shape.dump_json(place)).decode()


def from_cursor(shape: TypeAdapter[Place], cursor: str | None) -> Place | None:
    """Raises BadRequest for what is no cursor of such a list."""
    if cursor is None:
        return None
    try:
        return shape.validate_json(base64.urlsafe_b64decode(cursor))
    except ValueError as error:
        raise BadRequest("cursor must be the next_cursor of the page before, as it came") from error
