"""A mistake that was found in what a person wrote, as that person reads it."""

from collections.abc import Sequence

import search.mistakes
from service.errors import Mistake


def readable(mistake: search.mistakes.Mistake, known: Sequence[str] = ()) -> Mistake:
    """`known` are the fields there are, for one that is not."""
    message = mistake.message.replace("Input should", "should")
    if known and message == "unknown field":
        message = f"{message}; known here: {', '.join(known)}"
    return Mistake(mistake.where, message)
