"""A study: a problem, the sampler that searches it, and its proposals as a function of the history."""

from collections.abc import Iterable
from dataclasses import dataclass

from search.problem import Observation, Problem
from search.samplers.auto import ChosenSampler
from search.samplers.sampler_spec import SamplerSpec
from search.space.space import Params


@dataclass(frozen=True)
class Study:
    """Everything that a proposal depends on, except the history.

    `seed` is the sampler's own, or one that the service derived because the sampler has none.
    """

    problem: Problem
    sampler: SamplerSpec
    seed: int

    @property
    def chosen_sampler(self) -> ChosenSampler:
        return self.sampler.chosen_for(self.problem)


class StudyView:
    """An in-memory view of a study's history, which is updated with changes instead of being rebuilt.

    It proposes what `propose` returns for the current history, in whatever order the updates came. Not thread-safe.
    """

    def __init__(self, study: Study, history: Iterable[Observation] = ()) -> None:
        self._proposer = study.chosen_sampler.sampler.proposer(study.problem, study.seed)
        self.update(history)

    def update(self, changes: Iterable[Observation]) -> None:
        """Add new trials and replace known ones; the last observation of a trial number counts."""
        for observation in changes:
            self._proposer.learn(observation)

    def propose(self, changes: Iterable[Observation], number: int) -> Params:
        """Apply the changes and return the params of trial `number`. Raises SpaceExhausted."""
        self.update(changes)
        return self._proposer.propose(number)


def propose(study: Study, history: Iterable[Observation], number: int) -> Params:
    """The params of trial `number`: a pure function, which gives the same answer in any process.

    The order of the history does not matter. The random numbers are derived from (seed, number), so a search that is
    rebuilt after a restart continues unchanged. Raises SpaceExhausted when no configuration is left.
    """
    return StudyView(study, history).propose([], number)
