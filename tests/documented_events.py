"""The kinds of events, and the fields of their data, as docs/reference/events.md has them."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from tests.architecture.documented_tables import code_in, rows_under

PAGE = "reference/events.md"
SECTIONS = ("## Of the experiment", "## Of a trial", "## Of an attempt")


@cache
def documented_events() -> Mapping[str, frozenset[str]]:
    """The fields by kind. A row that has the fields of the one before says `the same`."""
    known: dict[str, frozenset[str]] = {}
    fields = frozenset[str]()
    for row in (row for section in SECTIONS for row in rows_under(PAGE, section)):
        earlier = fields if row["`data`"].startswith("the same") else frozenset[str]()
        fields = earlier | set(code_in(re.sub(r"\]\([^)]*\)", "]", row["`data`"])))
        known |= dict.fromkeys(code_in(row["kind"]), fields)
    return known


def undocumented(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the page lacks of these events, as the API shows them."""
    known = documented_events()
    return [
        f"{event['kind']}: {name}"
        for event in events
        for name in ("", *event["data"])
        if event["kind"] not in known or (name and name not in known[event["kind"]])
    ]
