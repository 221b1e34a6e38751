"""Runs whose creation MLflow has not answered. It may still create them, beside those that a later attempt creates."""

from collections.abc import Callable
from dataclasses import dataclass, field

from service.mirror.new_runs import NewRun

LOOK_AFTER_SECONDS = (0.0, 30.0, 300.0)
"""MLflow creates a late run when what delays its writes ends, such as a lock in its database."""


@dataclass
class UnansweredCreation:
    """`run_id` is the run that is kept; None until an attempt to create one is answered."""

    mlflow_experiment_id: str
    new: NewRun
    run_id: str | None = None
    looks_at: list[float] = field(default_factory=list)


class UnansweredCreations:
    """`clock` counts seconds from any start, as `time.monotonic` does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_key: dict[tuple[tuple[str, str | None], ...], UnansweredCreation] = {}

    def add(self, mlflow_experiment_id: str, new: NewRun) -> None:
        self._by_key[_key(new)] = UnansweredCreation(mlflow_experiment_id, new)

    def keep(self, new: NewRun, run_id: str) -> None:
        """Note the run that is kept; without effect if all attempts to create it were answered."""
        creation = self._by_key.get(_key(new))
        if creation is not None:
            creation.run_id = run_id
            creation.looks_at = [self._clock() + seconds for seconds in LOOK_AFTER_SECONDS]

    def due(self) -> list[UnansweredCreation]:
        """Those for which it is time to look for late runs."""
        now = self._clock()
        return [one for one in self._by_key.values() if one.looks_at and one.looks_at[0] <= now]

    def looked(self, creation: UnansweredCreation) -> None:
        del creation.looks_at[0]
        if not creation.looks_at:
            del self._by_key[_key(creation.new)]


def _key(new: NewRun) -> tuple[tuple[str, str | None], ...]:
    return tuple(new.key.items())
