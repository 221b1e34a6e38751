"""Tables and lists of facts for the terminal, in which ids, names and addresses are whole, so that they can be copied.

They are as wide as their content. What is wider than the terminal goes on beyond its edge, and the terminal wraps it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from trainer.process_log.control_characters import escaped

TEXTS = frozenset({"parameters", "metrics", "reason", "why"})
"""The columns that are wrapped where the terminal is too narrow."""

MAX_WORD_WIDTH = 40
"""Longer words of these columns are broken, too. Shorter ones are whole, as `learning_rate=0.01` is."""

GAP = 2
"""The spaces between two columns, or between a label and its text."""


@dataclass(frozen=True)
class _Column:
    name: str
    cells: Sequence[str]

    @cached_property
    def widest(self) -> int:
        return max(_width(text) for text in (self.name, *self.cells))

    @cached_property
    def narrowest(self) -> int:
        if self.name not in TEXTS:
            return self.widest
        words = (word for text in (self.name, *self.cells) for word in text.split())
        return min(MAX_WORD_WIDTH, max(map(_width, words)))


class WholeColumns:
    """A table that takes only from the columns of texts where the terminal is too narrow. Rich takes from all."""

    def __init__(self, columns: Sequence[_Column]) -> None:
        self._columns = columns

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        widths = _widths(self._columns, options.max_width)
        shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for column, width in zip(self._columns, widths, strict=True):
            shown.add_column(column.name, width=width, overflow="fold")
        for row in zip(*(column.cells for column in self._columns), strict=True):
            shown.add_row(*map(_text, row))
        shown.width = sum(widths) + GAP * (len(widths) - 1)
        yield shown


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> WholeColumns:
    """A table of cells with markup, without the columns that are empty."""
    columns = map(_Column, names, zip(*rows, strict=True))
    return WholeColumns([column for column in columns if any(column.cells)])


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """The narrowest, and what is left of the room in equal parts to those that need more."""
    widths = [column.narrowest for column in columns]
    spare = max(0, room - sum(widths) - GAP * (len(columns) - 1))
    wanted = [column.widest - column.narrowest for column in columns]
    by_need = sorted(range(len(columns)), key=lambda index: wanted[index])
    for others, index in zip(range(len(columns), 0, -1), by_need, strict=True):
        more = min(wanted[index], spare // others)
        widths[index] += more
        spare -= more
    return widths


def facts(rows: Iterable[tuple[str, str]]) -> Group:
    """Lines of a label and a text with markup."""
    labelled = [(_text(label, style="bold"), _text(text)) for label, text in rows]
    width = max((label.cell_len for label, _ in labelled), default=0)
    lines = [label + " " * (width - label.cell_len + GAP) + text for label, text in labelled]
    return Group(Text("\n", no_wrap=True, overflow="ignore").join(lines))  # Rich wraps a text that is in no group


def plain(text: str, style: str = "", **options: Any) -> Text:
    """A text without markup. Control characters are in it as they are shown, so that Rich measures what is shown."""
    return Text(escaped(text), style=style, **options)


def _width(markup: str) -> int:
    return cell_len(_text(markup).plain)


def _text(markup: str, style: str = "") -> Text:
    """Leaves Rich's codes for emojis as they are: `x[:m:2]` is Python. Control characters are as in `plain`."""
    return Text.from_markup(escaped(markup), style=style, emoji=False)
