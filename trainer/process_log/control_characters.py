"""Control characters. A text from elsewhere must not have them at a terminal, where they move the cursor and hide text.

The service's commands use this, too.
"""

LINE_CHARACTERS = "\t\n"

C0, DELETE, C1 = range(0x20), 0x7F, range(0x80, 0xA0)
DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""They change the order in which a line is shown (Unicode's bidirectional controls)."""

LINE_ENDS = (0x2028, 0x2029)

_ESCAPES = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (*C0, DELETE, *C1, *DIRECTIONS, *LINE_ENDS)
    if chr(code) not in LINE_CHARACTERS
}


def escaped(text: str) -> str:
    r"""The text with each of them, except tabs and line breaks, as Python writes it: `\x1b`."""
    return text.translate(_ESCAPES)
