"""What the lines of a process's log are about: the process, and the request, experiment, trial and attempt at hand.

The service uses this package, too. It needs only the standard library, because it travels to the cluster by value.
"""

import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

LOGGER = "paceline"
"""The logger of all code that travels to the cluster."""

CREDENTIAL = "credential"
"""The bound token of the request at hand, which no line shows."""


class LogContext:
    """The fields of each line. Those of `process` hold for all lines; the others follow contextvars.

    So what is bound holds for the code that is called, for tasks, and for threads that anyio or asyncio starts. Another
    thread takes it over with `resumed`. `mask` replaces the secrets that this process knows.
    """

    def __init__(self) -> None:
        self.process: dict[str, Any] = {}
        self.mask: Callable[[str], str] = str
        self._bound: ContextVar[dict[str, Any] | None] = ContextVar("paceline_log", default=None)

    def __reduce__(self) -> tuple[Callable[[], "LogContext"], tuple[()]]:
        """A context variable cannot be pickled. Code that arrives by value uses the context of its new process."""
        return _context_of_process, ()

    def fields(self) -> dict[str, Any]:
        """What a line shows."""
        shown = self.process | (self._bound.get() or {})
        return {name: value for name, value in shown.items() if value is not None and name != CREDENTIAL}

    @property
    def credential(self) -> str | None:
        return (self._bound.get() or {}).get(CREDENTIAL)

    def begin(self, **fields: Any) -> None:
        """Bind these fields alone, until the present task or thread ends."""
        self._bound.set(fields)

    def add(self, **fields: Any) -> None:
        """Add to what is bound, for all who share it: also for the code that has called this."""
        if (bound := self._bound.get()) is not None:
            bound.update(fields)

    def current(self) -> dict[str, Any]:
        """What is bound, for `resumed` in another thread."""
        return self._bound.get() or {}

    @contextlib.contextmanager
    def resumed(self, bound: dict[str, Any]) -> Iterator[None]:
        token = self._bound.set(bound)
        try:
            yield
        finally:
            self._bound.reset(token)

    def bound(self, **fields: Any) -> contextlib.AbstractContextManager[None]:
        """Bind these fields besides what is bound."""
        return self.resumed({**self.current(), **fields})

    def request(self) -> contextlib.AbstractContextManager[None]:
        """Bind the id of a new request, unless there is one: a repeated call keeps its id."""
        return self.bound(request=self.request_id or new_request_id())

    @property
    def request_id(self) -> str | None:
        return self.current().get("request")


def new_request_id() -> str:
    return secrets.token_hex(8)


def _context_of_process() -> LogContext:
    """Kept with the logger, because a process may get several copies of this module by value."""
    context: LogContext = vars(logging.getLogger(LOGGER)).setdefault("log_context", LogContext())
    return context


log_context = _context_of_process()
