"""What is wrong with something a person wrote: where it is, and what would be right."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

T = TypeVar("T")
Path = tuple[str | int, ...]

MISSING = "is required"


@dataclass(frozen=True)
class Mistake:
    """One mistake. `path` leads to the field, `message` says what would be right; as text: `lr.low: must be > 0`."""

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
    adapter: TypeAdapter[T], given: Any, *, tags: Collection[str] = ()
) -> tuple[T, list[Mistake]] | tuple[None, list[Mistake]]:
    """The value, or None and all that is wrong with what was given.

    `tags` are the names of union members, which pydantic puts first in a path and nobody wrote. Pydantic checks fields
    against each other only once each is right by itself, so the rest is looked at again without the wrong ones.
    """
    try:
        return adapter.validate_python(given), []
    except ValidationError as error:
        mistakes = mistakes_of(error, tags=tags)
    wrong = {mistake.path[0] for mistake in mistakes if mistake.path}
    if isinstance(given, Mapping) and (rest := {key: given[key] for key in given if key not in wrong}) != given:
        _, more = parse(adapter, rest, tags=tags)
        mistakes += [mistake for mistake in more if mistake.path and mistake.path[0] in rest]
    return None, mistakes


def mistakes_of(error: ValidationError, *, tags: Collection[str] = ()) -> list[Mistake]:
    """Pydantic's errors as mistakes; see `parse` for `tags`."""
    return [_mistake(line, tags) for line in error.errors(include_url=False, include_input=False)]


def _mistake(line: ErrorDetails, tags: Collection[str]) -> Mistake:
    path = line["loc"][1:] if line["loc"] and line["loc"][0] in tags else line["loc"]
    facts = line.get("ctx", {})
    match line["type"]:
        case "extra_forbidden":
            return Mistake(path, "unknown field")
        case "missing":
            return Mistake(path, MISSING)
        case "union_tag_invalid":
            return Mistake((*path, _tag(facts)), f"must be one of {facts['expected_tags']}, not '{facts['tag']}'")
        case "union_tag_not_found":
            return Mistake((*path, _tag(facts)), f"is required: one of {listed(tags)}")
        case _:
            return Mistake(path, line["msg"].removeprefix("Value error, "))


def _tag(facts: Mapping[str, Any]) -> str:
    return str(facts["discriminator"]).strip("'")


def refuse(title: str, mistakes: Iterable[Mistake], given: Any) -> None:
    """Raise all mistakes as one `ValidationError`; do nothing when there are none.

    Raised inside a validator, pydantic puts the validator's own place before each path.
    """
    lines = [_line(mistake, given) for mistake in mistakes]
    if lines:
        raise ValidationError.from_exception_data(title, lines)


def _line(mistake: Mistake, given: Any) -> InitErrorDetails:
    for part in mistake.path:
        given = given.get(part) if isinstance(given, Mapping) else given
    # No context: a message with braces in it must not be read as a template.
    return InitErrorDetails(type=PydanticCustomError("mistake", mistake.message), loc=mistake.path, input=given)


def listed(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names)
