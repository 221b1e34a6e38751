"""The base of proposers that wrap a sampler's: each proposal is planned, as the sampler's or as one of their own."""

from abc import ABC, abstractmethod
from enum import IntEnum, unique
from typing import Generic, Protocol, TypeVar

from search.samplers.estimate import Estimate, estimate_of
from search.samplers.sampler import Proposer
from search.space.parameters import Params


@unique
class Choice(IntEnum):
    """What tells the random numbers of a choice from those of the draws, which have 2 to MAX_DRAWS.

    The values differ because one proposer may wrap the other, with the same seed and number: equal ones would make both
    choices alike. They stay as they are, so that a search that is under way proposes what it would have proposed.
    """

    OF_WARM_STARTS = 98
    OF_PRIORS = 99


class Plan(Protocol):
    """What a proposal comes from."""

    @property
    def params(self) -> Params | None:
        """The proposal; None if it is the sampler's."""


AnyPlan = TypeVar("AnyPlan", bound=Plan)


class PlannedProposer(ABC, Generic[AnyPlan]):
    """A subclass drops the plan (`_newest = None`) when it learns something."""

    def __init__(self, sampler: Proposer, seed: int) -> None:
        self._sampler, self._seed = sampler, seed
        self._newest: tuple[int, AnyPlan] | None = None

    def propose(self, number: int) -> Params:
        planned = self._plan(number).params
        return self._sampler.propose(number) if planned is None else planned

    def estimate(self, number: int, params: Params) -> Estimate | None:
        """The sampler's, which knows nothing of other proposals."""
        return estimate_of(self._sampler, number, params)

    def _plan(self, number: int) -> AnyPlan:
        """The plan for trial `number`. It is kept because a proposal, its source and more are asked for one by one."""
        if self._newest is None or self._newest[0] != number:
            self._newest = number, self._planned(number)
        return self._newest[1]

    @abstractmethod
    def _planned(self, number: int) -> AnyPlan:
        """The plan for trial `number`: a function of what was learned."""
