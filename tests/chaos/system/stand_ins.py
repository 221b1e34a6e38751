"""Components without processes: what can be wrong beside a killed process."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.chaos.faults.schedule import Target

ROOT = Path(__file__).parents[3]
SITE = Path(__file__).parent / "stepped_clock"
STEPS = (3600.0, -3600.0)
"""The seconds by which a clock is wrong, in turn."""


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

    def start(self) -> None:
        if self._away.exists():
            self._directory.unlink()
            self._away.rename(self._directory)
        self._directory.mkdir(parents=True, exist_ok=True)

    def kill(self) -> int:
        self._directory.rename(self._away)
        self._directory.touch()
        return 0

    def is_alive(self) -> bool:
        return self._directory.is_dir()


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
