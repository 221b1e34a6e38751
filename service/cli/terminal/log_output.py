"""The output of a trial's workers as the terminal gets it: with its colours, and no other control sequence."""

import re
from collections.abc import Iterable, Iterator

from trainer.process_log.control_characters import escaped

KEPT = re.compile(r"(\x1b\[[\d;:]{0,100}m|\r)")
"""Colours and styles (ECMA-48, SGR), and the carriage returns of progress bars."""

OTHER_SEQUENCE = re.compile(r"\x1b\[[0-?]{0,100}[ -/]{0,10}[@-~]")
"""As of progress bars that move the cursor. They are left out, and other control characters are shown."""

BEGUN = re.compile(r"\x1b(\[[0-?]{0,100}[ -/]{0,10})?\Z")


def log_output(chunks: Iterable[str]) -> Iterator[str]:
    """A sequence may begin in one chunk and end in the next."""
    begun = ""
    for chunk in chunks:
        text = begun + chunk
        found = BEGUN.search(text)
        begun = found[0] if found else ""
        if whole := text.removesuffix(begun):
            yield _shown(whole)
    if begun:
        yield _shown(begun)


def _shown(text: str) -> str:
    """`split` returns what lies between the kept parts, and these, by turns."""
    parts = enumerate(KEPT.split(text))
    return "".join(part if place % 2 else escaped(OTHER_SEQUENCE.sub("", part)) for place, part in parts)
