"""Text that the service can keep: it holds no NUL and no lone surrogate, neither of which a database can store."""

CUT = "\n[... {count} characters left out ...]\n"


def storable(text: str, longest: int | None = None) -> str:
    """The text without what cannot be stored, and with its middle left out where it is longer than `longest`."""
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if longest is None or len(clean) <= longest:
        return clean
    mark = CUT.format(count=len(clean) - longest)
    head = (longest - len(mark)) // 2
    return clean[:head] + mark + clean[len(clean) - (longest - len(mark) - head) :]
