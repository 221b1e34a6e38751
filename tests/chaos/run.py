"""The run: experiments continue while faults are injected by schedule; killed components are started again."""

import contextlib
import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.evidence import journals
from tests.chaos.evidence.monitor import Monitor, Sample, monitoring
from tests.chaos.faults.fault_injector import Fault, FaultInjector
from tests.chaos.faults.schedule import PlannedFault, Target
from tests.chaos.load import Load
from tests.chaos.system.components import Component
from tests.chaos.system.spare_slots import spare_slots
from tests.chaos.system.stack import Stack, until

TICK_SECONDS = 0.1
RESTART_SECONDS = 1.0
POLL_SECONDS = 1.0
RETRY_SECONDS = 0.5
"""When a fault is tried again for which no target was running."""
LATEST_SECONDS = 30.0
"""How long it is tried. Meanwhile the components come back that the target needs."""
NO_NEW_EXPERIMENTS = 0.3
"""The last share of the time, in which no new experiment is submitted."""
QUIET_SECONDS = 90.0
"""How long the mirror may make no progress at the end, or actors be left on the cluster."""
QUIET_POLL_SECONDS = 1.0
START_SECONDS = 240.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Death:
    """A component that ended by itself."""

    at: float
    name: str
    target: Target


@dataclass
class Record:
    """What happened to the system; times are seconds since the epoch. `service_of` has each agent's service.

    `restarted` is when the target of the n-th fault was started again, or unfrozen. `ended`: all experiments ended;
    `quiet`: the mirror caught up, and no actor was left on the cluster but the `spare` slots of living agents, of which
    the names are here; `left` are the actors that were.
    """

    began_at: float
    faults: list[Fault] = field(default_factory=list)
    missed: list[PlannedFault] = field(default_factory=list)
    restarted: dict[int, float] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    ended: bool = False
    quiet: bool = False
    left: list[str] = field(default_factory=list)
    spare: list[str] = field(default_factory=list)
    service_of: dict[str, str] = field(default_factory=dict)


def had_artifacts_away(record: Record) -> bool:
    """Only then the charts are waited for, and audited: to draw them takes long."""
    return any(fault.planned.target is Target.ARTIFACTS for fault in record.faults)


class Run:
    def __init__(self, stack: Stack, load: Load, faults: Sequence[PlannedFault], say: Say) -> None:
        self._stack, self._load, self._say = stack, load, say
        self._injector = FaultInjector(stack)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._expected_down: set[str] = set()
        self._poll_at = 0.0
        self._planned = faults
        self.record = Record(time.time(), service_of=stack.service_of)

    def execute(self, seconds: float, timeout: float) -> Record:
        """Inject faults for `seconds` after every experiment has begun; then wait for their ends, at most `timeout`."""
        with monitoring(self._stack.service_urls, self._stack.mlflow_url) as monitor:
            self._load.begin()
            until(self._all_have_begun, "every experiment has begun", START_SECONDS, every=0.5)
            self._inject_faults(seconds, timeout)
            self._wait_until_quiet(monitor)
        self.record.samples = monitor.samples
        return self.record

    def _inject_faults(self, seconds: float, timeout: float) -> None:
        self.record.began_at = time.time()
        for planned in self._planned:
            self._at(self.record.began_at + planned.at, self._injection(planned))
        last = self.record.began_at + seconds
        going = True
        while going or self._agenda:
            if self._is_poll_due():
                going = self._load.poll(submit_next=time.time() < last - seconds * NO_NEW_EXPERIMENTS)
            self._act()
            if time.time() > last + timeout:
                break
            time.sleep(TICK_SECONDS)
        self.record.ended = not going

    def _is_poll_due(self) -> bool:
        now = time.monotonic()
        due = now >= self._poll_at
        self._poll_at = now + POLL_SECONDS if due else self._poll_at
        return due

    def _all_have_begun(self) -> bool:
        """Whether a trial of every experiment has reported; earlier there is little to kill."""
        self._load.poll(submit_next=True)
        begun = {line.experiment_id for line in journals.read(self._stack.home.journal) if line.did == "reported"}
        return len(begun) >= len(self._load.planned)

    def _act(self) -> None:
        while self._agenda and self._agenda[0][0] <= time.time():
            heapq.heappop(self._agenda)[2]()
        for component in self._stack.components:
            if component.name not in self._expected_down and not component.is_alive():
                self._restart_later(component)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), action))

    def _injection(self, planned: PlannedFault) -> Callable[[], None]:
        def act() -> None:
            fault = self._injector.inject(planned)
            if fault is None and time.time() < self.record.began_at + planned.at + LATEST_SECONDS:
                self._at(time.time() + RETRY_SECONDS, act)
                return
            if fault is None:
                self._say(f"{planned}: no such target is running")
                self.record.missed.append(planned)
                return
            self._say(f"{planned}: {fault.name}, process {fault.pid}")
            self.record.faults.append(fault)
            number = len(self.record.faults) - 1
            if fault.component is not None:
                self._expected_down.add(fault.component.name)
                self._at(fault.at + planned.outage, lambda: self._start(fault.component, number))
            if fault.frozen:
                self._at(fault.at + 1.5 * self._stack.size.lease_seconds, lambda: self._unfreeze(fault, number))

        return act

    def _start(self, component: Component | None, number: int | None) -> None:
        assert component is not None
        component.start()
        self._expected_down.discard(component.name)
        if number is not None:
            self.record.restarted[number] = time.time()

    def _unfreeze(self, fault: Fault, number: int) -> None:
        for pid in fault.frozen_pids:
            with contextlib.suppress(ProcessLookupError):  # it was killed meanwhile
                os.kill(pid, signal.SIGCONT)
        self.record.restarted[number] = time.time()

    def _restart_later(self, component: Component) -> None:
        """Schedule a restart, as a process manager does in production."""
        self._say(f"         {component.name} ended by itself and is restarted")
        self.record.deaths.append(Death(time.time(), component.name, component.target))
        self._expected_down.add(component.name)
        self._at(time.time() + RESTART_SECONDS, lambda: self._start(component, None))

    def _spare_slots(self) -> dict[int, str]:
        """The slots that living agents keep for their next experiment, by process id: an idle agent has one."""
        living = {one.name for one in self._stack.of(Target.AGENT) if one.is_alive()}
        found = spare_slots(*self._stack.cluster)
        return {one.pid: one.name for one in found if one.agent in living}

    def _wait_until_quiet(self, monitor: Monitor) -> None:
        """Wait until the mirror has caught up and no actor is left on the cluster, but the spare slots of agents.

        While the mirror gets on, however slowly on a busy machine, the wait goes on.
        """
        least, deadline = float("inf"), time.monotonic() + QUIET_SECONDS
        while time.monotonic() < deadline:
            self._act()
            lag = monitor.lag()
            if lag == 0 and self._nothing_left():
                self.record.quiet = True
                return
            if lag is not None and lag < least:
                least, deadline = lag, time.monotonic() + QUIET_SECONDS
            time.sleep(QUIET_POLL_SECONDS)
        self._nothing_left()

    def _nothing_left(self) -> bool:
        """Return whether no actor is left but spare slots; record those and what is left."""
        actors = list(self._injector.actors())
        spare = self._spare_slots() if actors else {}
        self.record.spare = sorted(spare.values())
        self.record.left = [f"{title} ({one.pid})" for title, one in actors if one.pid not in spare]
        return not self.record.left
