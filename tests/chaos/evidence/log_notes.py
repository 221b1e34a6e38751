"""The notes of the service in a log where output is missing."""

import re

MISSING_HERE = re.compile(r"\[paceline: (?:[\d,]+ bytes of output did not arrive|the log ends here)")
MISSING_AT_END = "output that had not arrived by then is missing]"


def is_note(line: str) -> bool:
    return bool(MISSING_HERE.search(line)) or is_end_note(line)


def is_end_note(line: str) -> bool:
    """Whether it says that the attempt was ended without its slot. Such a note belongs to no rank."""
    return line.endswith(MISSING_AT_END)
