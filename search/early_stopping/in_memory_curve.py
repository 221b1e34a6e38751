"""A trial's curve in memory, which keeps its best values from report to report."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from search.problem import Direction, best_value_of


class InMemoryCurve(Mapping[int, float]):
    """Values by step, in the order in which the steps were added. `newest` is the value that was set last.

    The best values are kept, so a report at the end costs nothing for the steps before it. One at an earlier step costs
    the number of steps behind it.
    """

    def __init__(self) -> None:
        self.newest: float | None = None
        self._values: dict[int, float] = {}
        self._steps: list[int] = []
        self._best: dict[Direction, float] = {}
        self._best_up_to: dict[Direction, list[float]] = {"minimize": [], "maximize": []}

    @property
    def by_step(self) -> Mapping[int, float]:
        """A plain dict of the values, which is faster to iterate over."""
        return self._values

    @property
    def last_step(self) -> int | None:
        return self._steps[-1] if self._steps else None

    def best(self, direction: Direction) -> float:
        if direction not in self._best:
            self._best[direction] = best_value_of(self._values.values(), direction)
        return self._best[direction]

    def best_since_and_before(self, count: int, direction: Direction) -> tuple[float, float] | None:
        """See `History`."""
        before_count = len(self._steps) - count
        if before_count < 1:
            return None
        last = (self._values[step] for step in self._steps[before_count:])
        return best_value_of(last, direction), self._best_of_first(before_count, direction)

    def _best_of_first(self, count: int, direction: Direction) -> float:
        """The best value at the lowest `count` steps."""
        bests = self._best_up_to[direction]
        for step in self._steps[len(bests) : count]:
            value = self._values[step]
            bests.append(best_value_of((*bests[-1:], value), direction))
        return bests[count - 1]

    def __getitem__(self, step: int) -> float:
        return self._values[step]

    def __setitem__(self, step: int, value: float) -> None:
        place = bisect_left(self._steps, step)
        if step in self._values:
            self._best.clear()
        else:
            self._steps.insert(place, step)
            self._best = {direction: best_value_of((best, value), direction) for direction, best in self._best.items()}
        self._values[step] = self.newest = value
        for bests in self._best_up_to.values():
            del bests[place:]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
