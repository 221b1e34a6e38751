"""Tables and lists of facts for the terminal, in which ids, names and addresses are whole, so that they can be copied.

They are as wide as their content. What is wider than the terminal goes on beyond its edge, and the terminal wraps it.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

TEXTS = frozenset({"parameters", "metrics", "reason", "best", "why"})
"""The columns that are wrapped where the terminal is too narrow."""

MIN_TEXT_WIDTH = 12
GAP = 2
"""The spaces between two columns."""


class _WholeColumns(Table):
    """Is wider than the terminal if its columns are: Rich would take from all of them, down to nothing."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = sum(column.min_width or 0 for column in self.columns) + GAP * (len(self.columns) - 1)
        yield from super().__rich_console__(console, options.update(max_width=max(needed, options.max_width)))


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of cells with markup, without the columns that are empty."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    kept = [(name, cells) for name, cells in zip(names, columns, strict=True) if any(cells)]
    shown = _WholeColumns(box=None, pad_edge=False, header_style="bold")
    for name, cells in kept:
        width = max(_width(text) for text in (name, *cells))
        is_text = name in TEXTS
        min_width = min(width, MIN_TEXT_WIDTH) if is_text else width
        shown.add_column(name, no_wrap=not is_text, overflow="fold", min_width=min_width)
    for row in zip(*(cells for _, cells in kept), strict=True):
        shown.add_row(*row)
    return shown


def facts(rows: Iterable[tuple[str, str]]) -> Group:
    """Lines of a label and a text with markup."""
    labelled = [(Text.from_markup(label, style="bold"), Text.from_markup(text)) for label, text in rows]
    width = max((label.cell_len for label, _ in labelled), default=0)
    lines = [label + " " * (width - label.cell_len + GAP) + text for label, text in labelled]
    return Group(Text("\n", no_wrap=True, overflow="ignore").join(lines))  # Rich wraps a text that is in no group


def _width(markup: str) -> int:
    return cell_len(Text.from_markup(markup).plain)
