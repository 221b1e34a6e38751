"""Creations of runs of which MLflow may have one too many: one run stays, the one whose id the database gets.

MLflow has not answered a creation, and may still execute it, beside that of a later attempt. Or it has, and the id is
not stored yet: the batch failed, or another service has stored a run meanwhile.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from service.mirror.runs.new_runs import GENERATION_TAG, TRIAL_TAG, NewRun
from service.mirror.runs.projection import RunKey

LOOK_AFTER_SECONDS = (0.0, 30.0, 300.0)
"""MLflow creates a late run when what delays its writes ends, such as a lock in its database."""
FORGET_AFTER_SECONDS = 3600.0
"""When an entry is dropped for which no run is known, or MLflow could not be asked, as while it is away."""


@dataclass
class UnansweredCreation:
    """`run_id` is the run that is stored, which is kept; None before. `made` are those that this process created."""

    experiment_id: str
    mlflow_experiment_id: str
    new: NewRun
    forgotten_at: float
    run_id: str | None = None
    is_unanswered: bool = False
    made: set[str] = field(default_factory=set)
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
        """Note a creation that MLflow has not answered."""
        self._entry(experiment_id, mlflow_experiment_id, new).is_unanswered = True

    def created(self, experiment_id: str, mlflow_experiment_id: str, new: NewRun, run_id: str) -> None:
        """Note a run that this process has created, before its id is stored."""
        self._entry(experiment_id, mlflow_experiment_id, new).made.add(run_id)

    def stored(self, new: NewRun, run_id: str) -> None:
        """The database has the id of this run, so that it is kept."""
        creation = self._by_key.get(_key(new))
        if creation is None or creation.run_id == run_id:
            return
        if not creation.is_unanswered and creation.made <= {run_id}:
            del self._by_key[_key(new)]
            return
        creation.run_id = run_id
        creation.looks_at = [self._clock() + seconds for seconds in LOOK_AFTER_SECONDS]

    def stored_runs(self, experiment_id: str, run_ids: Mapping[tuple[str, int], str]) -> None:
        """The database has the ids of these runs of trials, by trial and generation."""
        for one in self.all():
            run_id = run_ids.get(one.run_key) if one.run_key and one.experiment_id == experiment_id else None
            if run_id is not None:
                self.stored(one.new, run_id)

    def _entry(self, experiment_id: str, mlflow_experiment_id: str, new: NewRun) -> UnansweredCreation:
        """A new entry if there is none, or one that is about to be forgotten or that belongs to an earlier run."""
        before = self._by_key.get(_key(new))
        entry = UnansweredCreation(experiment_id, mlflow_experiment_id, new, self._clock() + FORGET_AFTER_SECONDS)
        if before is not None:
            entry.is_unanswered, entry.made = before.is_unanswered, before.made
        self._by_key[_key(new)] = entry
        return entry

    def all(self) -> list[UnansweredCreation]:
        return list(self._by_key.values())

    def keep_only(self, experiment_ids: Collection[str]) -> None:
        """Drop the entries of other experiments, which were deleted, and the old ones."""
        now = self._clock()
        for key, one in list(self._by_key.items()):
            if one.experiment_id not in experiment_ids or one.forgotten_at <= now:
                del self._by_key[key]

    def due(self) -> list[UnansweredCreation]:
        """The creations for which it is time to look for late runs."""
        now = self._clock()
        return [one for one in self._by_key.values() if one.looks_at and one.looks_at[0] <= now]

    def postpone(self, creation: UnansweredCreation) -> None:
        """MLflow did not answer: this one is the last of the next pass."""
        self._by_key[_key(creation.new)] = self._by_key.pop(_key(creation.new))

    def looked(self, creation: UnansweredCreation) -> None:
        del creation.looks_at[0]
        if not creation.looks_at:
            del self._by_key[_key(creation.new)]


def _key(new: NewRun) -> tuple[tuple[str, str | None], ...]:
    return tuple(new.key.items())
