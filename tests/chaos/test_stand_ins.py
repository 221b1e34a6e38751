"""A storage that is away refuses everything and loses nothing; a program's clock can be stepped."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.chaos.faults.schedule import Target
from tests.chaos.service_caller import ServiceCaller
from tests.chaos.system.components import signal_processes
from tests.chaos.system.stack import until
from tests.chaos.system.stand_ins import Disk, Storage, WallClock, can_mount, stepped_clock

SHOW_CLOCKS = (
    "import time\nfrom service.clock import utc_now\nprint(time.time(), time.time_ns(), utc_now().timestamp())\n"
)


def test_a_storage_that_is_away_refuses_everything_and_loses_nothing(tmp_path: Path) -> None:
    storage = Storage(Target.STORAGE, tmp_path / "checkpoints")
    storage.start()
    file = tmp_path / "checkpoints" / "run" / "part"
    file.parent.mkdir()
    file.write_text("weights")
    storage.kill()
    assert not storage.is_alive()
    with pytest.raises(NotADirectoryError):
        file.read_text()
    with pytest.raises(OSError, match=r"exists|directory"):
        (tmp_path / "checkpoints" / "run").mkdir(parents=True)
    storage.start()
    assert storage.is_alive()
    assert file.read_text() == "weights"


def test_a_storage_that_is_away_is_back_when_the_run_stops(tmp_path: Path) -> None:
    storage = Storage(Target.STORAGE, tmp_path / "checkpoints")
    storage.start()
    storage.kill()
    storage.stop()
    assert storage.is_alive()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if not can_mount():
        pytest.skip("this user must not mount a disk")
    disk = Disk(tmp_path)
    disk.start()
    yield disk
    disk.stop()


def test_a_disk_that_is_full_stays_full_whatever_is_freed_and_takes_files_again_later(
    disk: Disk, tmp_path: Path
) -> None:
    (tmp_path / "before").write_bytes(bytes(1 << 20))
    disk.kill()
    assert not disk.is_alive()
    (tmp_path / "before").unlink()
    until(lambda: shutil.disk_usage(tmp_path).free == 0, "the freed blocks are taken", 10, every=0.01)
    with pytest.raises(OSError, match="No space left on device"):
        (tmp_path / "during").write_bytes(bytes(1 << 16))
    disk.start()
    assert disk.is_alive()
    (tmp_path / "after").write_bytes(bytes(1 << 16))


def test_the_files_of_a_disk_are_there_after_the_run(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    disk.kill()
    disk.stop()
    assert not tmp_path.is_mount()
    assert (tmp_path / "file").read_text() == "kept"


def test_a_storage_on_a_full_disk_can_be_away(disk: Disk, tmp_path: Path) -> None:
    storage = Storage(Target.STORAGE, tmp_path / "checkpoints")
    storage.start()
    disk.kill()
    storage.kill()
    assert not storage.is_alive()
    storage.start()
    assert storage.is_alive()


def test_a_process_that_has_just_ended_does_not_spare_the_others() -> None:
    wait_for_input = [sys.executable, "-S", "-c", "input()"]
    with (
        subprocess.Popen(wait_for_input, stdin=subprocess.PIPE) as ended,
        subprocess.Popen(wait_for_input, stdin=subprocess.PIPE) as lives,
    ):
        targets = [psutil.Process(one.pid) for one in (ended, lives)]
        ended.kill()
        ended.wait()
        signal_processes(targets)
        assert not psutil.pid_exists(lives.pid)


@pytest.mark.slow
def test_a_program_sees_its_clock_stepped(tmp_path: Path) -> None:
    clock = WallClock("a program", tmp_path / "clock")
    clock.start()
    right = _clocks(tmp_path)
    clock.kill()
    assert not clock.is_alive()
    ahead = _clocks(tmp_path)
    clock.kill()
    behind = _clocks(tmp_path)
    assert [round((one - two) / 600) for one, two in zip(ahead, right, strict=True)] == [6, 6, 6]
    assert [round((one - two) / 600) for one, two in zip(behind, right, strict=True)] == [-6, -6, -6]


def _clocks(folder: Path) -> list[float]:
    env = os.environ | stepped_clock(folder / "clock")
    command = [sys.executable, "-P", "-c", SHOW_CLOCKS]
    shown = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout.split()
    return [float(shown[0]), float(shown[1]) / 1e9, float(shown[2])]


def test_only_tries_that_may_have_had_an_effect_count_as_lost() -> None:
    answers: Iterator[int | Exception] = iter([httpx.ConnectError("refused"), httpx.ReadTimeout("silent"), 503, 201])

    def answer(_: httpx.Request) -> httpx.Response:
        one = next(answers)
        if isinstance(one, int):
            return httpx.Response(one)
        raise one

    services = ServiceCaller(["http://one", "http://two"])
    services._http = httpx.Client(transport=httpx.MockTransport(answer))
    assert services.call("POST", "/v1/experiments").status_code == 201
    assert services.lost_count == 2
    services.close()


def test_a_repeated_call_begins_with_another_service() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(200)

    services = ServiceCaller(["http://one", "http://two"])
    services._http = httpx.Client(transport=httpx.MockTransport(answer))
    for _ in range(3):
        services.call("GET", "/healthz")
    assert asked == ["one", "two", "one"]
    services.close()
