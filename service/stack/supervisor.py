"""Supervision of a few child processes: started together, restarted when they die or hang, stopped in stages."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from service.stack.child_process import LOW_PRIORITY, STARTING_PRIORITY, ChildProcess
from service.stack.process_tags import Unkillable

POLL_SECONDS = 0.2
HEALTH_CHECK_SECONDS = 5
"""How often the supervisor calls a component's health check."""
STABLE_SECONDS = 15
"""After this time a component counts as recovered: its next death is treated as the first one."""
MAX_DELAY_SECONDS = 10.0
MAX_FAILURES = 4
"""How many times in a row a component may end before it was ready. Then the whole stack ends."""


class ComponentFailed(Exception):
    """A component that cannot be kept running; the message ends with the last lines of its output."""


@dataclass
class Component:
    """A child process with its checks. `is_ready` is polled while the component starts, and must be fast.

    `is_healthy`, if given, is called regularly once the component is ready, because a process may hang without dying. A
    component with `low_priority` starts with STARTING_PRIORITY and gets LOW_PRIORITY once it is ready; earlier it might
    never become ready on a busy machine. One that `retries_start` may end while it starts and is started again.
    """

    name: str
    child: ChildProcess
    is_ready: Callable[[], bool]
    grace_seconds: float = 2
    is_healthy: Callable[[], bool] | None = None
    low_priority: bool = False
    retries_start: bool = False
    started_at: float | None = field(default=None, init=False)
    was_ready: bool = field(default=False, init=False)
    deaths: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    restart_at: float | None = field(default=None, init=False)
    _checked_at: float = field(default=0.0, init=False)
    was_ever_ready: bool = field(default=False, init=False)
    unstartable_since: float | None = field(default=None, init=False)
    """The first of the failures in a row to start its process."""
    _unhealthy_since: float | None = field(default=None, init=False)

    def start(self) -> None:
        """Raises OSError and Unkillable when it cannot be started."""
        self.was_ready, self.restart_at, self._unhealthy_since = False, None, None
        self.started_at = self._checked_at = time.monotonic()
        self.child.start()
        self.unstartable_since = None
        if self.low_priority:
            self.child.set_priority(STARTING_PRIORITY)

    def check(self) -> None:
        """Check readiness until it is ready, and then health every HEALTH_CHECK_SECONDS.

        After a restart a healthy one counts as ready: others may be away that it needs, such as the storage.
        """
        is_ready = self.is_healthy if self.is_healthy and self.was_ever_ready else self.is_ready
        if not self.was_ready and is_ready():
            self.was_ready = self.was_ever_ready = True
            if self.low_priority:
                self.child.set_priority(LOW_PRIORITY)
        if self.is_healthy and self.was_ready and time.monotonic() - self._checked_at > HEALTH_CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._unhealthy_since = None if self.is_healthy() else self._unhealthy_since or self._checked_at

    @property
    def was_killed(self) -> bool:
        """Whether it has ended by SIGKILL, from outside: no failure of its own. Until it is started again."""
        return self.child.exit_code == -signal.SIGKILL

    @property
    def failed_first_start(self) -> bool:
        """Whether it has ended before it was ever ready, by a failure that would repeat itself."""
        is_own_failure = not self.was_killed and not self.retries_start
        return self.child.exit_code is not None and not self.was_ready and self.deaths == 0 and is_own_failure

    def is_late(self, start_seconds: float) -> bool:
        """Whether it runs, and is not ready so long after its start."""
        is_starting = not self.was_ready and self.restart_at is None
        return is_starting and time.monotonic() - (self.started_at or 0) > start_seconds

    @property
    def unhealthy_seconds(self) -> float:
        """How long every health check has failed."""
        return time.monotonic() - self._unhealthy_since if self._unhealthy_since else 0

    def schedule_restart(self, first_delay_seconds: float, *, failed: bool) -> float:
        """Kill the rest of its processes, count its death, and return the seconds until it is started again.

        `failed`: whether that counts as a failure to become ready, where it was not ready yet. The delay after the
        first death is 0, since most are accidents.
        """
        stable = time.monotonic() - (self.started_at or 0) > STABLE_SECONDS
        self.failures, self.was_ready = 0 if self.was_ready else self.failures + failed, False
        self.deaths = 1 if stable else self.deaths + 1
        with contextlib.suppress(Unkillable):  # the next start tries again
            self.child.kill()
        delay = min(first_delay_seconds * 2.0 ** (self.deaths - 2), MAX_DELAY_SECONDS) if self.deaths > 1 else 0
        self.restart_at = time.monotonic() + delay
        return delay

    def failed(self, what: str) -> ComponentFailed:
        lines = "\n".join(f"  {self.name} | {line}" for line in self.child.tail())
        return ComponentFailed(f"{self.name} {what}. Its last lines, from {self.child.log}:\n{lines or '  (none)'}")


class Supervisor:
    """Runs `stages` of components until `should_stop` returns true; the last stage stops first. `say` prints a line.

    A component that dies is restarted immediately. If it dies again soon, the restart waits `first_delay_seconds`, and
    twice as long each further time. A component whose health checks fail for `max_unhealthy_seconds` is restarted too.
    """

    def __init__(
        self,
        stages: Sequence[Sequence[Component]],
        should_stop: Callable[[], bool],
        say: Callable[[str], None],
        *,
        first_delay_seconds: float = 1,
        max_unhealthy_seconds: float = 60,
    ) -> None:
        self._stages = stages
        self._should_stop = should_stop
        self._say = say
        self._first_delay_seconds = first_delay_seconds
        self._max_unhealthy_seconds = max_unhealthy_seconds
        self._start_seconds = math.inf

    def start(self, timeout_seconds: float) -> None:
        """Start all components at the same time. Returns early when it should stop. The timeout is for restarts, too.

        One that is killed meanwhile, cannot be started, or `retries_start`, is restarted, and so is one that dies after
        it was ready. Raises ComponentFailed for one that ends otherwise, or is not ready `timeout_seconds` after its
        start.
        """
        self._start_seconds = timeout_seconds
        components = [] if self._should_stop() else list(self._components())
        for component in components:
            self._start(component)
        while not all(component.was_ready for component in components):
            if self._should_stop_after_pause():
                return
            for component in components:
                self._check_start(component)

    def supervise(self) -> None:
        """Restart what dies or hangs until it should stop.

        Raises ComponentFailed for one that ends again and again before it is ready, or cannot be started for long.
        """
        while not self._should_stop_after_pause():
            for component in self._components():
                self._check(component)
                if component.is_late(self._start_seconds) and self._answers_alone(component):
                    self._schedule_restart(component, f"has not answered for {self._start_seconds:g} s", failed=False)

    def stop(self) -> None:
        """Stop the stages in reverse order; the components of a stage stop at the same time."""
        for stage in reversed(self._stages):
            _in_parallel(_stop, stage)

    def _should_stop_after_pause(self) -> bool:
        time.sleep(POLL_SECONDS)
        return self._should_stop()

    def _components(self) -> Iterator[Component]:
        return (component for stage in self._stages for component in stage)

    def _answers_alone(self, component: Component) -> bool:
        """Whether no other part, which is not ready either, may be what keeps it from being ready."""
        others = (other for other in self._components() if other is not component)
        return component.is_healthy is not None or all(other.was_ready for other in others)

    def _check_start(self, component: Component) -> None:
        if component.failed_first_start:
            raise component.failed(f"ended with code {component.child.exit_code} while starting")
        self._check(component)
        if component.is_late(self._start_seconds):
            raise component.failed(f"was not ready after {self._start_seconds:g} s")

    def _check(self, component: Component) -> None:
        if component.restart_at is not None:
            if time.monotonic() >= component.restart_at:
                self._start(component)
        elif (code := component.child.exit_code) is not None:
            self._schedule_restart(component, f"ended with code {code}", failed=not component.was_killed)
        else:
            component.check()
            if (unhealthy_seconds := component.unhealthy_seconds) > self._max_unhealthy_seconds:
                self._schedule_restart(component, f"has not answered for {unhealthy_seconds:.0f} s", failed=False)

    def _start(self, component: Component) -> None:
        try:
            component.start()
        except (OSError, Unkillable) as error:
            since = component.unstartable_since = component.unstartable_since or time.monotonic()
            why = f"could not be started ({error})"
            if component.was_ever_ready and time.monotonic() - since > self._start_seconds:
                raise component.failed(f"{why} for {self._start_seconds:g} s") from error
            self._schedule_restart(component, why, failed=not component.was_ever_ready)

    def _schedule_restart(self, component: Component, why: str, *, failed: bool) -> None:
        delay = component.schedule_restart(self._first_delay_seconds, failed=failed)
        if component.failures >= MAX_FAILURES:
            raise component.failed(f"{why}, for the {component.failures}th time before it was ready")
        self._say(f"{component.name} {why}; restarting it{f' in {delay:g} s' if delay else ''}")


def _stop(component: Component) -> None:
    with contextlib.suppress(Unkillable):  # the stack's cleanup tries again, and reports it
        component.child.stop(component.grace_seconds)


def _in_parallel(action: Callable[[Component], None], components: Iterable[Component]) -> None:
    threads = [threading.Thread(target=action, args=(component,)) for component in components]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
