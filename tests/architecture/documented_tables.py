"""Reads the tables of the documents, for tests that compare them with the code."""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def rows_under(page: str, heading: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading, each by the names of its columns."""
    _, found, below = (DOCS / page).read_text().partition(f"\n{heading}\n")
    assert found, f"docs/{page} has no heading {heading!r}"
    section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
    names, *rows = _cells(section)
    assert all(len(row) == len(names) for row in rows), f"a row has more or fewer cells: docs/{page}, {heading}"
    return [dict(zip(names, row, strict=True)) for row in rows]


def _cells(section: str) -> Iterator[list[str]]:
    """The cells of the header, and of each row."""
    _, bar, table = section.partition("\n|")
    for line in takewhile(lambda line: line.startswith("|"), f"{bar}{table}".strip().splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if set("".join(cells)) - {"-", ":"}:
            yield cells


def code_in(cell: str) -> list[str]:
    """What a cell has between backticks."""
    return re.findall(r"`([^`]*)`", cell)
