"""Processes known by a mark in their environment, which each hands down to whatever it starts.

It finds a family where parents have died and children opened sessions of their own, after a restart of the one who
asks too; and a number that another process got since deceives nobody.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Mapping

import psutil

VARIABLE = "PACELINE_STACK"
POLL_SECONDS = 0.02


class Unkillable(Exception):
    """Processes that outlive SIGKILL: they hang in the kernel."""


def new_mark(environment: Mapping[str, str] = os.environ) -> str:
    """A mark below the one that this environment bears, if any: who looks for that one finds both."""
    above = environment.get(VARIABLE)
    return f"{above}.{secrets.token_hex(8)}" if above else secrets.token_hex(8)


def bearing(mark: str) -> dict[str, str]:
    """What to add to a child's environment. Ray gives its processes titles, and would write them over it."""
    return {VARIABLE: mark, "SPT_NOENV": "1"}


def marked(mark: str) -> list[psutil.Process]:
    """Every living process with this mark or one below it."""
    marks = {process: _mark_of(process) for process in psutil.process_iter()}
    if blank := [process for process, found in marks.items() if found is None]:
        time.sleep(POLL_SECONDS)
        marks |= {process: _mark_of(process) for process in blank}
    return [process for process, found in marks.items() if found and _is_below(found, mark)]


def end_marked(mark: str, timeout_seconds: float = 5) -> None:
    """Kill them, and what they start meanwhile. Raises Unkillable when some live on."""
    deadline = time.monotonic() + timeout_seconds
    while found := marked(mark):
        if time.monotonic() > deadline:
            raise Unkillable(f"these processes outlive SIGKILL: {', '.join(map(str, found))}")
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(POLL_SECONDS)  # not waited for: their exit codes are their parents'


def _mark_of(process: psutil.Process) -> str | None:
    """None while it has no environment yet, as for a moment at the start of a program."""
    try:
        environment = process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):  # gone, a zombie, or not ours
        return ""
    return environment.get(VARIABLE, "") if environment else None


def _is_below(found: str, mark: str) -> bool:
    return found == mark or found.startswith(f"{mark}.")
