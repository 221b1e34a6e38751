"""Injects planned faults: finds a running target, and kills or freezes it."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

from tests.chaos.evidence.journals import Line, last_lines
from tests.chaos.faults.schedule import FULL, GUARDIAN, KILLED, SAVING, PlannedFault, Target
from tests.chaos.system.components import Component, signal_processes
from tests.chaos.system.stack import Stack
from tests.chaos.system.stand_ins import Disk
from tests.chaos.system.up_stack import GUARDIAN as GUARDIAN_COMMAND
from tests.chaos.system.up_stack import Up

SEARCH_SECONDS = 1.0
"""Short: what is to be restarted waits meanwhile."""
SLOT = "ray::Slot"
TRAINING_ACTORS = (SLOT, "ray::RayTrainWorker", "ray::TrainController")

Key = tuple[str, int, int]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Fault:
    """An injected fault. `at` is in seconds since the epoch; `name` and `pid` are of the killed or frozen process.

    `component` must be started again; None where `up` does that. `attempt` (experiment's id, trial, attempt) is the one
    that a killed worker or client ran. `frozen_pids` must be continued.
    """

    planned: PlannedFault
    at: float
    name: str
    pid: int
    component: Component | None = None
    attempt: Key | None = None
    frozen_pids: tuple[int, ...] = ()

    @property
    def frozen(self) -> bool:
        return self.planned.freezes


class FaultInjector:
    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def inject(self, planned: PlannedFault) -> Fault | None:
        """Return None when no such target is running."""
        if planned.target is Target.SLOT:
            return self._inject_in_slot(planned)
        if planned.target is Target.WORKER:
            return self._inject_in_worker(planned)
        if planned.target is Target.UP:
            return self._inject_in_up(planned)
        components = [component for component in self._stack.of(planned.target) if component.is_alive()]
        if planned.target is Target.DATABASE:
            components = _disks_or_servers(components, planned) or components
        if not components:
            return None
        component = _picked(components, planned)
        return self._freeze(planned, component) if planned.freezes else self._kill(planned, component)

    def _kill(self, planned: PlannedFault, component: Component) -> Fault:
        at = time.time()
        pid = component.kill()
        restarted = component if component in self._stack.components else None
        return Fault(planned, at, component.name, pid, restarted, attempt=self._attempt_of(pid))

    def _inject_in_up(self, planned: PlannedFault) -> Fault | None:
        (up,) = self._stack.of(Target.UP)
        assert isinstance(up, Up)
        guardian = up.children(GUARDIAN_COMMAND)
        if not guardian:
            return None
        at = time.time()
        if planned.variant == GUARDIAN:
            signal_processes(guardian)
            return Fault(planned, at, "the guardian", guardian[0].pid)
        pid = up.kill() if planned.variant == KILLED else up.kill_with_guardian()
        return Fault(planned, at, up.name, pid, up)

    def _freeze(self, planned: PlannedFault, component: Component) -> Fault:
        processes, at = component.processes(), time.time()
        signal_processes(processes, signal.SIGSTOP)
        attempt = self._attempt_of(processes[0].pid)
        return Fault(planned, at, component.name, processes[0].pid, attempt=attempt, frozen_pids=_pids(processes))

    def _attempt_of(self, pid: int) -> Key | None:
        """The attempt that a process works on by its journal; None for one that writes no journal."""
        return next((_key(line) for line in self._unfinished() if line.pid == pid), None)

    def _inject_in_slot(self, planned: PlannedFault) -> Fault | None:
        slots = _first_found(lambda: [process for title, process in self.actors() if title.startswith(SLOT)])
        if not slots:
            return None
        slot = _picked(slots, planned)
        at = time.time()
        signal_processes([slot], signal.SIGSTOP if planned.freezes else signal.SIGKILL)
        pids = _pids([slot]) if planned.freezes else ()
        return Fault(planned, at, "a slot", slot.pid, frozen_pids=pids)

    def _inject_in_worker(self, planned: PlannedFault) -> Fault | None:
        saving = planned.variant == SAVING
        lines = _first_found(lambda: [one for one in self._working() if not saving or _is_saving(one)])
        lines = lines or self._working()
        if not lines:
            return None
        line = _picked(sorted(lines, key=lambda one: one.pid), planned)
        at = time.time()
        with contextlib.suppress(psutil.NoSuchProcess):
            signal_processes([psutil.Process(line.pid)])
        return Fault(planned, at, f"rank {line.rank} of trial {line.trial}, {line.did}", line.pid, attempt=_key(line))

    def _working(self) -> list[Line]:
        """Return the last line of each rank of a worker group that is training now."""
        clients = {component.pid for component in self._stack.of(Target.CLIENT)}
        return [line for line in self._unfinished() if psutil.pid_exists(line.pid) and line.pid not in clients]

    def _unfinished(self) -> list[Line]:
        return [line for line in last_lines(self._stack.home.journal) if line.did not in {"end", "left", "finished"}]

    def actors(self) -> Iterator[tuple[str, psutil.Process]]:
        """Yield Paceline's and Ray Train's actors on the cluster, with their process titles.

        They descend from fork servers, which are no children of Ray's processes; their environment names the raylet.
        """
        raylets = set[str]()
        for component in self._stack.of(Target.RAY):
            raylets |= {str(process.pid) for process in component.processes()}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
                title = process.cmdline()[0]
                if title.startswith(TRAINING_ACTORS) and process.environ().get("RAY_RAYLET_PID") in raylets:
                    yield title, process


def _disks_or_servers(components: Sequence[Component], planned: PlannedFault) -> list[Component]:
    return [component for component in components if isinstance(component, Disk) == (planned.variant == FULL)]


def _key(line: Line) -> Key:
    return line.experiment_id, line.trial, line.attempt


def _pids(processes: Sequence[psutil.Process]) -> tuple[int, ...]:
    return tuple(process.pid for process in processes)


def _is_saving(line: Line) -> bool:
    """Whether the rank is writing a checkpoint, or reporting it."""
    return line.did == "saving" or (line.did == "report" and line.saved)


def _picked(candidates: list[Found], planned: PlannedFault) -> Found:
    return candidates[int(planned.pick * len(candidates))]


def _first_found(find: Callable[[], list[Found]]) -> list[Found]:
    """Return the first candidates within SEARCH_SECONDS; [] when there are none."""
    deadline = time.monotonic() + SEARCH_SECONDS
    while not (found := find()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
