"""What was worked out of an experiment's row, and holds until the row says something else."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

MOST = 2000
"""Experiments of which it is kept: of more, those are forgotten of which it was worked out first."""

Source = TypeVar("Source")
Found = TypeVar("Found")


class Remembered(Generic[Source, Found]):
    """By experiment, what was found, and from what. For any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[Source, Found]] = OrderedDict()
        self._guard = Lock()

    def get(self, experiment_id: str, source: Source) -> Found | None:
        """None if it was found from something else, or not at all."""
        known = self._known.get(experiment_id)
        return known[1] if known is not None and known[0] == source else None

    def put(self, experiment_id: str, source: Source, found: Found) -> None:
        with self._guard:
            self._known[experiment_id] = source, found
            self._known.move_to_end(experiment_id)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
