"""Generations of trials, as a function of the history."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from optuna.trial import FrozenTrial

State = TypeVar("State")


class Generations(Generic[State]):
    """A generation is `size` consecutive trials, by trial number; the last, incomplete one does not count.

    `evolve(state, generation, number)` returns the state after a generation from the state before it, which is None for
    the first; `number` counts from 1.

    Optuna stores with each trial the generation in which it was asked for. Here generations follow from the history:
    nothing needs to be stored beside it, and no trial is left out because it was slow. With a parallelism of 1 both are
    the same.
    """

    def __init__(self, size: int, evolve: Callable[[State | None, list[FrozenTrial], int], State]) -> None:
        self._size, self._evolve = size, evolve
        self._known: list[tuple[list[FrozenTrial], State]] = []

    def after(self, trials: Sequence[FrozenTrial]) -> State | None:
        """The state after the trials. Only generations that differ from those of the last call are evolved again."""
        full = [list(trials[at : at + self._size]) for at in range(0, len(trials) - self._size + 1, self._size)]
        unchanged = 0
        for generation, (known, _) in zip(full, self._known, strict=False):
            if any(one is not other for one, other in zip(generation, known, strict=True)):
                break
            unchanged += 1
        del self._known[unchanged:]
        for generation in full[unchanged:]:
            state = self._known[-1][1] if self._known else None
            self._known.append((generation, self._evolve(state, list(generation), len(self._known) + 1)))
        return self._known[-1][1] if self._known else None
