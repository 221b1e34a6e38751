"""The directory of a zip, read strictly: what it says is compared with the archive, so that every reader sees the same.

Python's zipfile, which the workers unpack with, accepts archives in which members overlap or whose directory and
local headers differ, and it builds an object for each entry before anyone can count them.
"""

import struct
from dataclasses import dataclass

from search.mistakes import Mistake, shortened
from service.errors import Invalid, TooLarge

MAX_FILES = 10_000
"""Files and folders."""

_END = struct.Struct("<4s4H2LH")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_EXTRA = struct.Struct("<2H")
_LOCAL = struct.Struct("<4s5H3L2H")
_ZIP64_LOCATOR_SIZE = 20
_IN_ZIP64 = 0xFFFFFFFF
_MAX_COMMENT = 0xFFFF
_MAX_VERSION = 63
"""Of the format, 6.3: the newest that Python's zipfile reads."""

_ENCRYPTED = 0x1 | 0x40 | 0x2000
_PATCH = 0x20
_SIZES_FOLLOW = 0x8
"""The local header has no sizes, because the archive was written as a stream."""
_UTF_8 = 0x800
_KNOWN_METHODS = {0: "stored", 8: "deflate"}
_OTHER_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "xz"}


@dataclass(frozen=True)
class ZipMember:
    """A file or folder in a zip, as its directory describes it; `start` and `end` are where its packed bytes are."""

    name: str
    mode: int
    deflated: bool
    crc: int
    size: int
    header: int
    start: int
    end: int

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


def read_directory(body: bytes) -> list[ZipMember]:
    """Every member. Raises Invalid, TooLarge for more than `MAX_FILES` members."""
    end = body.rfind(b"PK\5\6", max(0, len(body) - _END.size - _MAX_COMMENT))
    if end < 0 or len(body) < end + _END.size:
        raise Invalid([Mistake(("package",), "must be a zip or, with ?filename=train.py, a .py file; it is neither")])
    _, disk, first_disk, count_here, count, size, start, comment = _END.unpack_from(body, end)
    if body[max(0, end - _ZIP64_LOCATOR_SIZE) :].startswith(b"PK\6\7"):
        raise _unreadable("it uses zip64, which a package of this size does not need; create it without")
    if end + _END.size + comment != len(body):
        raise _unreadable("it does not end where its directory says")
    if (disk, first_disk, count_here) != (0, 0, count) or start + size != end:
        raise _unreadable("its directory is not where the archive says; a package must be one zip and nothing else")
    if count > MAX_FILES or size > MAX_FILES * (_ENTRY.size + _MAX_COMMENT):
        raise TooLarge(
            f"a package may have at most {MAX_FILES} files, this one has {count} or more", max_files=MAX_FILES
        )
    members = _members(body, start, end, count)
    _check_overlaps(members, start)
    return members


def _members(body: bytes, start: int, end: int, count: int) -> list[ZipMember]:
    members: list[ZipMember] = []
    while start < end and len(members) < count:
        if end - start < _ENTRY.size or not body.startswith(b"PK\1\2", start):
            raise _unreadable("its directory is damaged; create the zip again")
        lengths = struct.unpack_from("<3H", body, start + 28)
        members.append(_member(body, start, lengths[0]))
        start += _ENTRY.size + sum(lengths)
    if start != end or len(members) != count:
        raise _unreadable(f"its directory does not have the {count} entries that it says")
    return members


def _member(body: bytes, at: int, name_length: int) -> ZipMember:
    entry = _ENTRY.unpack_from(body, at)
    version, flags, method, _, _, crc, packed_size, size = entry[2:10]
    attributes, header = entry[15:17]
    raw_name = body[at + _ENTRY.size : at + _ENTRY.size + name_length]
    name = _decoded(raw_name, flags)
    extra_at = at + _ENTRY.size + name_length
    if _is_damaged(body[extra_at : extra_at + entry[11]]):
        raise Invalid([Mistake(("package", shortened(name)), "has a damaged extra field; create the zip again")])
    if fault := _fault_in_format(version, flags, method):
        raise Invalid([Mistake(("package", shortened(name)), fault)])
    if _IN_ZIP64 in {packed_size, size, header}:
        raise _unreadable("it uses zip64, which a package of this size does not need; create it without")
    start = _check_local_header(body, header, raw_name, (flags, method), (crc, packed_size, size))
    return ZipMember(name, attributes >> 16, method == 8, crc, size, header, start, start + packed_size)  # noqa: PLR2004


def _decoded(raw_name: bytes, flags: int) -> str:
    try:
        return raw_name.decode("utf-8" if flags & _UTF_8 else "cp437")
    except UnicodeDecodeError as error:
        raise _unreadable(f"the name {shortened(repr(raw_name))} is marked as UTF-8 and is not") from error


def _is_damaged(extra: bytes) -> bool:
    """Whether a field is longer than the rest: zipfile then refuses the whole archive."""
    while len(extra) >= _EXTRA.size:
        _, length = _EXTRA.unpack_from(extra)
        if _EXTRA.size + length > len(extra):
            return True
        extra = extra[_EXTRA.size + length :]
    return False


def _fault_in_format(version: int, flags: int, method: int) -> str | None:
    if flags & _ENCRYPTED:
        return "is encrypted; create the zip without a password"
    if flags & _PATCH:
        return "is a patch of another file; include the file itself"
    if method not in _KNOWN_METHODS:
        return f"is packed with {_OTHER_METHODS.get(method, f'method {method}')}; use deflate, as most tools do"
    if version & 0xFF > _MAX_VERSION:
        return "needs a newer version of zip; use deflate, as most tools do"
    return None


def _check_local_header(
    body: bytes, header: int, raw_name: bytes, format_: tuple[int, int], facts: tuple[int, int, int]
) -> int:
    """Where the packed bytes start. Raises Invalid for a local header that differs from the directory."""
    if header + _LOCAL.size > len(body):
        raise _unlike_header(raw_name)
    signature, _, flags, method, _, _, *local_facts, name_length, extra_length = _LOCAL.unpack_from(body, header)
    start: int = header + _LOCAL.size + name_length + extra_length
    local_name = body[header + _LOCAL.size : header + _LOCAL.size + name_length]
    if (signature, flags, method, local_name) != (b"PK\3\4", *format_, raw_name):
        raise _unlike_header(raw_name)
    if not flags & _SIZES_FOLLOW and any(
        local not in {fact, _IN_ZIP64} for local, fact in zip(local_facts, facts, strict=True)
    ):
        raise _unlike_header(raw_name)
    return start


def _check_overlaps(members: list[ZipMember], directory: int) -> None:
    in_order = sorted(members, key=lambda one: one.header)
    next_headers = [*(one.header for one in in_order[1:]), directory] if in_order else []
    for one, next_header in zip(in_order, next_headers, strict=True):
        if one.end > next_header:
            raise Invalid([Mistake(("package", shortened(one.name)), "overlaps with other parts of the zip")])


def _unlike_header(raw_name: bytes) -> Invalid:
    name = shortened(raw_name.decode("utf-8", "replace"))
    return Invalid([Mistake(("package", name), "has a local header that differs from the directory; recreate the zip")])


def _unreadable(reason: str) -> Invalid:
    return Invalid([Mistake(("package",), f"the zip cannot be read: {reason}")])
