"""Archives that lie about what they hold: refused with the reason, in bounded memory and time; nothing is stored."""

import io
import stat
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import Invalid, ServiceError
from service.operations.packages.package_check import check_contents
from tests.conftest import Api

pytestmark = pytest.mark.slow

TRAIN = b"def train_fn(config): pass\n"
MAX_UNPACKED = 1_000_000_000
UTF_8 = 0x800


@dataclass(frozen=True)
class Member:
    """A member of a zip. The fields that are None are written as they should be."""

    name: bytes = b"train.py"
    content: bytes = TRAIN
    method: int = zipfile.ZIP_DEFLATED
    flags: int = 0
    mode: int = 0
    local_name: bytes | None = None
    size: int | None = None
    local_size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    offset: int | None = None
    data: bytes | None = None
    extra: bytes = b""

    @property
    def packed(self) -> bytes:
        if self.data is not None:
            return self.data
        if self.method != zipfile.ZIP_DEFLATED:
            return self.content
        compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
        return compressor.compress(self.content) + compressor.flush()


def zipped(*members: Member, count: int | None = None, comment: bytes = b"", tail: bytes = b"") -> bytes:
    body, directory = b"", b""
    for one in members:
        packed = one.packed
        crc = zlib.crc32(one.content) if one.crc is None else one.crc
        size = len(one.content) if one.size is None else one.size
        packed_size = len(packed) if one.packed_size is None else one.packed_size
        local_size = size if one.local_size is None else one.local_size
        local_name = one.name if one.local_name is None else one.local_name
        offset = len(body) if one.offset is None else one.offset
        head = (20, one.flags, one.method, 0, 33, crc, packed_size)
        body += struct.pack("<4s5H3L2H", b"PK\3\4", *head, local_size, len(local_name), 0) + local_name + packed
        entry = (*head, size, len(one.name), len(one.extra), 0, 0, 0, one.mode << 16, offset)
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", 3 << 8 | 20, *entry) + one.name + one.extra
    counted = len(members) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, counted, counted, len(directory), len(body), len(comment))
    return body + directory + end + comment + tail


GOOD = Member()
A_FILE = Member(b"a", b"x")
INNER_FILE = Member(b"b.py", method=0)
INNER = zipped(INNER_FILE)[: 30 + 4 + len(TRAIN)]
"""A member within the content of another."""
ZIP64_ENTRY = Member(size=2**32 - 1, packed_size=2**32 - 1, extra=struct.pack("<2H2Q", 1, 16, 2**40, 27))
LYING = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2**40, 2**40, 2**40, 2**40) + struct.pack(
    "<4sLQL", b"PK\6\7", 0, 100, 1
)


def lzma_archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("train.py", b" " * 30_000_000)
    return packed.getvalue()


# Made when they are used: it takes seconds, and each of pytest's workers imports this file.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "LZMA": (lzma_archive, "LZMA"),
    "bzip2": (lambda: zipped(Member(method=12)), "bzip2"),
    "an unknown compression": (lambda: zipped(Member(method=99)), "99"),
    "a bomb": (lambda: zipped(GOOD, Member(b"b", b"\0" * 70_000_000)), "times"),
    "many small bombs": (lambda: zipped(GOOD, *(Member(b"%d" % n, b"\0" * 1_000_000) for n in range(70))), "times"),
    "a bomb that says it is small": (
        lambda: zipped(GOOD, Member(b"b", b"\0" * 70_000_000, size=10, crc=zlib.crc32(b"\0" * 10))), "more"),
    "overlapping members": (
        lambda: zipped(Member(b"a.py", INNER, method=0), replace(INNER_FILE, offset=34)), "overlap"),
    "one content for many": (
        lambda: zipped(GOOD, *(replace(GOOD, name=b"%d.py" % n, offset=0) for n in range(9))), "header"),
    "one member many times": (lambda: zipped(GOOD, *[replace(GOOD, offset=0)] * 9), "overlap"),
    "no name": (lambda: zipped(GOOD, Member(b"")), "no name"),
    "only a slash": (lambda: zipped(GOOD, Member(b"/", b"")), "below its root"),
    "an absolute name": (lambda: zipped(GOOD, Member(b"/etc/x")), "below its root"),
    "a parent folder": (lambda: zipped(GOOD, Member(b"a/../../x")), "below its root"),
    "a parent folder's folder": (lambda: zipped(GOOD, Member(b"../", b"")), "below its root"),
    "a drive": (lambda: zipped(GOOD, Member(b"C:x")), "below its root"),
    "a backslash": (lambda: zipped(GOOD, Member(b"a\\b.py")), "a backslash"),
    "a NUL": (lambda: zipped(GOOD, Member(b"a\0b.py")), "character"),
    "a line break": (lambda: zipped(GOOD, Member(b"a\nb.py")), "character"),
    "a direction mark": (lambda: zipped(GOOD, Member("a\u202eb.py".encode(), flags=UTF_8)), "character"),
    "an empty part": (lambda: zipped(GOOD, Member(b"a//b.py")), "'a/b.py'"),
    "a dot": (lambda: zipped(GOOD, Member(b"./a.py")), "'a.py'"),
    "a long name": (lambda: zipped(GOOD, Member(b"a" * 300)), "255"),
    "a long path": (lambda: zipped(GOOD, Member(b"a/" * 150 + b"b")), "255"),
    "a long name in UTF-8": (lambda: zipped(GOOD, Member("ä".encode() * 130, flags=UTF_8)), "255"),
    "a name that is not UTF-8": (lambda: zipped(GOOD, Member(b"\xff.py", flags=UTF_8)), "UTF-8"),
    "a name with a lone surrogate": (lambda: zipped(GOOD, Member(b"\xed\xa0\x80", flags=UTF_8)), "UTF-8"),
    "a symbolic link": (lambda: zipped(GOOD, Member(b"l", b"/etc/passwd", mode=stat.S_IFLNK | 0o777)), "symbolic link"),
    "a link as a folder": (lambda: zipped(GOOD, Member(b"l/", b"", mode=stat.S_IFLNK | 0o777)), "symbolic link"),
    "a FIFO": (lambda: zipped(GOOD, Member(b"f", b"", mode=stat.S_IFIFO | 0o644)), "named pipe"),
    "a device": (lambda: zipped(GOOD, Member(b"f", b"", mode=stat.S_IFCHR | 0o644)), "device"),
    "a disk": (lambda: zipped(GOOD, Member(b"f", b"", mode=stat.S_IFBLK | 0o644)), "device"),
    "a socket": (lambda: zipped(GOOD, Member(b"f", b"", mode=stat.S_IFSOCK | 0o644)), "socket"),
    "a folder with content": (lambda: zipped(GOOD, Member(b"f/", b"x")), "folder"),
    "a file marked as a folder": (lambda: zipped(GOOD, Member(b"f", b"x", mode=stat.S_IFDIR | 0o755)), "folder"),
    "a file that is also a folder": (lambda: zipped(GOOD, A_FILE, Member(b"a/b.py")), "also a folder"),
    "a folder that is also a file": (lambda: zipped(GOOD, Member(b"a/b/c.py"), Member(b"a/b")), "also a folder"),
    "a folder of the same name": (lambda: zipped(GOOD, Member(b"a/", b""), A_FILE), "also a folder"),
    "a name twice": (lambda: zipped(GOOD, GOOD), "twice"),
    "a name in another case": (lambda: zipped(GOOD, Member(b"Train.PY")), "'train.py'"),
    "a name in another normal form": (
        lambda: zipped(GOOD, Member("é".encode(), flags=UTF_8), Member("e\u0301".encode(), flags=UTF_8)), "twice"),
    "a folder's file in another case": (lambda: zipped(GOOD, Member(b"A"), Member(b"a/b.py")), "also a folder"),
    "encrypted": (lambda: zipped(Member(flags=1)), "encrypted"),
    "strongly encrypted": (lambda: zipped(Member(flags=0x41)), "encrypted"),
    "an encrypted directory": (lambda: zipped(Member(flags=0x2000)), "encrypted"),
    "patches": (lambda: zipped(Member(flags=0x20)), "patch"),
    "a wrong checksum": (lambda: zipped(Member(crc=1)), "damaged"),
    "too small a size": (lambda: zipped(Member(size=5)), "more"),
    "too large a size": (lambda: zipped(Member(size=500)), "less"),
    "too large a stored size": (lambda: zipped(Member(size=500, method=0)), "damaged"),
    "another size in the local header": (lambda: zipped(Member(local_size=500)), "header"),
    "another name in the local header": (lambda: zipped(Member(local_name=b"eviL.py.")), "header"),
    "packed beyond the archive": (lambda: zipped(Member(packed_size=10_000)), "overlap"),
    "bytes after the content": (lambda: zipped(Member(data=GOOD.packed + b"more")), "damaged"),
    "half a content": (lambda: zipped(Member(data=GOOD.packed[:9])), "damaged"),
    "no deflate": (lambda: zipped(Member(data=b"\xff" * 20)), "damaged"),
    "an offset outside": (lambda: zipped(Member(offset=2**31)), "header"),
    "an offset into the directory": (lambda: zipped(Member(offset=60)), "header"),
    "a larger count": (lambda: zipped(GOOD, count=2), "directory"),
    "a smaller count": (lambda: zipped(GOOD, A_FILE, count=1), "directory"),
    "a damaged extra field": (lambda: zipped(Member(extra=struct.pack("<2H", 1, 9) + b"x")), "extra field"),
    "zip64 sizes": (lambda: zipped(ZIP64_ENTRY), "zip64"),
    "a zip64 directory": (lambda: zipped(GOOD).replace(b"PK\5\6", LYING + b"PK\5\6"), "zip64"),
    "bytes before the archive": (lambda: b"#!/bin/sh\n" + zipped(GOOD), "directory"),
    "bytes after the archive": (lambda: zipped(GOOD, tail=b"x"), "end"),
    "two archives": (lambda: zipped(GOOD) + zipped(Member(b"evil.py")), "directory"),
    "an archive in the comment": (lambda: zipped(GOOD, comment=zipped(Member(b"evil.py"))), "directory"),
    "half an archive": (lambda: zipped(GOOD)[:-30], "neither"),
    "an empty archive": (zipped, "no files"),
    "only a folder": (lambda: zipped(Member(b"a.py/", b"")), "no files"),
    "no bytes": (lambda: b"", "neither"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_zip_that_lies_is_refused_with_the_reason_in_little_memory(make: Callable[[], bytes], reason: str) -> None:
    body = make()
    tracemalloc.start()
    started = time.thread_time()
    try:
        with pytest.raises(Invalid) as raised:
            check_contents(body, "package.zip", MAX_UNPACKED)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reason in raised.value.detail
    assert len(raised.value.detail) < 10_000
    assert peak < 5_000_000
    assert time.thread_time() - started < 2


def test_a_directory_of_a_million_members_is_refused_before_it_is_read() -> None:
    member = struct.pack("<4s6H3L5H2L", b"PK\1\2", *[0] * 9, 1, *[0] * 6) + b"x"
    directory = member * 500_000
    body = directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65_535, 65_535, len(directory), 0, 0)
    tracemalloc.start()
    with pytest.raises(ServiceError, match="10000 files"):
        check_contents(body, "package.zip", MAX_UNPACKED)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_nothing_of_a_refused_zip_is_stored(service: Api) -> None:
    for make, reason in (HOSTILE[name] for name in ("LZMA", "a bomb", "a FIFO", "a name twice", "zip64 sizes")):
        assert reason in service.post("/v1/packages", 422, content=make())["detail"]
    assert list(service.app.state.context.settings.packages_dir.iterdir()) == []


GOOD_ZIPS = {
    "plain": zipped(GOOD, Member(b"a/", b"", method=0), Member(b"a/b.py"), Member(b"c.txt", b"", method=0)),
    "modes": zipped(Member(mode=stat.S_IFREG | 0o644), Member(b"a/", b"", method=0, mode=stat.S_IFDIR | 0o755)),
    "a comment": zipped(GOOD, comment=b"made by hand"),
    "UTF-8": zipped(GOOD, Member("données/é.csv".encode(), flags=UTF_8)),
    "much of one byte": zipped(GOOD, Member(b"zeros.bin", b"\0" * 5_000_000)),
    "options of deflate": zipped(Member(flags=6)),
    "a long name": zipped(GOOD, Member(b"a" * 255)),
    "one letter's case in folders": zipped(GOOD, Member(b"A/x.py"), Member(b"a/y.py")),
}


@pytest.mark.parametrize("body", GOOD_ZIPS.values(), ids=GOOD_ZIPS.keys())
def test_a_zip_that_is_right_is_taken(body: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        names = sorted(name for name in archive.namelist() if not name.endswith("/"))
    assert check_contents(body, "package.zip", MAX_UNPACKED) == names


def test_a_zip_that_was_written_as_a_stream_is_taken() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise io.UnsupportedOperation

        def tell(self) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.py", TRAIN)
        with archive.open("big.bin", "w", force_zip64=True) as file:
            file.write(b"x" * 1000)
    assert check_contents(pipe.getvalue(), "package.zip", MAX_UNPACKED) == ["big.bin", "train.py"]


changes = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=6)


@given(st.sampled_from([*GOOD_ZIPS.values()]).filter(lambda body: len(body) < 2000), changes, st.integers(0, 60))
def test_a_changed_zip_is_taken_or_refused(body: bytes, bytes_at: list[tuple[int, int]], cut: int) -> None:
    """What is taken is what Python's zipfile, which the workers use, unpacks in the same way."""
    changed = bytearray(body)
    for place, byte in bytes_at:
        changed[-1 - place % len(changed)] = byte
    content = bytes(changed[: len(changed) - cut])
    try:
        files = check_contents(content, "package.zip", MAX_UNPACKED)
    except ServiceError as error:
        assert error.detail  # noqa: PT017
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert sorted(info.filename for info in archive.infolist() if not info.is_dir()) == files


@given(st.binary(max_size=100))
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(Invalid):
        check_contents(body + b"PK\5\6" + body, "package.zip", MAX_UNPACKED)
