"""What evolves from generation to generation, as a function of the history."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from optuna.trial import FrozenTrial

State = TypeVar("State")


class Generations(Generic[State]):
    """`size` trials after the other are a generation, and `evolve` says what state it leads to from the one before.

    Optuna writes down with each trial the generation it was asked in. Here the trials that count, taken in the order of
    their numbers, are the generations: nothing needs to be stored beside the history, and no trial is left out because
    it was slow. With one trial at a time both are the same. `evolve` is also told the generation's number, from 1.
    """

    def __init__(self, size: int, evolve: Callable[[State | None, list[FrozenTrial], int], State]) -> None:
        self._size, self._evolve = size, evolve
        self._known: list[tuple[list[FrozenTrial], State]] = []

    def after(self, trials: Sequence[FrozenTrial]) -> State | None:
        """The state that the trials lead to, evolved anew only from where they are not those of the last call."""
        full = [list(trials[at : at + self._size]) for at in range(0, len(trials) - self._size + 1, self._size)]
        agreed = 0
        for generation, (known, _) in zip(full, self._known, strict=False):
            if any(one is not other for one, other in zip(generation, known, strict=True)):
                break
            agreed += 1
        del self._known[agreed:]
        for generation in full[agreed:]:
            state = self._known[-1][1] if self._known else None
            self._known.append((generation, self._evolve(state, list(generation), len(self._known) + 1)))
        return self._known[-1][1] if self._known else None
