"""The checkpoints that the ranks of a command save together, each from a directory of its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from trainer.worker.commands.snapshot import Later, Line, Snapshot

pytestmark = [pytest.mark.ray, pytest.mark.slow]  # importing Ray Train takes seconds

Files = dict[str, str]
"""The contents of files by their paths."""


class Ranks:
    """The ranks of an attempt, whose directories begin with the files to resume from."""

    def __init__(self, folder: Path, size: int, restored: Files) -> None:
        from trainer.worker.commands.checkpoint_parts import CheckpointParts  # noqa: PLC0415 - heavy

        self.directories = [folder / str(rank) / "saved" for rank in range(size)]
        self._barrier, self._values = Barrier(size), list[Any]([None] * size)
        for directory in self.directories:
            directory.mkdir(parents=True)
            for path, text in restored.items():
                write(directory, path, text)
        self.parts = [CheckpointParts(one, rank, self._all_gather(rank)) for rank, one in enumerate(self.directories)]

    def write(self, rank: int, path: str, text: str) -> None:
        write(self.directories[rank], path, text)

    def remove(self, rank: int, path: str) -> None:
        (self.directories[rank] / path).unlink()

    def save(self, line: Line | None = None, *, meanwhile: Callable[[], object] = lambda: None) -> Files | None:
        """Return the checkpoint; None if no rank saves. `line` is rank 0's."""
        with ExitStack() as cleanup, ThreadPoolExecutor(len(self.parts)) as pool:
            snapshots = [
                cleanup.enter_context(one.snapshot(None if rank else line)) for rank, one in enumerate(self.parts)
            ]
            assert all(isinstance(one, Snapshot) for one in snapshots)
            meanwhile()
            saved = list(pool.map(saved_part, self.parts, snapshots))
        paths = [path for files in saved for path in files]
        assert len(paths) == len(set(paths)), "of a file in two parts, an upload decides"
        return {path: text for files in saved for path, text in files.items()} or None

    def _all_gather(self, rank: int) -> Callable[[Any], list[Any]]:
        def gather(value: Any) -> list[Any]:
            self._values[rank] = value
            self._barrier.wait(60)
            values = list(self._values)
            self._barrier.wait(60)
            return values

        return gather


def write(directory: Path, path: str, text: str) -> None:
    """Replace the file, as a command should."""
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    new = directory.parent / "new"
    new.write_text(text)
    new.rename(directory / path)


def saved_part(parts: Any, snapshot: Snapshot) -> Files:
    with parts.part(snapshot) as checkpoint:
        return {} if checkpoint is None else files_below(Path(checkpoint.path))


def files_below(folder: Path) -> Files:
    assert all(path.is_file() or any(path.iterdir()) for path in folder.rglob("*")), "an empty folder"
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


Start = Callable[..., Ranks]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start an attempt with the files to resume from, and so many ranks."""
    numbers = count()
    yield lambda restored=None, size=2: Ranks(tmp_path / str(next(numbers)), size, restored or {})
    left = [path for path in tmp_path.glob("*/*/*") if path.name != "saved"]
    assert left == [], "links are removed after the report"


def test_each_rank_saves_its_own_files_also_after_two_resumes(start: Start) -> None:
    saved: Files | None = None
    for attempt in range(3):
        ranks = start(saved)
        for step in (1, 2):
            own = {f"state/{rank}": f"attempt {attempt} step {step}" for rank in (0, 1)}
            for rank, (path, text) in enumerate(own.items()):
                ranks.write(rank, path, text)
            saved = ranks.save()
            assert saved == own


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_alone_saves_for_all(start: Start, rank: int) -> None:
    ranks = start({"state": "1", "tokenizer": "t"})
    for step in ("2", "3"):
        ranks.write(rank, "state", step)
        assert ranks.save() == {"state": step, "tokenizer": "t"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_file_that_is_written_once_stays_in_all_checkpoints(start: Start, rank: int) -> None:
    ranks = start()
    ranks.write(rank, "tokenizer", "t")
    for step in ("1", "2"):
        ranks.write(1 - rank, "state", step)
        assert ranks.save() == {"state": step, "tokenizer": "t"}


def test_nothing_is_saved_until_a_rank_has_changed_a_file(start: Start) -> None:
    ranks = start({"state": "1"})
    assert ranks.save() is None
    ranks.write(1, "state", "2")
    assert ranks.save() == {"state": "2"}
    assert ranks.save() is None


@pytest.mark.parametrize("rank", [0, 1])
def test_a_file_that_a_rank_removes_is_gone(start: Start, rank: int) -> None:
    ranks = start({f"state-{one}-1": "1" for one in (0, 1)})
    for one in (0, 1):
        ranks.write(one, f"state-{one}-2", "2")
    ranks.remove(rank, f"state-{rank}-1")
    assert ranks.save() == {"state-0-2": "2", "state-1-2": "2", f"state-{1 - rank}-1": "1"}


def test_a_file_that_a_rank_has_written_stays_if_another_one_removes_the_restored_one(start: Start) -> None:
    ranks = start({"state": "1"})
    ranks.write(1, "state", "2")
    ranks.remove(0, "state")
    assert ranks.save() == {"state": "2"}
    ranks.remove(1, "state")
    ranks.write(0, "other", "3")
    assert ranks.save() == {"other": "3"}


def test_of_a_file_that_several_ranks_write_the_newest_one_is_saved(start: Start) -> None:
    ranks = start({"state": "1"})
    for rank, text in [(0, "2"), (1, "3"), (0, "4")]:
        ranks.write(rank, "state", text)
        assert ranks.save() == {"state": text}
    for rank in (0, 1):
        ranks.write(rank, "state", f"5 of rank {rank}")
    assert ranks.save() == {"state": "5 of rank 0"}


@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_ranks_saves_the_files_of_all_earlier_ones(start: Start, size: int) -> None:
    ranks = start({"state-0": "1", "state-1": "1"}, size)
    for rank in range(size):
        ranks.write(rank, f"state-{rank}", "2")
    assert ranks.save() == {"state-1": "1"} | {f"state-{rank}": "2" for rank in range(size)}


def test_no_rank_saves_if_rank_0_has_written_into_a_file_after_its_line(start: Start) -> None:
    ranks = start()
    ranks.write(0, "state-0", "1")
    ranks.write(1, "state-1", "1")
    path = ranks.directories[0] / "state-0"
    line = Line(path.stat().st_mtime_ns + 1, is_certain=True, is_quiet=lambda: True)
    assert ranks.save(line, meanwhile=lambda: path.write_text("2")) is None
    assert ranks.save() == {"state-0": "2", "state-1": "1"}


def test_a_state_that_may_be_later_than_the_line_is_left_to_a_later_report(start: Start) -> None:
    ranks = start({"state": "1"})
    line = Line(0, is_certain=True, is_quiet=lambda: True)
    with ranks.parts[0].snapshot(line) as unchanged:
        assert isinstance(unchanged, Snapshot), "it was saved with an earlier line"
    ranks.write(0, "state", "2")
    with ranks.parts[0].snapshot(line) as later:
        assert later == Later()
    assert ranks.save() == {"state": "2"}
