"""The lines that the training function prints: numbered, so that the audit sees which of them a log lacks."""

import re

NUMBERED = re.compile(r"chaos line (\d+)\.")


def numbered_line(number: int) -> str:
    """The n-th line of a rank. The full stop shows that the number is whole."""
    return f"chaos line {number}."
