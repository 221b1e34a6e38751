"""From a request's bytes to a document of plain values, with bounded work for any body."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from search.mistakes import Mistake
from service.errors import BadRequest, Invalid
from trainer.wire import is_storable_text

MAX_DEPTH = 50
MAX_PARTS = 200_000
"""Values and names, counted with YAML's aliases expanded: a few hundred bytes of aliases can stand for gigabytes."""
MAX_TEXT = 5_000_000
"""Characters, counted in the same way."""
MAX_MISTAKES = 20

# libyaml's loader is ten times faster than Python's; not every build of PyYAML has it.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Reads 1e-4 as a number, where YAML 1.1 reads text, and counts merges (`<<`), which multiply as aliases do."""

    merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        self.merged += len(node.value)
        if self.merged > MAX_PARTS:
            raise _too_many()


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read_document(body: bytes, *, is_json: bool) -> Any:
    """The document of a JSON or YAML body; YAML is tried for what is not JSON, unless `is_json` is set.

    Raises BadRequest for a body that cannot be parsed or is too large, Invalid for values that cannot be stored.
    """
    try:
        document = json.loads(body)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        if is_json:
            hint = "send YAML with Content-Type: application/yaml"
            raise BadRequest(f"the body is not JSON: {error} ({hint})") from error
        document = _read_yaml(body)
    check_values(document)
    return document


def check_values(document: Any) -> None:
    """Raises BadRequest for a document that is too large or too deep, Invalid for values that cannot be stored."""
    found: list[Mistake] = []
    characters = 0
    for parts, (path, value) in enumerate(_walk(document)):
        characters += len(value) if isinstance(value, str) else 0
        if parts > MAX_PARTS or characters > MAX_TEXT:
            raise _too_many()
        if len(found) < MAX_MISTAKES and (fault := _fault_in(value)):
            found.append(Mistake(path, fault))
    if found:
        raise Invalid(found)


def _read_yaml(body: bytes) -> Any:
    try:
        _check_nesting(body)
        return yaml.load(body, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise BadRequest(f"the body is not YAML: {error}") from error


def _check_nesting(body: bytes) -> None:
    """Runs before the loader, because libyaml's loader crashes the process on deep nesting."""
    depth = 0
    for event in yaml.parse(body, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep()
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _walk(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every name and value with its path."""
    if len(path) > MAX_DEPTH:
        raise _too_deep()
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield path, name
            yield from _walk(inner, (*path, str(name)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, (*path, index))


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


def _too_deep() -> BadRequest:
    return BadRequest(f"the body is nested too deeply; {MAX_DEPTH} levels are enough for a spec")


def _too_many() -> BadRequest:
    return BadRequest(f"the spec has more than {MAX_PARTS} values or {MAX_TEXT} characters with its aliases expanded")
