"""Mistakes in what a user wrote: where each is, and what would be right."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

T = TypeVar("T")
Path = tuple[str | int, ...]

MISSING = "is required"
UNKNOWN = "unknown field"
NO_OBJECT = "must be an object"
NO_LIST = "must be a list"
NO_TEXT = "must be text"
MAX_SHOWN = 100
"""Characters of the user's text that a mistake repeats."""
MAX_LISTED = 30
"""Names in a mistake. A specification of a few kB may have thousands of choices, and as many mistakes in them."""
_MESSAGES = {
    "extra_forbidden": UNKNOWN,
    "missing": MISSING,
    "tuple_type": NO_LIST,
    "model_type": NO_OBJECT,
    "model_attributes_type": NO_OBJECT,
    "dataclass_type": NO_OBJECT,
    "dict_type": NO_OBJECT,
    "list_type": NO_LIST,
    "string_type": NO_TEXT,
    "bool_type": "must be true or false",
}
"""In place of pydantic's, which name classes that the user does not know."""
_KEY = "[key]"
"""What pydantic puts after the key of a dict that is not valid."""


@dataclass(frozen=True)
class Mistake:
    """`path` leads to the field, and `message` says what would be right. As text: `lr.low: must be > 0`."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    @property
    def where(self) -> str:
        return ".".join(str(part) for part in self.path)

    def under(self, *parents: str | int) -> "Mistake":
        return Mistake((*parents, *self.path), self.message)


def parse(
    adapter: TypeAdapter[T], given: Any, *, tags: Collection[str] = (), context: object = None
) -> tuple[T, list[Mistake]] | tuple[None, list[Mistake]]:
    """The value, or None and all mistakes.

    `tags` are the names of union members: pydantic puts them first in a path, but the user did not write them.
    `context` is pydantic's validation context. Pydantic
    runs a model's own validators only if every field is valid, so the valid fields are validated again without the
    others.
    """
    try:
        return adapter.validate_python(given, context=context), []
    except ValidationError as error:
        mistakes = mistakes_of(error, tags=tags)
    wrong = {mistake.path[0] for mistake in mistakes if mistake.path}
    if isinstance(given, Mapping) and (rest := {key: given[key] for key in given if key not in wrong}) != given:
        _, more = parse(adapter, rest, tags=tags, context=context)
        mistakes += [mistake for mistake in more if mistake.path and mistake.path[0] in rest]
    return None, mistakes


def mistakes_of(error: ValidationError, *, tags: Collection[str] = ()) -> list[Mistake]:
    """Pydantic's errors as mistakes; see `parse` for `tags`."""
    return [_mistake(line, tags) for line in error.errors(include_url=False, include_input=False)]


def _mistake(line: ErrorDetails, tags: Collection[str]) -> Mistake:
    path = line["loc"][1:] if line["loc"] and line["loc"][0] in tags else line["loc"]
    path = path[:-1] if path and path[-1] == _KEY else path
    facts = line.get("ctx", {})
    match line["type"]:
        case "union_tag_invalid":
            return Mistake((*path, _tag(facts)), f"must be one of {facts['expected_tags']}, not '{facts['tag']}'")
        case "union_tag_not_found":
            return Mistake((*path, _tag(facts)), f"is required: one of {listed(tags)}")
        case "too_short":
            return Mistake(path, f"must have {_entries('at least', facts['min_length'])}, not {facts['actual_length']}")
        case "too_long":
            return Mistake(path, f"must have {_entries('at most', facts['max_length'])}, not {facts['actual_length']}")
        case kind:
            return Mistake(path, _MESSAGES.get(kind) or line["msg"].removeprefix("Value error, "))


def _entries(bound: str, count: int) -> str:
    return f"{bound} {count} {'entry' if count == 1 else 'entries'}"


def _tag(facts: Mapping[str, Any]) -> str:
    return str(facts["discriminator"]).strip("'")


def refuse(title: str, mistakes: Iterable[Mistake], given: Any) -> None:
    """Raise all mistakes as one `ValidationError`; do nothing if there are none.

    If this is called in a validator, pydantic puts the path of the validated field before each path.
    """
    lines = [_line(mistake, given) for mistake in mistakes]
    if lines:
        raise ValidationError.from_exception_data(title, lines)


def _line(mistake: Mistake, given: Any) -> InitErrorDetails:
    for part in mistake.path:
        given = given.get(part) if isinstance(given, Mapping) else given
    # Without a context, because pydantic would read braces in the message as a template.
    return InitErrorDetails(type=PydanticCustomError("mistake", mistake.message), loc=mistake.path, input=given)


def listed(names: Iterable[object]) -> str:
    """The names with commas between; of many, the first `MAX_LISTED`."""
    first = [str(name) for name in islice(names, MAX_LISTED + 1)]
    return ", ".join(first if len(first) <= MAX_LISTED else [*first[:MAX_LISTED], "…"])


def instead_of(name: str, known: Sequence[str], introduction: str) -> str:
    """A question for the known name that is closest to an unknown one, or all of them after the introduction."""
    close = get_close_matches(name[:MAX_SHOWN], known, n=1, cutoff=0.7)  # of megabytes, it takes seconds
    return f"did you mean {close[0]}?" if close else f"{introduction}: {listed(known) or 'none'}"


def shortened(text: str) -> str:
    """The text as far as a mistake repeats it."""
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
