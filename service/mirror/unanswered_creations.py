"""Runs whose creation MLflow has not answered. It may still create them, beside those that a later attempt creates."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from service.mirror.new_runs import GENERATION_TAG, TRIAL_TAG, NewRun
from service.mirror.projection import RunKey

LOOK_AFTER_SECONDS = (0.0, 30.0, 300.0)
"""MLflow creates a late run when what delays its writes ends, such as a lock in its database."""
FORGET_AFTER_SECONDS = 3600.0
"""An entry of which no run became known, or for which MLflow could not be asked, as while it is away."""


@dataclass
class UnansweredCreation:
    """`run_id` is the run that is kept; None until an attempt to create one is answered."""

    experiment_id: str
    mlflow_experiment_id: str
    new: NewRun
    forgotten_at: float
    run_id: str | None = None
    looks_at: list[float] = field(default_factory=list)

    @property
    def run_key(self) -> RunKey | None:
        """None for the run of an experiment."""
        trial_id = self.new.key.get(TRIAL_TAG)
        return None if trial_id is None else RunKey(trial_id, int(self.new.key.get(GENERATION_TAG) or 0))


class UnansweredCreations:
    """`clock` counts seconds from any start, as `time.monotonic` does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_key: dict[tuple[tuple[str, str | None], ...], UnansweredCreation] = {}

    def add(self, experiment_id: str, mlflow_experiment_id: str, new: NewRun) -> None:
        forgotten_at = self._clock() + FORGET_AFTER_SECONDS
        self._by_key[_key(new)] = UnansweredCreation(experiment_id, mlflow_experiment_id, new, forgotten_at)

    def keep(self, new: NewRun, run_id: str) -> None:
        """Note the run that is kept; without effect if all attempts to create it were answered."""
        creation = self._by_key.get(_key(new))
        if creation is not None:
            creation.run_id = run_id
            creation.looks_at = [self._clock() + seconds for seconds in LOOK_AFTER_SECONDS]

    def all(self) -> list[UnansweredCreation]:
        return list(self._by_key.values())

    def keep_only(self, experiment_ids: Collection[str]) -> None:
        """Drop the entries of other experiments, which were deleted, and the old ones."""
        now = self._clock()
        for key, one in list(self._by_key.items()):
            if one.experiment_id not in experiment_ids or one.forgotten_at <= now:
                del self._by_key[key]

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
