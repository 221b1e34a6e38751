"""An archive's layout is known before a file is read, and any range of it can be made by itself."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from service.operations.checkpoints.tar_layout import Entry, FilePart, TarLayout

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=120).filter(
    lambda name: name not in {".", ".."}
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
CONTENTS = st.dictionaries(PATHS, st.binary(max_size=1500), max_size=5).filter(
    lambda files: not any(str(parent) in files for name in files for parent in PurePosixPath(name).parents)
)


def layout_of(contents: dict[str, bytes]) -> TarLayout:
    return TarLayout("top", [Entry(name, len(content), 1.5e9) for name, content in contents.items()])


def sent(layout: TarLayout, contents: dict[str, bytes], start: int, stop: int) -> bytes:
    def pieces() -> Iterator[bytes]:
        for part in layout.parts(start, stop):
            if isinstance(part, FilePart):
                yield contents[part.entry.name][part.offset : part.offset + part.length]
            else:
                yield part

    return b"".join(pieces())


@given(CONTENTS)
def test_an_archive_has_every_file_and_the_size_that_was_told(contents: dict[str, bytes]) -> None:
    layout = layout_of(contents)
    archive = sent(layout, contents, 0, layout.size)
    assert len(archive) == layout.size
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        assert {name: file.read() for name, file in files.items() if file} == {
            f"top/{name}": content for name, content in contents.items()
        }


@given(CONTENTS, st.data())
def test_a_range_has_the_bytes_of_the_whole(contents: dict[str, bytes], data: st.DataObject) -> None:
    layout = layout_of(contents)
    whole = sent(layout, contents, 0, layout.size)
    start = data.draw(st.integers(0, layout.size))
    stop = data.draw(st.integers(start, layout.size))
    assert sent(layout, contents, start, stop) == whole[start:stop]


def test_directories_and_links_are_what_they_were() -> None:
    entries = [Entry("empty", is_directory=True), Entry("link", target="../elsewhere")]
    layout = TarLayout("top", entries)
    with tarfile.open(fileobj=io.BytesIO(sent(layout, {}, 0, layout.size))) as tar:
        assert [(one.name, one.isdir(), one.linkname) for one in tar] == [
            ("top", True, ""),
            ("top/empty", True, ""),
            ("top/link", False, "../elsewhere"),
        ]


def test_the_digest_tells_contents_apart() -> None:
    variants = [
        [Entry("a", 1, 1.0)],
        [Entry("b", 1, 1.0)],
        [Entry("a", 2, 1.0)],
        [Entry("a", 1, 1.25)],
        [Entry("a", 1, 1.0), Entry("b")],
    ]
    assert len({TarLayout("top", entries).digest for entries in variants}) == len(variants)
    assert TarLayout("top", variants[0]).digest == TarLayout("top", [Entry("a", 1, 1.0)]).digest
