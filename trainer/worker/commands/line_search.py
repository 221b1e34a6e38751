"""What the lines of a command's output say of metrics, by regular expressions."""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

MAX_LINE_BYTES = 8192
"""Longer lines are not searched: a pattern may take time by the square of the length, and holds up all threads."""


class LineSearch:
    r"""The line that is being read, of which the metrics of its last state with any count.

    A progress bar rewrites the line by `\r`. States that were rewritten are searched and forgotten once the line is
    long; a state that is long itself is not searched.
    """

    def __init__(self, patterns: Sequence[re.Pattern[str]], warn: Callable[[str], None]) -> None:
        self._patterns, self._warn = patterns, warn
        self._begun = b""
        self._shown: dict[str, Any] = {}
        self._has_warned = False

    def add(self, output: bytes) -> None:
        """Gets what follows in the same line."""
        self._begun += output
        if len(self._begun) <= MAX_LINE_BYTES:
            return
        rewritten, end, state = self._begun.rpartition(b"\r")
        if end:
            self._shown = self._shown_last(rewritten)
        if len(state) > MAX_LINE_BYTES:
            self._warn_once()
        self._begun = state[: MAX_LINE_BYTES + 1]  # so much shows that it is too long

    def end(self, output: bytes) -> dict[str, Any]:
        """Gets the line's end, and returns the metrics of the line."""
        found = self._shown_last(self._begun + output)
        self._begun, self._shown = b"", {}
        return found

    def _shown_last(self, output: bytes) -> dict[str, Any]:
        """Return the metrics of the last state with any, here or before."""
        for state in reversed(output.split(b"\r")):
            if len(state) > MAX_LINE_BYTES:
                self._warn_once()
            elif metrics := metrics_in(state.decode(errors="replace"), self._patterns):
                return metrics
        return self._shown

    def _warn_once(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"a line of the output with more than {MAX_LINE_BYTES} bytes is not searched for metrics")


def metrics_in(line: str, patterns: Sequence[re.Pattern[str]]) -> dict[str, Any]:
    """Return what all patterns find in the line. The groups `name` and `value` give all pairs of the line."""
    groups = (group for pattern in patterns for group in _groups_in(line, pattern))
    return {name: _number(text) for name, text in groups if name is not None and text is not None}


def _groups_in(line: str, pattern: re.Pattern[str]) -> Iterable[tuple[str | None, str | None]]:
    if {"name", "value"} <= pattern.groupindex.keys():
        return [(match["name"], match["value"]) for match in pattern.finditer(line)]
    match = pattern.search(line)
    return match.groupdict().items() if match else ()


def _number(text: str) -> float | str:
    """Return the number that the text is, or else the text."""
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text.replace("_", "?"))  # Python reads 1_0 as 10
    return text
