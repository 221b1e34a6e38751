"""Masks secrets in what a worker prints and reports. It travels to the workers by value."""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"

MIN_LENGTH = 4
"""Shorter values would be found in ordinary text."""

MIN_PART_LENGTH = 8
"""The shortest line that is masked of a secret with several lines, and the shortest base64 form."""

_PERCENT = re.compile("%[0-9A-F]{2}")
LINE_BREAKS = re.compile(r"[\r\n]+")


class Masker:
    """Replaces each secret by `***`, also when it is broken over lines.

    It finds a secret as it is, each line of one with several lines, and its forms in URLs, JSON, HTML, Python's `repr`,
    hex and base64, also where it is a part of what was encoded. Without secrets it changes nothing.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {LINE_BREAKS.sub("", form) for secret in secrets for form in _forms(secret)}
        self._forms = sorted((form for form in found if len(form) >= MIN_LENGTH), key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def mask(self, text: str) -> str:
        """The text with all secrets masked."""
        joined = LINE_BREAKS.sub("", text)
        spans = sorted(self._spans(joined))
        return _replace(text, spans) if spans else text

    def mask_json(self, value: Any) -> Any:
        """The JSON value with all secrets masked, in names, too."""
        match value:
            case str():
                return self.mask(value)
            case dict():
                return {self.mask(name): self.mask_json(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.mask_json(inner) for inner in value]
            case _:
                return value

    def split(self, text: str) -> tuple[str, str]:
        """The text in two parts: what may be masked and sent now, and an end that may be the beginning of a secret."""
        joined = LINE_BREAKS.sub("", text)
        begun = max((_begun(form, joined) for form in self._forms), default=0)
        if not begun:
            return text, ""
        start = len(joined) - begun
        for first, end in sorted(self._spans(joined), reverse=True):
            if first < start < end:  # a whole secret is not cut
                start = first
        start = _positions(text)[start]
        return text[:start], text[start:]

    def _spans(self, joined: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            yield from _spans(form, joined)


def _forms(secret: str) -> Iterator[str]:
    for quoted in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret)):
        yield from (quoted, _PERCENT.sub(lambda found: found[0].lower(), quoted))
    for dumped in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        yield from (dumped[1:-1], dumped[1:-1].replace("/", r"\/"))
    encoded = secret.encode()
    yield from (repr(secret)[1:-1], ascii(secret)[1:-1], repr(encoded)[2:-1])
    yield from (html.escape(secret), html.escape(secret, quote=False), encoded.hex(), encoded.hex().upper())
    lines = [line.strip() for line in secret.splitlines()]
    yield from (line for line in lines if len(line) >= MIN_PART_LENGTH)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            yield from _inside_base64(encode(b"\0" * before + encoded).decode(), before, len(encoded))


def _inside_base64(encoded: str, before: int, length: int) -> Iterator[str]:
    """The characters that depend on the secret alone, whatever is encoded around it."""
    first, last = -(-before * 8 // 6), (before + length) * 8 // 6
    part = encoded[first:last]
    if len(part) >= MIN_PART_LENGTH:
        yield part


def _spans(form: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = text.find(form, start + 1)


def _begun(form: str, text: str) -> int:
    """How many of the text's last characters are the beginning of the form."""
    start = text.find(form[0], max(0, len(text) - len(form) + 1))
    while start >= 0:
        if form.startswith(text[start:]):
            return len(text) - start
        start = text.find(form[0], start + 1)
    return 0


def _replace(text: str, spans: list[tuple[int, int]]) -> str:
    """Mask the spans, which are positions in the text without its line breaks."""
    positions, parts, done = _positions(text), list[str](), 0
    for start, end in spans:
        first, last = positions[start], positions[end - 1] + 1
        if first >= done:
            parts += (text[done:first], MASK)
        done = max(done, last)
    return "".join((*parts, text[done:]))


def _positions(text: str) -> list[int]:
    return [index for index, character in enumerate(text) if character not in "\r\n"]
