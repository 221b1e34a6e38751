"""Process tags: an environment variable by which a process and all its descendants are found.

Descendants inherit it. So they are found after their parents died, in sessions of their own, and by another process
than the one that started them; and a process id that the system has reused is never mistaken for them.
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
    """Processes survived SIGKILL: they hang in the kernel."""


def new_tag(environment: Mapping[str, str] = os.environ) -> str:
    """Return a new tag below the environment's own, if it has one: a search for that one then finds both."""
    parent = environment.get(VARIABLE)
    return f"{parent}.{secrets.token_hex(8)}" if parent else secrets.token_hex(8)


def tag_environment(tag: str) -> dict[str, str]:
    """Return the variables for a child's environment. SPT_NOENV keeps Ray's process titles from overwriting the tag."""
    return {VARIABLE: tag, "SPT_NOENV": "1"}


def tagged_processes(tag: str) -> list[psutil.Process]:
    """Return the living processes with this tag or one below it."""
    tags = {process: _tag_of(process) for process in psutil.process_iter()}
    if unknown := [process for process, found in tags.items() if found is None]:
        time.sleep(POLL_SECONDS)
        tags |= {process: _tag_of(process) for process in unknown}
    return [process for process, found in tags.items() if found and _is_below(found, tag)]


def kill_tagged(tag: str, timeout_seconds: float = 5) -> None:
    """Kill the tagged processes, and any that they start in the meantime. Raises Unkillable when some survive.

    After the deadline it looks once more: this process may itself have been kept from running until then.
    """
    deadline, is_last = time.monotonic() + timeout_seconds, False
    while found := tagged_processes(tag):
        if is_last:
            raise Unkillable(f"these processes survived SIGKILL: {', '.join(map(str, found))}")
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        is_last = time.monotonic() > deadline
        time.sleep(POLL_SECONDS)  # no wait(): their exit codes belong to their parents


def _tag_of(process: psutil.Process) -> str | None:
    """Return "" for a process without a tag; None while it has no environment yet, as when a program starts."""
    try:
        environment = process.environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):  # ended, a zombie, or another user's
        return ""
    return environment.get(VARIABLE, "") if environment else None


def _is_below(found: str, tag: str) -> bool:
    return found == tag or found.startswith(f"{tag}.")
