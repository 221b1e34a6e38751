"""Keeping a few child processes running together: started in stages, restarted when they die, stopped in reverse."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.stack.child_process import Child

POLL_SECONDS = 0.2
ASK_SECONDS = 5
"""How often a part is asked whether it still answers."""
STEADY_SECONDS = 15
"""A part that has lived so long is taken to be well again."""
LONGEST_DELAY = 10.0
FAILURES = 4
"""A part that ended so often in a row without ever becoming ready ends the stack."""


class PartFailed(Exception):
    """A part that cannot be kept running; the message ends with its last lines of output."""


@dataclass
class Part:
    """A child and how to see that it works: `ready` is asked often while it starts, and must be quick.

    `answers`, where there is one, is asked now and then as long as it runs: a part may hang without dying. One that
    `gives_way` leaves the processor to others once it is ready; before, it might never get so far beside them.
    """

    name: str
    child: Child
    ready: Callable[[], bool]
    grace_seconds: float = 2
    answers: Callable[[], bool] | None = None
    gives_way: bool = False
    started_at: float | None = field(default=None, init=False)
    was_ready: bool = field(default=False, init=False)
    deaths: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    due_at: float | None = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)
    _silent_since: float | None = field(default=None, init=False)

    def start(self) -> None:
        self.was_ready, self.due_at, self._silent_since = False, None, None
        self.started_at = self._asked_at = time.monotonic()
        self.child.start()

    def look(self) -> None:
        """See whether it has become ready, and now and then whether it still answers."""
        if not self.was_ready and self.ready():
            self.was_ready = True
            if self.gives_way:
                self.child.give_way()
        if self.answers and time.monotonic() - self._asked_at > ASK_SECONDS:
            self._asked_at = time.monotonic()
            self._silent_since = None if self.answers() else self._silent_since or self._asked_at

    @property
    def silent_seconds(self) -> float:
        """How long it has not answered, whenever it was asked."""
        return time.monotonic() - self._silent_since if self._silent_since else 0

    def bury(self, first_delay_seconds: float) -> float:
        """End what is left of it, count its death, and return the seconds after which it is due again.

        The first death costs no time: mostly it was an accident.
        """
        killed = self.child.exit_code in (None, -signal.SIGKILL)  # from outside, which says nothing about itself
        steady = time.monotonic() - (self.started_at or 0) > STEADY_SECONDS
        self.failures = 0 if self.was_ready else self.failures + (not killed)
        self.deaths = 1 if steady else self.deaths + 1
        self.child.kill()
        delay = min(first_delay_seconds * 2.0 ** (self.deaths - 2), LONGEST_DELAY) if self.deaths > 1 else 0
        self.due_at = time.monotonic() + delay
        return delay

    def failed(self, what: str) -> PartFailed:
        lines = "\n".join(f"  {self.name} | {line}" for line in self.child.tail())
        return PartFailed(f"{self.name} {what}. Its last lines, from {self.child.log}:\n{lines or '  (none)'}")


class Supervisor:
    """Run `stages` of parts until `stopping` says so. `say` is told what a person should know.

    A part that died is started again at once; one that dies again soon, after `first_delay_seconds`, then twice as long
    each time. So is one that has not answered for `longest_silence_seconds`.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Part]],
        stopping: Callable[[], bool],
        say: Callable[[str], None],
        *,
        first_delay_seconds: float = 1,
        longest_silence_seconds: float = 60,
    ) -> None:
        self._stages = stages
        self._stopping = stopping
        self._say = say
        self._first_delay_seconds = first_delay_seconds
        self._longest_silence_seconds = longest_silence_seconds

    def start(self, timeout_seconds: float) -> None:
        """Start stage after stage, each when the one before is ready; returns early when told to stop.

        Raises PartFailed for a part that ends, or is not ready in time.
        """
        for stage in self._stages:
            if self._stopping():
                return
            for part in stage:
                part.start()
            deadline = time.monotonic() + timeout_seconds
            waiting = list(stage)
            while waiting and not self._told_to_stop():
                waiting = [part for part in waiting if not _is_ready(part, deadline, timeout_seconds)]

    def watch_over(self) -> None:
        """Restart what dies or hangs until told to stop. Raises PartFailed for a part that never gets ready."""
        while not self._told_to_stop():
            for part in self._parts():
                self._look_after(part)

    def stop(self) -> None:
        """Last started, first stopped; a stage's parts at the same time."""
        for stage in reversed(self._stages):
            _all_at_once(lambda part: part.child.stop(part.grace_seconds), stage)

    def _told_to_stop(self) -> bool:
        time.sleep(POLL_SECONDS)
        return self._stopping()

    def _parts(self) -> Iterator[Part]:
        return (part for stage in self._stages for part in stage)

    def _look_after(self, part: Part) -> None:
        if part.due_at is not None:
            if time.monotonic() >= part.due_at:
                part.start()
        elif (code := part.child.exit_code) is not None:
            self._bury(part, f"ended with code {code}")
        else:
            part.look()
            if (silent_seconds := part.silent_seconds) > self._longest_silence_seconds:
                self._bury(part, f"has not answered for {silent_seconds:.0f} s")

    def _bury(self, part: Part, why: str) -> None:
        delay = part.bury(self._first_delay_seconds)
        if part.failures >= FAILURES:
            raise part.failed(f"{why}, for the {part.failures}th time before it was ready")
        self._say(f"{part.name} {why}; starting it again{f' in {delay:g} s' if delay else ''}")


def _is_ready(part: Part, deadline: float, timeout_seconds: float) -> bool:
    if part.child.exit_code is not None:
        raise part.failed(f"ended with code {part.child.exit_code} while starting")
    part.look()
    if not part.was_ready and time.monotonic() > deadline:
        raise part.failed(f"was not ready after {timeout_seconds:g} s")
    return part.was_ready


def _all_at_once(act: Callable[[Part], None], parts: Iterable[Part]) -> None:
    threads = [threading.Thread(target=act, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
