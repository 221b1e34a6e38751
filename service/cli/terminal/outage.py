"""An outage of the service while a command follows something: it waits, and goes on when the service answers again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from service.cli.client.answers import Refused, Unreachable

OUTAGE_SECONDS = 300.0
"""How long the service may not answer before following ends: longer than a restart, or an upgrade, takes."""

POLL_SECONDS = 0.5
"""The time between two calls of a command that follows something."""


@dataclass
class Outage:
    """Why the service cannot be reached now, if it cannot. `say` gets a sentence when that begins, and when it ends."""

    say: Callable[[str], None]
    seconds: float = OUTAGE_SECONDS
    why: str | None = None
    _began_at: float = 0.0

    def seen(self, error: Unreachable | Refused) -> None:
        """Raises the error if the service will not answer otherwise soon, or has been away for `seconds`."""
        if self.why is None:
            self._began_at = time.monotonic()
        if not error.is_temporary or time.monotonic() - self._began_at >= self.seconds:
            raise error
        if self.why is None:
            self.say(f"{error}; trying again")
        self.why = str(error)

    def over(self) -> None:
        """The service has answered."""
        if self.why is not None:
            self.say("the service answers again")
        self.why = None
