"""YAML as JSON: a document of the JSON schema of YAML 1.2, read in one pass over libyaml's events.

PyYAML's own loaders are not used: they resolve scalars by YAML 1.1 with patterns that backtrack, take the last of two
equal names, and crash the process on deep nesting (as the YAML 1.2 libraries py-yaml12 and yaml-rs do).
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from search.mistakes import Path, shortened
from service.errors import BadRequest, TooLarge
from service.specification.json_hooks import integer
from service.specification.mistake_list import MistakeList

MAX_DEPTH = 50
MAX_YAML_PARTS = 100_000
"""Names, values and ends of lists and objects, which take up to 4 microseconds each."""

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_NAMED_SCALARS = {"": None, "~": None, "null": None, "true": True, "false": False} | {
    sign + name: float(sign + name[1:]) for sign in ("", "-", "+") for name in (".inf", ".Inf", ".INF")
}
_NAMED_SCALARS |= dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan)
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    f"{_TAG}null": (type(None),),
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
}
_TAG_DIRECTIVE = re.compile("(?:^|[\r\n\x85\u2028\u2029\ufeff])%TAG")
"""Not for libyaml, which compares each of them with all the others."""
_TEXT_TAGS = {"!", f"{_TAG}str"}


def read_yaml(body: bytes) -> Any:
    """The only document in `body`, of plain values. None for an empty body.

    Raises BadRequest for what is not one document of YAML, TooLarge for one with too many values, Invalid for repeated
    names and for tags that JSON does not have. The values are not checked further.
    """
    try:
        if _TAG_DIRECTIVE.search(body.decode()):
            raise BadRequest("the body must not have %TAG directives, because only the tags of JSON are known")
        return _Reader(body).document()
    except yaml.MarkedYAMLError as error:
        raise BadRequest(f"the body is not YAML: {_explanation(error)}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadRequest(f"the body is not YAML: {shortened(' '.join(str(error).split()))}") from error


def too_deep() -> BadRequest:
    return BadRequest(f"the body is nested too deeply; {MAX_DEPTH} levels are enough for a spec")


class _Reader:
    """Builds the values of one document while the parser runs."""

    def __init__(self, body: bytes) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(body, yaml.CSafeLoader)
        self._anchored: dict[str, Any] = {}
        self._mistakes = MistakeList()
        self._parts = 0

    def document(self) -> Any:
        next(self._events)  # the start of the stream
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(self._next(), ())
        next(self._events)  # the end of the document
        if not isinstance(next(self._events), yaml.StreamEndEvent):
            raise BadRequest("the body has more than one YAML document; send each by itself")
        self._mistakes.refuse()
        return value

    def _next(self) -> yaml.Event:
        self._parts += 1
        if self._parts > MAX_YAML_PARTS:
            message = f"the YAML has more than {MAX_YAML_PARTS} names and values; send JSON, which may have more"
            raise TooLarge(message, max_parts=MAX_YAML_PARTS)
        return next(self._events)

    def _value(self, event: yaml.Event, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise too_deep()
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchored.pop(anchor, None)  # within the value, the anchor is not defined yet
        match event:
            case yaml.ScalarEvent():
                value = self._scalar(event, path)
            case yaml.SequenceStartEvent():
                value = self._list(event, path)
            case yaml.MappingStartEvent():
                value = self._object(event, path)
        if anchor is not None:
            self._anchored[anchor] = value
        return value

    def _aliased(self, event: yaml.AliasEvent) -> Any:
        name = event.anchor or ""
        if name not in self._anchored:
            message = f"*{shortened(name)} must come after the whole value that is marked with &{shortened(name)}"
            raise BadRequest(f"{_line(event)}: {message}")
        return self._anchored[name]

    def _list(self, event: yaml.SequenceStartEvent, path: Path) -> list[Any]:
        if event.tag not in {None, "!", f"{_TAG}seq"}:
            self._refuse_tag(event, path)
        items: list[Any] = []
        while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
            items.append(self._value(inner, (*path, len(items))))
        return items

    def _object(self, event: yaml.MappingStartEvent, path: Path) -> dict[str, Any]:
        if event.tag not in {None, "!", f"{_TAG}map"}:
            self._refuse_tag(event, path)
        fields: dict[str, Any] = {}
        while not isinstance(inner := self._next(), yaml.MappingEndEvent):
            name = self._name(inner, path)
            inner_path = (*path, shortened(name))
            if name in fields:
                self._refuse(inner_path, f"is written twice ({_line(inner)}); keep one")
            fields[name] = self._value(self._next(), inner_path)
        return fields

    def _name(self, event: yaml.Event, path: Path) -> str:
        """A name is text, as in JSON: `1` and `true` are names, too."""
        if not isinstance(event, yaml.ScalarEvent):
            raise BadRequest(f"{_line(event)}: a name must be plain text, not a list, an object or an alias")
        if event.tag is not None and event.tag not in _TEXT_TAGS:
            self._refuse_tag(event, path)
        name: str = event.value
        if name == "<<" and _is_plain(event):
            raise BadRequest(f"{_line(event)}: YAML 1.2 has no merge keys (<<); write the fields out")
        return name

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            return _plain_value(text) if _is_plain(event) else text
        if tag in _TEXT_TAGS:
            return text
        if tag not in _SCALAR_TAGS:
            return self._refuse_tag(event, path)
        value = _plain_value(text)
        if type(value) not in _SCALAR_TAGS[tag]:
            kind = _short_tag(tag)
            return self._refuse(path, f"is tagged {kind}, but {shortened(text)!r} is not of that type ({_line(event)})")
        return float(value) if tag == f"{_TAG}float" else value

    def _refuse_tag(self, event: yaml.NodeEvent, path: Path) -> None:
        tag = getattr(event, "tag", None) or "!"
        self._refuse(path, f"has the tag {_short_tag(tag)}, which does not fit here; leave it out ({_line(event)})")

    def _refuse(self, path: Path, message: str) -> None:
        self._mistakes.add(path, message)


def _plain_value(text: str) -> Any:
    if text in _NAMED_SCALARS:
        return _NAMED_SCALARS[text]
    if not _NUMBER.fullmatch(text):
        return text
    return integer(text) if _INTEGER.fullmatch(text) else float(text)


def _is_plain(event: yaml.ScalarEvent) -> bool:
    return not event.style


def _short_tag(tag: str) -> str:
    return shortened(f"!!{tag.removeprefix(_TAG)}" if tag.startswith(_TAG) else tag if tag[0] == "!" else f"!<{tag}>")


def _line(event: yaml.Event) -> str:
    mark = event.start_mark
    return f"line {mark.line + 1}" if mark else "line unknown"


def _explanation(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{error.problem or error.context}"
