"""The names in a package: paths that every file system can hold, each for one file or folder."""

import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from search.mistakes import Mistake, shortened

MAX_NAME_BYTES = 255
"""Of a path in UTF-8, so that it fits file systems with the folder before it."""


def mistakes_in_names(names: Iterable[str]) -> Iterator[Mistake]:
    """Paths that are not plain or that stand for more than one file; a name of a folder ends with `/`."""
    first: dict[str, str] = {}
    files: dict[str, str] = {}
    parents: set[str] = set()
    for name in names:
        if fault := _fault_in(name):
            yield Mistake(("package", shortened(name)), fault)
            continue
        key = _key(name.removesuffix("/"))
        if key in first:
            yield Mistake(("package", shortened(name)), _clash(name, first[key]))
        first.setdefault(key, name)
        parents |= {str(parent) for parent in PurePosixPath(key).parents}
        if not name.endswith("/"):
            files[key] = name
    for key in files.keys() & parents:
        yield Mistake(("package", shortened(files[key])), "is a file and also a folder; rename one of the two")


def _key(name: str) -> str:
    """Equal for names that some file systems take for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _clash(name: str, other: str) -> str:
    if name.endswith("/") != other.endswith("/"):
        return "is a file and also a folder; rename one of the two"
    return f"is in the zip twice, first as {shortened(other)!r}; some file systems take both for the same"


def _fault_in(name: str) -> str | None:
    parts = name.replace("\\", "/").split("/")
    plain = "/".join(part for part in parts if part not in {"", "."})
    if name and (not parts[0] or ".." in parts or ":" in parts[0]):
        return "points outside the package; every path must stay below its root"
    if not plain:
        return "a member has no name"
    return _fault_in_spelling(name, plain)


def _fault_in_spelling(name: str, plain: str) -> str | None:
    if not name.isprintable():
        return f"has a character that cannot be printed: {shortened(name)!a}"
    if "\\" in name:
        return "has a backslash; folders are separated with /"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"is too long: a path may have at most {MAX_NAME_BYTES} bytes, this one has {len(name.encode())}"
    if plain != name.removesuffix("/"):
        return f"is not a plain path; write it as {plain!r}"
    return None
