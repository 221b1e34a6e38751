"""A process that computes for the service: it calls the functions that arrive at its standard input, one by one.

A message is 8 bytes with a length and a pickle of that length: of a function, its arguments and the fields of its log
lines; and as the answer of whether the function has returned, and what it returned or raised.
"""

import os
import pickle
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO

from service.errors import ServiceError
from trainer.process_log.context import log_context
from trainer.process_log.setup import LogSettings, set_up_process

LENGTH_BYTES = 8
LOW_PRIORITY = 5
"""A niceness: beside a process that computes all the time, about a quarter of a processor."""
IDLE_SECONDS = 600.0
"""A worker that is idle for so long ends, because it holds about 100 MB of memory."""

FIRST_TO_KILL = "900"
"""An `oom_score_adj`: when memory runs out, the kernel kills this process and not the service."""


class WorkFailed(Exception):
    """A function failed unexpectedly. The message is the traceback."""


def framed(message: object) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def main() -> None:
    """Serve until the standard input ends: when the service dies, also in the middle of a computation."""
    with suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_KILL)
    set_up_process(LogSettings.from_env(), "service")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # so that a print cannot be taken for an answer
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    with suppress(Empty):
        while True:
            answers.write(_answer(requests.get(timeout=IDLE_SECONDS)))
            answers.flush()


def _read(source: BinaryIO, requests: "SimpleQueue[bytes]") -> None:
    while header := source.read(LENGTH_BYTES):
        requests.put(source.read(int.from_bytes(header, "big")))
    os._exit(0)


def _answer(request: bytes) -> bytes:
    try:
        work, arguments, log_fields = pickle.loads(request)  # noqa: S301 - the service has written it
        log_context.begin(**log_fields)
        _lower_priority()
        return framed((True, work(*arguments)))
    except ServiceError as error:
        return framed((False, error))
    except Exception:  # noqa: BLE001 - it is raised in the caller
        return framed((False, WorkFailed(traceback.format_exc())))


@cache
def _lower_priority() -> None:
    """Once, after the first function has been imported: its caller waits for that, too."""
    os.nice(LOW_PRIORITY)
