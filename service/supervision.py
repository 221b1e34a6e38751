"""Keeping a few child processes running together: started in stages, restarted when they die, stopped in reverse."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.processes import Child

POLL_SECONDS = 0.2
STEADY_SECONDS = 15
"""A part that has lived so long is taken to be well again."""
QUICK_DEATHS = 4
"""As many deaths in a row without a steady life end the stack."""


class PartFailed(Exception):
    """A part that cannot be kept running; the message ends with its last lines of output."""


@dataclass
class Part:
    """A child and how to see that it works: `ready` is asked often while the child starts, and must be quick."""

    name: str
    child: Child
    ready: Callable[[], bool]
    grace_seconds: float = 2
    deaths: int = 0
    started_at: float = field(default=0.0)

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.child.start()

    def failed(self, what: str) -> PartFailed:
        lines = "\n".join(f"  {self.name} | {line}" for line in self.child.tail())
        return PartFailed(f"{self.name} {what}. Its last lines, from {self.child.log}:\n{lines or '  (none)'}")


class Supervisor:
    """Run `stages` of parts until `stopping` is set. `say` is told what a person should know.

    A part that died is started again after `first_delay_seconds`, and after twice as long each time it dies again.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Part]],
        stopping: threading.Event,
        say: Callable[[str], None],
        first_delay_seconds: float = 1,
    ) -> None:
        self._stages = stages
        self._stopping = stopping
        self._say = say
        self._first_delay_seconds = first_delay_seconds

    def start(self, timeout_seconds: float) -> None:
        """Start stage after stage, each when the one before is ready; returns early when told to stop.

        Raises PartFailed for a part that ends, or is not ready in time.
        """
        for stage in self._stages:
            for part in stage:
                part.start()
            deadline = time.monotonic() + timeout_seconds
            waiting = list(stage)
            while waiting and not self._stopping.wait(POLL_SECONDS):
                waiting = [part for part in waiting if not _is_ready(part, deadline, timeout_seconds)]

    def watch_over(self) -> None:
        """Restart what dies until told to stop. Raises PartFailed for a part that keeps dying."""
        while not self._stopping.wait(POLL_SECONDS):
            for part in self._parts():
                if part.child.exit_code is not None:
                    self._revive(part)

    def stop(self) -> None:
        """Last started, first stopped; a stage's parts at the same time."""
        for stage in reversed(self._stages):
            _all_at_once(lambda part: part.child.stop(part.grace_seconds), stage)

    def kill(self) -> None:
        _all_at_once(lambda part: part.child.kill(), self._parts())

    def _parts(self) -> Iterator[Part]:
        return (part for stage in self._stages for part in stage)

    def _revive(self, part: Part) -> None:
        steady = time.monotonic() - part.started_at > STEADY_SECONDS
        part.deaths = 1 if steady else part.deaths + 1
        if part.deaths >= QUICK_DEATHS:
            raise part.failed(f"died {part.deaths} times in a row")
        delay = self._first_delay_seconds * 2 ** (part.deaths - 1)
        self._say(f"{part.name} ended with code {part.child.exit_code}; starting it again in {delay:g} s")
        part.child.kill()
        if not self._stopping.wait(delay):
            part.start()


def _is_ready(part: Part, deadline: float, timeout_seconds: float) -> bool:
    if part.child.exit_code is not None:
        raise part.failed(f"ended with code {part.child.exit_code} while starting")
    if part.ready():
        return True
    if time.monotonic() > deadline:
        raise part.failed(f"was not ready after {timeout_seconds:g} s")
    return False


def _all_at_once(act: Callable[[Part], None], parts: Iterable[Part]) -> None:
    threads = [threading.Thread(target=act, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
