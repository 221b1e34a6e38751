"""Keeps an agent running on a Ray cluster that may die and come back.

A program on Ray ends with its node: Ray's core aborts it, at any moment. So the agent is a child of a process that
never imports Ray, and is started again for as long as it takes.
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

# How the child says that starting it again is of no use; any other end is the cluster's, or a crash.
STOPPED, REFUSED = 0, 77
# The child's word for a cluster that cannot be reached, or is lost; it has said so in a sentence.
CLUSTER_LOST = 75
# ... and for another agent that has taken the name: the next child waits for that one's end.
REPLACED = 76
FAILED = 1

POLL_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
# A child that has lived so long had a cluster: after its end the pauses start small again.
STEADY_SECONDS = 60.0
# As long as an agent takes to close its slots and to hand back what its last claim brought.
STOP_SECONDS = 12.0


def supervise_agent(service_url: str, name: str, ray_address: str, token: str | None = None) -> int:
    """Run an agent in a child until SIGTERM or SIGINT; returns the exit code, 1 if the service refuses the agent."""
    # -P: what lies in the folder where this was started must not be imported in place of ours.
    command = [sys.executable, "-P", "-m", "trainer.agent.process", service_url, name, ray_address]
    env = {key: value for key, value in os.environ.items() if key != "PACELINE_TOKEN"}
    return AgentSupervisor(command, env | ({"PACELINE_TOKEN": token} if token else {})).run()


class AgentSupervisor:
    """Starts `command` again until it ends for good. Its standard input closes when this process dies."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self._command = command
        self._env = env
        # Not an event: a signal's handler that sets one may wait for ever for the very code that it interrupts.
        self._signals = 0

    def run(self) -> int:
        with _signals(self._heed):
            pause = FIRST_PAUSE_SECONDS
            while not self._signals:
                started_at = time.monotonic()
                code = self._run_once()
                if self._signals or code == STOPPED:
                    break
                if code == REFUSED:
                    return FAILED
                if time.monotonic() - started_at > STEADY_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                logger.warning("%s; starting it again in %g s", _ended(code), pause)
                self._wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return STOPPED

    def _heed(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        logger.info("%s: %s", signal.Signals(number).name, "stopping" if self._signals == 1 else "killing")

    def _run_once(self) -> int:
        """The child's exit code. A process group of its own: a terminal's Ctrl-C is for the parent to pass on."""
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
                logger.warning("the agent does not end by itself and is killed; a new one finds its slots again")
                child.kill()
                child.wait()


def _ended(code: int) -> str:
    if code == CLUSTER_LOST:
        return "the agent has no cluster"
    if code == REPLACED:
        return "the agent has lost its name to another"
    if code < 0:
        return f"the agent's process was ended by {signal.Signals(-code).name}"
    return f"the agent's process ended with code {code}, as Ray ends it when its node is gone"


@contextmanager
def _signals(heed: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    earlier = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
