"""From a request's bytes to a document of plain values, with bounded work for any body."""

import json
import math
from collections.abc import Iterator
from typing import Any

from search.mistakes import Path, shortened
from service.errors import BadRequest, TooLarge
from service.specification.json_hooks import WRITTEN_TWICE, RepeatingObject, any_object, integer
from service.specification.mistake_list import MistakeList
from service.specification.yaml_reader import MAX_DEPTH, read_yaml, too_deep
from trainer.wire import is_storable_text

MAX_PARTS = 200_000
"""Values and names, counted with YAML's aliases expanded: a few hundred bytes of aliases can stand for gigabytes."""
MAX_TEXT = 5_000_000
"""Characters, counted in the same way."""
TOO_LARGE = (
    f"the body has more than {MAX_PARTS} names and values, or {MAX_TEXT} characters; YAML's aliases count as what they "
    "stand for"
)


def read_document(body: bytes, *, is_json: bool) -> Any:
    """The document of a JSON or YAML body; YAML is tried for what is not JSON, unless `is_json` is set.

    Raises BadRequest for a body that cannot be parsed, TooLarge for one that is too large, Invalid for repeated names,
    for YAML's own types and for values that cannot be stored. The time is linear in the size of the body.
    """
    try:
        document = json.loads(body, object_pairs_hook=any_object, parse_int=integer)
    except RecursionError as error:
        raise too_deep() from error
    except ValueError as error:
        if is_json:
            hint = "send YAML with Content-Type: application/yaml"
            raise BadRequest(f"the body is not JSON: {error} ({hint})") from error
        document = read_yaml(body)
    check_values(document)
    return document


def check_values(document: Any) -> None:
    """Raises TooLarge, BadRequest for a document that is too deep, and Invalid for values that cannot be stored."""
    found = MistakeList()
    characters, parts = 0, 1
    left: list[tuple[Path, Any]] = [((), document)]
    while left:
        path, value = left.pop()
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict | list):
            parts += len(value) * (2 if isinstance(value, dict) else 1)
        if parts > MAX_PARTS or characters > MAX_TEXT:
            raise TooLarge(TOO_LARGE, max_parts=MAX_PARTS)
        if isinstance(value, RepeatingObject):
            for name in value.repeated:
                found.add((*path, shortened(name)), WRITTEN_TWICE)
        if isinstance(value, dict | list):
            left += reversed(list(_inner(path, value)))
        elif fault := _fault_in(value):
            found.add(path, fault)
    found.refuse()


def _inner(path: Path, value: dict[str, Any] | list[Any]) -> Iterator[tuple[Path, Any]]:
    """The names and values in an object or a list, each with its path."""
    if value and len(path) >= MAX_DEPTH:
        raise too_deep()
    if isinstance(value, dict):
        for name, inner in value.items():
            yield path, name
            yield (*path, shortened(str(name))), inner
    else:
        for index, inner in enumerate(value):
            yield (*path, index), inner


def _fault_in(value: Any) -> str | None:
    match value:
        case str() if not is_storable_text(value):
            return "must not have NUL characters or lone surrogates"
        case float() if not math.isfinite(value):
            return "must be a finite number"
        case int() if abs(value) >= 2**63:
            return "must be a number of at most 64 bits"
        case _:
            return None
