"""The load: one experiment of each kind at a time, the next one as soon as it has ended, and a user who steers one."""

from collections.abc import Callable, Sequence

from tests.chaos.evidence.calls import Call
from tests.chaos.experiments import Planned
from tests.chaos.service_caller import ServiceCaller
from tests.chaos.submission import submit
from tests.chaos.user import User

WATCH_SECONDS = 2.0
ENDED = {"completed", "failed", "stopped"}

Series = Callable[[int], Planned]
"""The n-th experiment of a kind."""


class Load:
    """Submits experiments to any service that answers."""

    def __init__(self, urls: Sequence[str], series: Sequence[Series], user: User | None = None) -> None:
        self._services, self._watch = ServiceCaller(urls), ServiceCaller(urls, answer_seconds=WATCH_SECONDS)
        self._series = series
        self._counts = [0] * len(series)
        self._running: list[str | None] = [None] * len(series)
        self._submitted: dict[str, Planned] = {}
        self._user = user

    def begin(self) -> None:
        for index in range(len(self._series)):
            self._submit(index)
        if self._user:
            self._user.start()

    def poll(self, *, submit_next: bool) -> bool:
        """Return whether any experiment still runs. With `submit_next`, replace the ended ones."""
        ended = self._ended()
        for index, experiment in enumerate(self._running):
            if experiment in ended:
                self._running[index] = None
                if submit_next:
                    self._submit(index)
        if self._user and not submit_next:
            self._user.finish()
        return any(self._running) or (self._user is not None and self._user.is_busy())

    @property
    def planned(self) -> dict[str, Planned]:
        """All experiments that were submitted, by id. Those that the user has thrown away are not among them."""
        return self._submitted | (self._user.planned if self._user else {})

    @property
    def calls(self) -> list[Call]:
        """The user's calls, in their order."""
        return self._user.calls if self._user else []

    def close(self) -> None:
        if self._user:
            self._user.give_up()
        self._services.close()
        self._watch.close()

    def _submit(self, index: int) -> None:
        planned = self._series[index](self._counts[index])
        self._counts[index] += 1
        experiment = submit(self._services, planned.spec)
        self._running[index] = experiment
        self._submitted[experiment] = planned

    def _ended(self) -> set[str]:
        """One short call for all, because the run continues frozen services only between two polls."""
        try:
            answer = self._watch.call("GET", "/v1/experiments", timeout=0, params={"limit": 1000})
        except TimeoutError:
            return set()
        return {one["id"] for one in answer.raise_for_status().json()["items"] if one["status"] in ENDED}
