"""What a process keeps of a database from one transaction to the next, as long as the same server answers."""

from threading import Lock
from typing import Any, TypeVar, cast

from sqlalchemy.orm import Session

Cache = TypeVar("Cache")

_KEY = "process_caches"


class ProcessCaches:
    """Caches, one of each type, that are dropped when a connection breaks. Thread-safe.

    After a failover, another server may answer that lacks the last commits. It may then store as many others, so that
    no count of events tells that the history is another one. `epoch` does.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._caches: dict[type[Any], Any] = {}
        self._lock = Lock()

    def of(self, kind: type[Cache]) -> Cache:
        with self._lock:
            if kind not in self._caches:
                self._caches[kind] = kind()
            return cast(Cache, self._caches[kind])

    def clear(self) -> None:
        with self._lock:
            self._caches.clear()
            self.epoch += 1

    def for_sessions(self) -> dict[Any, Any]:
        """The `info` of a session for which `process_caches` returns these caches."""
        return {_KEY: self}


def process_caches(session: Session) -> ProcessCaches:
    return cast(ProcessCaches, session.info[_KEY])


def cache_epoch(session: Session) -> int:
    """What was kept in another epoch must be read again. To be asked for before what is kept is read.

    But after the session's first statement, which finds out whether its connection is broken.
    """
    return process_caches(session).epoch
