"""Checks a package before anything runs: its file name, and that workers can unpack it."""

import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePosixPath

from search.mistakes import Mistake, shortened
from service.errors import Invalid, TooLarge
from service.operations.packages.member_content_check import fault_in_content
from service.operations.packages.member_name_check import mistakes_in_names
from service.operations.packages.zip_directory import ZipMember, read_directory

MAX_RATIO = 100
"""Unpacked bytes for each packed one, above `FREE_BYTES`. Code and data have up to 20; deflate allows 1,032."""
FREE_BYTES = 50_000_000
MAX_MISTAKES = 20

_PYTHON_FILE = re.compile(r"[A-Za-z0-9_.-]+\.py")
_SPECIAL_FILES = {
    stat.S_IFLNK: "a symbolic link; include the file itself",
    stat.S_IFIFO: "a named pipe; a package has files and folders only",
    stat.S_IFSOCK: "a socket; a package has files and folders only",
    stat.S_IFCHR: "a device; a package has files and folders only",
    stat.S_IFBLK: "a device; a package has files and folders only",
}


def safe_filename(filename: str) -> str:
    """A safe name for the header of the download. The name of a zip is not kept."""
    if not filename.endswith(".py"):
        return "package.zip"
    name = PurePosixPath(filename).name
    if not _PYTHON_FILE.fullmatch(name):
        raise Invalid(
            [Mistake(("filename",), f"may have letters, digits, _, - and dots, as in train.py; not {name!r}")]
        )
    return name


def check_contents(body: bytes, filename: str, max_unpacked: int) -> list[str]:
    """The names of the files in a zip or .py file. Raises Invalid, TooLarge for more than `max_unpacked` bytes.

    The zip is unpacked in pieces, which are not kept.
    """
    if filename.endswith(".py"):
        return [filename]
    members = read_directory(body)
    _refuse(mistakes_in_names(member.name for member in members))
    _refuse(_mistakes_in_kinds(members))
    files = [member for member in members if not member.is_folder]
    _check_size(sum(member.size for member in files), len(body), max_unpacked)
    if not files:
        raise Invalid([Mistake(("package",), "has no files")])
    for member in members:
        if fault := fault_in_content(body, member):
            raise Invalid([Mistake(("package", shortened(member.name)), fault)])
    return sorted(file.name for file in files)


def _check_size(unpacked: int, packed: int, max_unpacked: int) -> None:
    if unpacked > max_unpacked:
        raise TooLarge(
            f"the package unpacks to {unpacked / 1e6:g} MB; at most {max_unpacked / 1e6:g} MB are allowed",
            max_bytes=max_unpacked,
        )
    if unpacked > FREE_BYTES + MAX_RATIO * packed:
        message = (
            f"the zip unpacks to {unpacked / 1e6:g} MB, {unpacked / packed:.0f} times its size; at most "
            f"{FREE_BYTES / 1e6:g} MB plus {MAX_RATIO} times its size are allowed: create such files when training "
            "starts"
        )
        raise Invalid([Mistake(("package",), message)])


def _mistakes_in_kinds(members: list[ZipMember]) -> Iterator[Mistake]:
    for member in members:
        kind = stat.S_IFMT(member.mode)
        if kind in _SPECIAL_FILES:
            yield Mistake(("package", member.name), f"is {_SPECIAL_FILES[kind]}")
        elif kind == stat.S_IFDIR and not member.is_folder:
            yield Mistake(("package", member.name), "is marked as a folder, and its name does not end with /")
        elif member.is_folder and member.size:
            yield Mistake(("package", member.name), "is a folder and has content")


def _refuse(mistakes: Iterator[Mistake]) -> None:
    if found := list(islice(mistakes, MAX_MISTAKES)):
        raise Invalid(found)
