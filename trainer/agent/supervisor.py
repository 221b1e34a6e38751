"""Keeps an agent running on a Ray cluster that may die and come back.

Ray's core aborts a program when its node dies. So the agent runs in a child process, and this parent, which never
imports Ray, starts it again.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

logger = logging.getLogger(__name__)

STOPPED, REFUSED = 0, 77
"""Exit codes of a child that is not to be started again. After any other end it is."""

CLUSTER_LOST = 75
"""The exit code for a cluster that cannot be reached, or is lost. The child has logged which."""

REPLACED = 76
"""The exit code of an agent whose name another one has taken. The next child waits for that one's end."""

FAILED = 1

POLL_SECONDS = 0.2
FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 10.0

STEADY_SECONDS = 60.0
"""A child that has lived so long had a cluster: after its end the delays start small again."""

STOP_SECONDS = 12.0
"""The time that an agent takes to close its slots and to give back the assignment of its last claim."""


def supervise_agent(service_url: str, name: str, ray_address: str, token: str | None = None) -> int:
    """Run an agent in a child until SIGTERM or SIGINT; returns the exit code, 1 if the service refuses the agent."""
    # -P: Python must not import modules from the current folder in place of ours.
    command = [sys.executable, "-P", "-m", "trainer.agent.process", service_url, name, ray_address]
    env = {key: value for key, value in os.environ.items() if key != "PACELINE_TOKEN"}
    return AgentSupervisor(command, env | ({"PACELINE_TOKEN": token} if token else {})).run()


class AgentSupervisor:
    """Runs `command` again and again until it stops or is refused. Its standard input closes when this process dies."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self._command = command
        self._env = env
        # Not an event: a signal handler that sets one may deadlock with the code that it interrupts.
        self._signals = 0

    def run(self) -> int:
        with _signal_handler(self._handle_signal):
            delay = FIRST_DELAY_SECONDS
            while not self._signals:
                started_at = time.monotonic()
                code = self._run_once()
                if self._signals or code == STOPPED:
                    break
                if code == REFUSED:
                    return FAILED
                if time.monotonic() - started_at > STEADY_SECONDS:
                    delay = FIRST_DELAY_SECONDS
                logger.warning("%s; starting it again in %g s", _describe_end(code), delay)
                self._wait(delay)
                delay = min(2 * delay, MAX_DELAY_SECONDS)
        return STOPPED

    def _handle_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        logger.info("%s: %s", signal.Signals(number).name, "stopping" if self._signals == 1 else "killing")

    def _run_once(self) -> int:
        """The child's exit code. The child has a process group of its own, so that Ctrl-C reaches the parent only."""
        with subprocess.Popen(self._command, env=self._env, stdin=subprocess.PIPE, process_group=0) as child:  # noqa: S603
            while child.poll() is None:
                time.sleep(POLL_SECONDS)
                if self._signals:
                    self._stop(child)
            return child.returncode

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._signals and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while child.poll() is None:
            time.sleep(POLL_SECONDS)
            if self._signals > 1 or time.monotonic() > deadline:
                logger.warning("the agent does not end by itself and is killed; the next one adopts its slots")
                child.kill()
                child.wait()


def _describe_end(code: int) -> str:
    if code == CLUSTER_LOST:
        return "the agent has no cluster"
    if code == REPLACED:
        return "another agent has taken this agent's name"
    if code < 0:
        return f"the agent's process was ended by {signal.Signals(-code).name}"
    why = "its last lines say why, or Ray has ended it because its node is gone"
    return f"the agent's process ended with code {code}: {why}"


@contextmanager
def _signal_handler(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    earlier = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
