"""Lines of a worker's output stay whole."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import set_constant
from trainer.worker.logs.log_follower import LogFollower, OutputFile
from trainer.worker.logs.masker import Masker

CHUNK_BYTES = 20


def chunks(path: Path, content: bytes) -> list[str]:
    path.touch()
    stream = OutputFile(str(path), Masker(()))
    path.write_bytes(content)
    read = [stream.read()]
    while stream.is_behind:
        assert stream.position == sum(len(text.encode()) for text in read)
        read.append(stream.read())
    read.append(stream.read(last=True))
    stream.close()
    return read


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    set_constant(monkeypatch, OutputFile.read, "CHUNK_BYTES", CHUNK_BYTES)


def test_a_full_chunk_ends_with_a_line_so_that_the_other_file_does_not_come_into_its_middle(tmp_path: Path) -> None:
    read = chunks(tmp_path / "out", b"one line\n" * 9)
    assert "".join(read) == "one line\n" * 9
    assert all(text.endswith("\n") for text in read if text)


def test_a_line_that_is_longer_than_a_chunk_is_sent_in_pieces(tmp_path: Path) -> None:
    content = "é" * 45 + "\nshort\n"
    assert "".join(chunks(tmp_path / "out", content.encode())) == content


@pytest.mark.parametrize("max_bytes", [0, 100])
def test_no_more_output_is_sent_than_the_service_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    path, sent = tmp_path / "out", list[str]()
    path.touch()

    def send(offset: int, text: str, _positions: dict[str, int]) -> Callable[[], None]:
        assert offset == len("".join(sent))
        sent.append(text)
        return lambda: None

    set_constant(monkeypatch, LogFollower.__init__, "output_paths", lambda: [str(path)])
    follower = LogFollower(send, Masker(()), max_bytes)
    path.write_bytes(b"x" * 100_000)
    follower.start()
    follower.finish()
    assert len("".join(sent)) == max_bytes + CHUNK_BYTES
