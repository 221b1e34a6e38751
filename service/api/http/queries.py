"""Query parameters of a call: each must be known, and be given once."""

from collections.abc import Collection, Iterator
from typing import Annotated

from pydantic import Field
from starlette.requests import Request

from search.mistakes import Mistake, listed, shortened
from service.errors import Invalid
from trainer.wire import MAX_COUNT

MAX_MISTAKES = 20

Whole = Annotated[int, Field(ge=0, le=MAX_COUNT)]
"""A number in a query or a header, where all values are text."""


def check_query(request: Request, known: Collection[str]) -> None:
    """Raises Invalid for a parameter that is not among `known` or is given more than once."""
    if mistakes := list(_mistakes_in([name for name, _ in request.query_params.multi_items()], known)):
        raise Invalid(mistakes[:MAX_MISTAKES])


def _mistakes_in(given: list[str], known: Collection[str]) -> Iterator[Mistake]:
    for name in dict.fromkeys(given):
        if name not in known:
            choice = f"known here: {listed(sorted(known))}" if known else "this call has none"
            yield Mistake((shortened(name),), f"is not a query parameter of this call; {choice}")
        elif given.count(name) > 1:
            yield Mistake((name,), "is given more than once; give it once")
