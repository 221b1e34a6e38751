"""A search kept in memory, told of changes instead of being given the whole history each time."""

from collections.abc import Iterable

from search.problem import Observation, Problem
from search.space.space import Params


class StudyView:
    """A cache: whatever it was told in whatever order, it proposes what `propose` does on the history as it is now.

    Not for several threads at once.
    """

    def __init__(self, problem: Problem, history: Iterable[Observation] = ()) -> None:
        self.problem = problem
        self._proposer = problem.sampler.chosen(problem.setting).sampler.proposer(problem)
        self.update(history)

    def update(self, changes: Iterable[Observation]) -> None:
        """Take in new trials and new states of known ones; the last word on a number counts."""
        for observation in changes:
            self._proposer.learn(observation)

    def propose(self, changes: Iterable[Observation], number: int) -> Params:
        """Take in the changes, then the params of trial `number`. Raises SpaceExhausted as `propose` does."""
        self.update(changes)
        return self._proposer.propose(number)
