"""Components without processes: what can be wrong beside a killed process."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from tests.chaos.faults.schedule import Target

ROOT = Path(__file__).parents[3]
SITE = Path(__file__).parent / "stepped_clock"
STEPS = (3600.0, -3600.0)
"""The seconds by which a clock is wrong, in turn."""
DISK_BYTES = 256 << 20
FILL_SECONDS = 0.1


class NoProcess:
    """What a component is that has no process. `kill` makes it wrong, `start` puts it right."""

    pid: int | None = None

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target = name, target

    def start(self) -> None:
        raise NotImplementedError

    def kill(self) -> int:
        """Return 0, the id of no process."""
        raise NotImplementedError

    def is_alive(self) -> bool:
        """Whether it is right."""
        raise NotImplementedError

    def stop(self) -> None:
        self.start()

    def processes(self) -> Sequence[psutil.Process]:
        return ()

    def ready(self) -> bool:
        return self.is_alive()


class Storage(NoProcess):
    """A directory of files. While it is away, there is a file in its place: each access fails, also for root."""

    def __init__(self, target: Target, directory: Path) -> None:
        super().__init__(target.value, target)
        self._directory = directory
        self._away = directory.with_name(f"{directory.name}.away")
        self._file = directory.with_name(f"{directory.name}.file")
        """It is always there, because the disk may be full when it is needed."""

    def start(self) -> None:
        if self._away.exists():
            self._directory.rename(self._file)
            self._away.rename(self._directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._file.touch()

    def kill(self) -> int:
        self._directory.rename(self._away)
        self._file.rename(self._directory)
        return 0

    def is_alive(self) -> bool:
        return self._directory.is_dir()


class Disk(NoProcess):
    """A small disk of its own for a directory, in memory. While it is full, what others free on it is taken again.

    It needs the right to mount: without it, the directory stays on its disk, and `is_mounted` is false.
    """

    def __init__(self, directory: Path, name: str = Target.DISK.value, target: Target = Target.DISK) -> None:
        super().__init__(name, target)
        self.is_mounted = False
        self._directory = directory
        self._ballast = directory / "ballast"
        self._freed = threading.Event()
        self._filler: threading.Thread | None = None

    def start(self) -> None:
        if self._filler:
            self._freed.set()
            self._filler.join()
            self._ballast.unlink()
            self._filler = None
        elif not self.is_mounted:
            self.is_mounted = _mount(self._directory)

    def kill(self) -> int:
        assert self.is_mounted
        self._freed.clear()
        with self._ballast.open("xb") as file:
            _fill(file)
        self._filler = threading.Thread(target=self._keep_full, name="chaos-disk", daemon=True)
        self._filler.start()
        return 0

    def is_alive(self) -> bool:
        return self._filler is None

    def stop(self) -> None:
        """Leave the files in a directory of the usual disk."""
        if not self.is_mounted:
            return
        self.start()
        copy = self._directory.with_name(f"{self._directory.name}.copy")
        shutil.copytree(self._directory, copy, symlinks=True, ignore=_sockets)
        subprocess.run(["umount", "--lazy", self._directory], check=True)
        self.is_mounted = False
        self._directory.rmdir()
        copy.rename(self._directory)

    def _keep_full(self) -> None:
        with self._ballast.open("ab") as file:
            while not self._freed.wait(FILL_SECONDS):
                _fill(file)


def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as directory:
        if is_mounted := _mount(Path(directory)):
            subprocess.run(["umount", directory], check=True)
    return is_mounted


def _mount(directory: Path) -> bool:
    """Return whether it is permitted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=755", "chaos", str(directory)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _fill(file: BinaryIO) -> None:
    """Append to it until the disk is full: large blocks first."""
    for size in (1 << 20, 1 << 12):
        with contextlib.suppress(OSError):
            while True:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)


def _sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(directory) / name).is_socket()]


def stepped_clock(file: Path) -> dict[str, str]:
    """The environment of a program whose clock the `WallClock` of this file steps.

    It is also the only one that names this repository's modules: Ray's workers must not be able to import them.
    """
    return {"CHAOS_CLOCK": str(file), "PYTHONPATH": os.pathsep.join((str(ROOT), str(SITE)))}


class WallClock(NoProcess):
    """The clock of a program that was started with `stepped_clock`: an hour ahead or behind while wrong."""

    def __init__(self, program: str, file: Path) -> None:
        super().__init__(f"clock of {program}", Target.CLOCK)
        self._file = file
        self._steps = itertools.cycle(STEPS)

    def start(self) -> None:
        self._set(0.0)

    def kill(self) -> int:
        self._set(next(self._steps))
        return 0

    def is_alive(self) -> bool:
        return float(self._file.read_text()) == 0

    def _set(self, seconds: float) -> None:
        """In one step, because the program may read it meanwhile."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)
