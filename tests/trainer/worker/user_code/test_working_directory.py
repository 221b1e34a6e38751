"""The working directory of an attempt: it has the user's files, and is removed by the last rank that uses it."""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainer.worker.user_code.package_listing import write_listing
from trainer.worker.user_code.working_directory import COPIED_BYTES, WorkingDirectory

RUN = "digits-x-0123456789ab/trial-{}-attempt-1"

USER = """
import os, sys
from pathlib import Path
from trainer.worker.user_code.working_directory import WorkingDirectory
os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
directory = WorkingDirectory(Path(sys.argv[1]), Path(sys.argv[2]), ranks=2)
print(sorted(path.name for path in Path().iterdir()), flush=True)
sys.stdin.readline()
directory.leave()
"""


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from trainer.worker.event_files import keep_event_files
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
opened = []
try:
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    keep_event_files(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    monkeypatch.undo()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    (package / "data" / "__pycache__").mkdir(parents=True)
    (package / "train.py").write_text("x = 1")
    (package / "data" / "small.csv").write_text("1,2")
    (package / "large.bin").write_bytes(b"x" * (COPIED_BYTES + 1))
    write_listing(package)
    return package


def enter(directory: Path, package: Path, ranks: int = 1) -> WorkingDirectory:
    """As a worker does it: Ray Train makes the directory and changes to it."""
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    return WorkingDirectory(directory, package, ranks)


def at(root: Path, trial: int = 0) -> Path:
    return root / "artifacts" / RUN.format(trial)


def test_it_has_the_files_of_the_package_and_changes_of_one_trial_are_not_seen_by_another(
    tmp_path: Path, package: Path
) -> None:
    first = enter(at(tmp_path), package)
    assert Path("data/small.csv").read_text() == "1,2"
    assert Path("large.bin").stat().st_size == COPIED_BYTES + 1
    assert not Path("data/__pycache__").exists()
    Path("data/small.csv").write_text("changed")
    Path("data/new").write_text("mine")
    second = enter(at(tmp_path, 1), package)
    assert Path("data/small.csv").read_text() == "1,2"
    assert not Path("data/new").exists()
    assert (package / "data" / "small.csv").read_text() == "1,2"
    first.leave()
    second.leave()
    assert list(at(tmp_path).parent.iterdir()) == []
    assert Path.cwd().exists(), "the process may serve another attempt"
    assert (package / "large.bin").exists()


def test_it_has_no_files_that_another_trial_has_written_beside_those_of_the_package(
    tmp_path: Path, package: Path
) -> None:
    (package / "last.pt").write_text("epoch 2")
    (package / "data" / "small.csv").write_text("changed")
    (package / "data" / "runs").mkdir()
    used = enter(at(tmp_path), package)
    assert sorted(path.name for path in Path().rglob("*")) == ["data", "large.bin", "small.csv", "train.py"]
    used.leave()


def test_the_ranks_of_a_node_share_it_and_the_last_one_removes_it(tmp_path: Path, package: Path) -> None:
    first = enter(at(tmp_path), package, ranks=2)
    Path("train.py").unlink()
    Path("written").write_text("by the first")
    command = [sys.executable, "-c", USER, str(at(tmp_path)), str(package)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == str(["data", "large.bin", "written"])
        first.leave()
        assert at(tmp_path).exists()
        other.communicate("\n")
    assert not at(tmp_path).exists()


def test_a_rank_that_ends_before_another_has_begun_leaves_the_directory_to_it(tmp_path: Path, package: Path) -> None:
    """Ranks that have no backend do not wait for each other. The other may be there already, inside of Ray Train."""
    first = enter(at(tmp_path), package, ranks=2)
    first.leave()
    os.chdir(at(tmp_path))
    second = enter(at(tmp_path), package, ranks=2)
    assert Path("train.py").exists()
    second.leave()
    assert not at(tmp_path).exists()


def test_of_ranks_that_arrive_at_the_same_time_one_fills_the_directory(
    tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(tmp_path).mkdir(parents=True)
    both_have_come, lock = threading.Barrier(2, timeout=60), fcntl.flock

    def lock_when_both_have_come(file: Any, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            both_have_come.wait()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_when_both_have_come)
    with ThreadPoolExecutor(2) as ranks:
        for rank in list(ranks.map(lambda _: WorkingDirectory(at(tmp_path), package, ranks=2), range(2))):
            assert (at(tmp_path) / "large.bin").is_symlink()
            rank.leave()
    assert not at(tmp_path).exists()


def test_directories_of_killed_ranks_are_removed_and_those_of_others_are_kept(tmp_path: Path, package: Path) -> None:
    foreign = tmp_path / "artifacts" / "of-another-program" / "trial-1-attempt-1"
    foreign.mkdir(parents=True)
    os.utime(foreign, (0, 0))
    used = enter(at(tmp_path, 1), package)
    command = [sys.executable, "-c", USER, str(at(tmp_path, 2)), str(package)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        for trial in (1, 2):
            os.utime(at(tmp_path, trial), (0, 0))
        killed.kill()
    empty = tmp_path / "artifacts" / "empty-x-0123456789ab"
    empty.mkdir()
    os.utime(empty, (0, 0))
    later = enter(at(tmp_path, 3), package)
    assert not empty.exists()
    assert not at(tmp_path, 2).exists()
    assert at(tmp_path, 1).exists()
    assert foreign.exists()
    used.leave()
    later.leave()


def test_the_event_files_of_tensorboard_are_kept_and_links_are_not_followed(tmp_path: Path, package: Path) -> None:
    directory, kept = at(tmp_path), tmp_path / "kept"
    directory.mkdir(parents=True)
    os.chdir(directory)
    used = WorkingDirectory(directory, package, ranks=1, event_files=f"file://{kept}")
    for name in ("events.out.tfevents.1.here.0", "lightning_logs/version_0/events.out.tfevents.2.here.1"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    Path("link.tfevents").symlink_to(package / "large.bin")
    used.leave()
    assert {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()} == {
        name: name for name in ("events.out.tfevents.1.here.0", "lightning_logs/version_0/events.out.tfevents.2.here.1")
    }
    assert not directory.exists()


def test_event_files_that_cannot_be_kept_are_logged(
    tmp_path: Path, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("not a directory")
    directory = at(tmp_path)
    directory.mkdir(parents=True)
    os.chdir(directory)
    used = WorkingDirectory(directory, package, ranks=1, event_files=str(tmp_path / "kept"))
    Path("events.out.tfevents.1").write_text("lost")
    used.leave()
    assert "TensorBoard's event files could not be kept at" in caplog.text
    assert not directory.exists()


def test_a_directory_that_cannot_be_searched_for_event_files_is_logged(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path), str(tmp_path / "kept")]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "TensorBoard's event files could not be kept at" in ended.stderr
