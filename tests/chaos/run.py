"""The run itself: experiments go on, parts are struck by schedule, and started again."""

import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos import journals
from tests.chaos.load import Load
from tests.chaos.parts import Part
from tests.chaos.schedule import Kill, Victim
from tests.chaos.stack import Stack, until
from tests.chaos.victims import Striker, Struck
from tests.chaos.watch import Sample, Watch, watching

STEP_SECONDS = 0.1
SELF_MADE_SECONDS = 1.0
LOOK_SECONDS = 1.0
# The last part of the time, in which no further experiment is begun.
TAIL = 0.3
QUIET_SECONDS = 90.0
START_SECONDS = 240.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Death:
    """A part that ended though nobody had struck it."""

    at: float
    name: str
    victim: Victim


@dataclass
class Record:
    """What happened to the system, in seconds since the epoch. `service_of`: to which service an agent speaks.

    `restarted` is when the victim of the n-th strike was started, or thawed, again.
    """

    began_at: float
    struck: list[Struck] = field(default_factory=list)
    missed: list[Kill] = field(default_factory=list)
    restarted: dict[int, float] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    ended: bool = False
    quiet: bool = False
    left: list[str] = field(default_factory=list)
    service_of: dict[str, str] = field(default_factory=dict)


class Run:
    def __init__(self, stack: Stack, load: Load, kills: Sequence[Kill], say: Say) -> None:
        self._stack, self._load, self._say = stack, load, say
        self._striker = Striker(stack)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._expected_down: set[str] = set()
        self._look_at = 0.0
        self._kills = kills
        self.record = Record(time.time(), service_of=stack.service_of)

    def execute(self, seconds: float, patience: float) -> Record:
        """Strike for `seconds`, from when every experiment has begun; then let all end, for at most `patience` more."""
        with watching(self._stack.service_urls, self._stack.mlflow_url) as watch:
            self._load.begin()
            until(self._all_have_begun, "every experiment has begun", START_SECONDS, every=0.5)
            self._strike(seconds, patience)
            self._wait_until_quiet(watch)
        self.record.samples = watch.samples
        return self.record

    def _strike(self, seconds: float, patience: float) -> None:
        self.record.began_at = time.time()
        for kill in self._kills:
            self._at(self.record.began_at + kill.at, self._striking(kill))
        last = self.record.began_at + seconds
        going = True
        while going or self._agenda:
            if self._is_time_to_look():
                going = self._load.look(go_on=time.time() < last - seconds * TAIL)
            self._act()
            if time.time() > last + patience:
                break
            time.sleep(STEP_SECONDS)
        self.record.ended = not going

    def _is_time_to_look(self) -> bool:
        now = time.monotonic()
        due = now >= self._look_at
        self._look_at = now + LOOK_SECONDS if due else self._look_at
        return due

    def _all_have_begun(self) -> bool:
        """Before that there is little to kill."""
        self._load.look(go_on=True)
        begun = {line.experiment_id for line in journals.read(self._stack.home.journal) if line.did == "reported"}
        return len(begun) >= len(self._load.planned)

    def _act(self) -> None:
        while self._agenda and self._agenda[0][0] <= time.time():
            heapq.heappop(self._agenda)[2]()
        for part in self._stack.parts:
            if part.name not in self._expected_down and not part.lives():
                self._found_dead(part)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), action))

    def _striking(self, kill: Kill) -> Callable[[], None]:
        def act() -> None:
            struck = self._striker.strike(kill)
            if struck is None:
                self._say(f"{kill}: nobody there")
                self.record.missed.append(kill)
                return
            self._say(f"{kill}: {struck.who}, process {struck.pid}")
            self.record.struck.append(struck)
            number = len(self.record.struck) - 1
            if struck.part is not None:
                self._expected_down.add(struck.part.name)
                self._at(struck.at + kill.outage, lambda: self._start(struck.part, number))
            if struck.frozen:
                self._at(struck.at + 1.5 * self._stack.size.lease_seconds, lambda: self._thaw(struck, number))

        return act

    def _start(self, part: Part | None, number: int | None) -> None:
        assert part is not None
        part.start()
        self._expected_down.discard(part.name)
        if number is not None:
            self.record.restarted[number] = time.time()

    def _thaw(self, struck: Struck, number: int) -> None:
        try:
            os.kill(struck.pid, signal.SIGCONT)
        except ProcessLookupError:
            self._say(f"         the frozen process {struck.pid} has been ended meanwhile")
        self.record.restarted[number] = time.time()

    def _found_dead(self, part: Part) -> None:
        """Whatever runs a system in earnest starts again what has ended."""
        self._say(f"         {part.name} has ended by itself; it is started again")
        self.record.deaths.append(Death(time.time(), part.name, part.victim))
        self._expected_down.add(part.name)
        self._at(time.time() + SELF_MADE_SECONDS, lambda: self._start(part, None))

    def _wait_until_quiet(self, watch: Watch) -> None:
        """Until the mirror has told everything, and the cluster has been cleared."""

        def quiet() -> bool:
            self._act()
            self.record.left = [f"{title} ({process.pid})" for title, process in self._striker.actors()]
            return watch.lag() == 0 and not self.record.left

        try:
            until(quiet, "all is mirrored and cleared", QUIET_SECONDS, every=1)
        except TimeoutError:
            return
        self.record.quiet = True
