"""Finding who is to be struck, and striking."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import psutil

from tests.chaos.journals import Line, last_lines
from tests.chaos.parts import Part, Program, strike
from tests.chaos.schedule import FROZEN, SAVING, Kill, Victim
from tests.chaos.stack import Stack

PATIENCE_SECONDS = 10.0
SLOT = "ray::Slot"
OURS = (SLOT, "ray::RayTrainWorker", "ray::TrainController")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Struck:
    """What was done to whom, and when, in seconds since the epoch. `part` is to be started again, `pid` to be thawed.

    `attempt` (experiment's id, trial, attempt) is the one that a killed worker ran.
    """

    kill: Kill
    at: float
    who: str
    pid: int
    part: Part | None = None
    attempt: tuple[str, int, int] | None = None

    @property
    def frozen(self) -> bool:
        return self.kill.variant == FROZEN


class Striker:
    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def strike(self, kill: Kill) -> Struck | None:
        """None when there was nobody to strike."""
        if kill.victim is Victim.SLOT:
            return self._slot(kill)
        if kill.victim is Victim.WORKER:
            return self._worker(kill)
        parts = [part for part in self._stack.of(kill.victim) if part.lives()]
        if not parts:
            return None
        part = _picked(parts, kill)
        at = time.time()
        return Struck(kill, at, part.name, part.kill(), part)

    def _slot(self, kill: Kill) -> Struck | None:
        slots = _patiently(lambda: [process for title, process in self.actors() if title.startswith(SLOT)])
        if not slots:
            return None
        slot = _picked(slots, kill)
        at = time.time()
        strike([slot], signal.SIGSTOP if kill.variant == FROZEN else signal.SIGKILL)
        return Struck(kill, at, "a slot", slot.pid)

    def _worker(self, kill: Kill) -> Struck | None:
        saving = kill.variant == SAVING
        lines = _patiently(lambda: [one for one in self._working() if not saving or _saves(one)])
        lines = lines or self._working()
        if not lines:
            return None
        line = _picked(sorted(lines, key=lambda one: one.pid), kill)
        at = time.time()
        with contextlib.suppress(psutil.NoSuchProcess):
            strike([psutil.Process(line.pid)])
        attempt = (line.experiment_id, line.trial, line.attempt)
        return Struck(kill, at, f"rank {line.rank} of trial {line.trial}, {line.did}", line.pid, attempt=attempt)

    def _working(self) -> list[Line]:
        """The last line of each rank that is training now."""
        lines = last_lines(self._stack.home.journal)
        return [line for line in lines if line.did not in {"end", "left"} and psutil.pid_exists(line.pid)]

    def actors(self) -> Iterator[tuple[str, psutil.Process]]:
        """What of Paceline's, and of Ray Train's, lives on the cluster."""
        for part in self._stack.of(Victim.RAY):
            assert isinstance(part, Program)
            for process in part.processes():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
                    title = process.cmdline()[0]
                    if title.startswith(OURS):
                        yield title, process


def _saves(line: Line) -> bool:
    """Whether it writes a checkpoint, or hands it on."""
    return line.did == "saving" or (line.did == "report" and line.saved)


def _picked(candidates: list[Found], kill: Kill) -> Found:
    return candidates[int(kill.pick * len(candidates))]


def _patiently(find: Callable[[], list[Found]]) -> list[Found]:
    """What is found first within a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
