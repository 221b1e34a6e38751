"""The results of experiments up to the last mirrored event, kept so that a batch does not read all earlier events."""

from collections import OrderedDict
from typing import NamedTuple

from service.mirror.runs.projection import BestSoFar

MAX_EXPERIMENTS = 256


class _ResultsAtEvent(NamedTuple):
    seq: int
    results: BestSoFar


class KnownResults:
    """The results of the experiments that were mirrored last. Those of the others are read from the database again."""

    def __init__(self) -> None:
        self._by_experiment: OrderedDict[str, _ResultsAtEvent] = OrderedDict()

    def at(self, experiment_id: str, seq: int) -> BestSoFar | None:
        """Return None if the results up to exactly this event are not known."""
        known = self._by_experiment.get(experiment_id)
        return known.results if known and known.seq == seq else None

    def keep(self, experiment_id: str, seq: int, results: BestSoFar) -> None:
        self._by_experiment[experiment_id] = _ResultsAtEvent(seq, results)
        self._by_experiment.move_to_end(experiment_id)
        if len(self._by_experiment) > MAX_EXPERIMENTS:
            self._by_experiment.popitem(last=False)

    def forget(self, experiment_id: str) -> None:
        self._by_experiment.pop(experiment_id, None)
