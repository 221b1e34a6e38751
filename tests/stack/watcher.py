"""A caller who uses the service all the time, and notes which calls failed, and how."""

import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

INTERVAL_SECONDS = 0.2
CALL_SECONDS = 20
RETRYABLE = frozenset({"502", "503"})
"""The failures that a caller may see while a service is replaced or killed."""


@dataclass
class Watcher:
    """`failures` are times with what was seen: an HTTP status, or the name of an error of the connection."""

    url: str
    calls: int = 0
    failures: list[tuple[float, str]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(CALL_SECONDS)

    def failures_since(self, start: float) -> list[str]:
        return [what for at, what in self.failures if at >= start]

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            began = time.monotonic()
            if (failure := self._failure()) is not None:
                self.failures.append((began, failure))
            self.calls += 1

    def _failure(self) -> str | None:
        try:
            with urllib.request.urlopen(self.url, timeout=CALL_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return type(error).__name__
